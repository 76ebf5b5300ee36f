// The options of the command line's commands: each function adds a command and where its options go.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "commands.h"
#include "submit.h"

namespace farwarp::cli {

/// Adds an option with a value. An empty value is an error, because a script passes it if its own variable is not set.
template <class Value>
CLI::Option* add_option(CLI::App* command, const std::string& name, Value& value, const std::string& help) {
  return command->add_option(name, value, help)->check([](const std::string& text) {
    return text.empty() ? std::string("the value is empty") : std::string();
  });
}

CLI::App* add_check(CLI::App& app, CheckOptions& options);
CLI::App* add_trace(CLI::App& app, TraceOptions& options);
CLI::App* add_bench(CLI::App& app, CheckOptions& options);
CLI::App* add_taxes(CLI::App& app, CheckOptions& options, std::string& added);
CLI::App* add_submit(CLI::App& app, SubmitOptions& check, SubmitOptions& bench, std::string& folder,
                     std::string& socket);
CLI::App* add_leaderboard(CLI::App& app, LeaderboardOptions& options);
CLI::App* add_report(CLI::App& app, ReportOptions& options);
CLI::App* add_compare(CLI::App& app, CompareOptions& options);
CLI::App* add_tune(CLI::App& app, CheckOptions& options);
CLI::App* add_doctor(CLI::App& app, DoctorOptions& options);
CLI::App* add_suites(CLI::App& app, SuitesCommandOptions& options);
CLI::App* add_cache(CLI::App& app, CacheCommandOptions& options);
CLI::App* add_decode(CLI::App& app, DecodeCommandOptions& options);
CLI::App* add_graph(CLI::App& app, GraphCommandOptions& options);

}  // namespace farwarp::cli
