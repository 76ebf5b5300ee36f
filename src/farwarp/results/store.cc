#include "farwarp/results/store.h"

#include <fmt/format.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <utility>

#include "farwarp/results/schema.h"

namespace farwarp::results {
namespace {

namespace fs = std::filesystem;

constexpr const char* kCaseColumns =
    "id, run, op, suite, label, settings, params, scaled, seed, floor_us, floor_bound_by, speed_of_light_us, verified, "
    "detail, plan, no_baseline";

CaseRecord case_of(const Statement& row) {
  CaseRecord read;
  read.id = row.integer(0);
  read.run = row.integer(1);
  read.op = row.text(2);
  read.suite = row.text(3);
  read.label = row.text(4);
  read.settings = row.text(5);
  read.params = row.text(6);
  read.scaled = row.integer(7) != 0;
  read.seed = static_cast<std::uint64_t>(row.integer(8));
  read.floor_us = row.number(9);
  read.floor_bound_by = row.text(10);
  read.speed_of_light_us = row.number(11);
  read.verified = row.integer(12) != 0;
  read.detail = row.text(13);
  read.plan = row.text(14);
  read.no_baseline = row.text(15);
  return read;
}

}  // namespace

Result<fs::path> default_path() {
  const auto set = [](const char* variable) {
    const char* const value = std::getenv(variable);
    return value != nullptr && *value == '/' ? fs::path(value) : fs::path();  // XDG: relative paths are to be ignored
  };
  fs::path data = set("XDG_DATA_HOME");
  if (data.empty() && !set("HOME").empty()) data = set("HOME") / ".local" / "share";
  if (data.empty()) return unavailable("no folder to keep results in: neither XDG_DATA_HOME nor HOME is a path");
  return data / "farwarp" / "results.db";
}

Result<Store> Store::open(const std::string& path, Database::Access access) {
  auto database = open_results(path, access);
  if (!database.ok()) return database.status();
  return Store(std::move(*database));
}

Status Store::add(RunRecord& run, const std::function<Status(std::int64_t run)>& insert_of_run) {
  auto transaction = Transaction::begin(database_);
  if (!transaction.ok()) return transaction.status();
  Result<std::int64_t> id = run.id;
  if (run.id == 0) id = insert(run);
  Status status = id.ok() ? insert_of_run(*id) : id.status();
  if (status.ok()) status = transaction->commit();
  if (status.ok()) run.id = *id;
  return status;
}

Status Store::add(RunRecord& run, const CaseRecord& added) {
  return add(run, [&](std::int64_t id) {
    const auto case_id = insert(added, id);
    Status status = case_id.status();
    for (const SeriesRecord& series : added.series) {
      if (status.ok()) status = insert(series, *case_id);
    }
    return status;
  });
}

Status Store::add(RunRecord& run, const TaxRecord& added) {
  if (!nlohmann::json::parse(added.detail, nullptr, false).is_object())
    return invalid_argument(fmt::format("detail is '{}'; allowed: a JSON object", added.detail));
  return add(run, [&](std::int64_t id) { return insert(added, id); });
}

Status Store::complete(const RunRecord& run) {
  auto statement = database_.prepare("UPDATE runs SET complete = 1 WHERE id = ?");
  if (!statement.ok()) return statement.status();
  return statement->bind(run.id).step().status();
}

Result<std::int64_t> Store::insert(const RunRecord& run) {
  auto statement = database_.prepare(
      "INSERT INTO runs (label, began, machine, target, driver, clocks, ranks, version, farwarp_commit, command, "
      "complete) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0)");
  if (!statement.ok()) return statement.status();
  statement->bind(run.label).bind(run.began).bind(run.machine).bind(run.target).bind(run.driver).bind(run.clocks);
  const auto done =
      statement->bind(std::int64_t{run.ranks}).bind(run.version).bind(run.commit).bind(run.command).step();
  if (!done.ok()) return done.status();
  return database_.last_id();
}

Result<std::int64_t> Store::insert(const CaseRecord& added, std::int64_t run) {
  auto statement = database_.prepare(
      "INSERT INTO cases (run, op, suite, label, settings, params, scaled, seed, floor_us, floor_bound_by, "
      "speed_of_light_us, verified, detail, plan, no_baseline) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)");
  if (!statement.ok()) return statement.status();
  statement->bind(run).bind(added.op).bind(added.suite).bind(added.label).bind(added.settings).bind(added.params);
  statement->bind(std::int64_t{added.scaled}).bind(static_cast<std::int64_t>(added.seed));
  statement->bind_known(added.floor_us).bind(added.floor_bound_by).bind_known(added.speed_of_light_us);
  statement->bind(std::int64_t{added.verified}).bind(added.detail).bind(added.plan).bind(added.no_baseline);
  const auto done = statement->step();
  if (!done.ok()) return done.status();
  return database_.last_id();
}

Status Store::insert(const SeriesRecord& series, std::int64_t of_case) {
  auto statement = database_.prepare(
      "INSERT INTO series (\"case\", name, entry, ours, graph_us, back_to_back_us) VALUES (?, ?, ?, ?, ?, ?)");
  if (!statement.ok()) return statement.status();
  statement->bind(of_case).bind(series.name).bind(series.entry).bind(std::int64_t{series.ours});
  const auto done = statement->bind_known(series.graph_us).bind_known(series.back_to_back_us).step();
  if (!done.ok()) return done.status();
  const std::int64_t id = database_.last_id();
  auto sample = database_.prepare("INSERT INTO samples (series, number, us, cycles) VALUES (?, ?, ?, ?)");
  if (!sample.ok()) return sample.status();
  for (std::size_t i = 0; i < series.us.size(); ++i) {
    sample->bind(id).bind(static_cast<std::int64_t>(i)).bind(series.us[i]);
    const auto added = sample->bind_known(i < series.cycles.size() ? series.cycles[i] : 0).step();
    if (!added.ok()) return added.status();
  }
  return {};
}

Status Store::insert(const TaxRecord& added, std::int64_t run) {
  auto statement = database_.prepare(
      "INSERT INTO taxes (run, suite, \"case\", baseline, baseline_us, launch_us, bulk_us, locality_us, rest_us, "
      "fused_us, detail) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)");
  if (!statement.ok()) return statement.status();
  statement->bind(run).bind(added.suite).bind(added.of_case).bind(added.baseline).bind(added.baseline_us);
  statement->bind(added.launch_us).bind(added.bulk_us).bind(added.locality_us).bind(added.rest_us);
  return statement->bind(added.fused_us).bind(added.detail).step().status();
}

Result<std::vector<RunRecord>> Store::runs() {
  auto statement = database_.prepare(
      "SELECT id, label, began, machine, target, driver, clocks, ranks, version, farwarp_commit, command, complete "
      "FROM runs ORDER BY id");
  if (!statement.ok()) return statement.status();
  std::vector<RunRecord> all;
  for (;;) {
    const auto row = statement->step();
    if (!row.ok()) return row.status();
    if (!*row) return all;
    RunRecord& run = all.emplace_back();
    run.id = statement->integer(0);
    run.label = statement->text(1);
    run.began = statement->text(2);
    run.machine = statement->text(3);
    run.target = statement->text(4);
    run.driver = statement->text(5);
    run.clocks = statement->text(6);
    run.ranks = static_cast<int>(statement->integer(7));
    run.version = statement->text(8);
    run.commit = statement->text(9);
    run.command = statement->text(10);
    run.complete = statement->integer(11) != 0;
  }
}

Result<std::vector<CaseRecord>> Store::cases_of_run(std::int64_t run) {
  auto statement = database_.prepare(fmt::format("SELECT {} FROM cases WHERE run = ? ORDER BY id", kCaseColumns));
  if (statement.ok()) statement->bind(run);
  return read_cases(std::move(statement));
}

Result<std::vector<CaseRecord>> Store::cases_of_suite(const std::string& suite) {
  auto statement = database_.prepare(fmt::format("SELECT {} FROM cases WHERE suite = ? ORDER BY id", kCaseColumns));
  if (statement.ok()) statement->bind(suite);
  return read_cases(std::move(statement));
}

Result<std::vector<CaseRecord>> Store::read_cases(Result<Statement> statement) {
  if (!statement.ok()) return statement.status();
  std::vector<CaseRecord> cases;
  for (;;) {
    const auto row = statement->step();
    if (!row.ok()) return row.status();
    if (!*row) return cases;
    cases.push_back(case_of(*statement));
    if (Status status = read_series(cases.back()); !status.ok()) return status;
  }
}

Status Store::read_series(CaseRecord& of_case) {
  auto statement = database_.prepare(
      "SELECT id, name, entry, ours, graph_us, back_to_back_us FROM series WHERE \"case\" = ? ORDER BY id");
  if (!statement.ok()) return statement.status();
  statement->bind(of_case.id);
  for (;;) {
    const auto row = statement->step();
    if (!row.ok() || !*row) return row.status();
    SeriesRecord& series = of_case.series.emplace_back();
    series.id = statement->integer(0);
    series.name = statement->text(1);
    series.entry = statement->text(2);
    series.ours = statement->integer(3) != 0;
    series.graph_us = statement->number(4);
    series.back_to_back_us = statement->number(5);
  }
}

Result<std::vector<TaxRecord>> Store::taxes_of_run(std::int64_t run) {
  auto statement = database_.prepare(
      "SELECT id, run, suite, \"case\", baseline, baseline_us, launch_us, bulk_us, locality_us, rest_us, fused_us, "
      "detail FROM taxes WHERE run = ? ORDER BY id");
  if (!statement.ok()) return statement.status();
  statement->bind(run);
  std::vector<TaxRecord> taxes;
  for (;;) {
    const auto row = statement->step();
    if (!row.ok()) return row.status();
    if (!*row) return taxes;
    TaxRecord& read = taxes.emplace_back();
    read.id = statement->integer(0);
    read.run = statement->integer(1);
    read.suite = statement->text(2);
    read.of_case = statement->text(3);
    read.baseline = statement->text(4);
    read.baseline_us = statement->number(5);
    read.launch_us = statement->optional_number(6);
    read.bulk_us = statement->optional_number(7);
    read.locality_us = statement->optional_number(8);
    read.rest_us = statement->optional_number(9);
    read.fused_us = statement->optional_number(10);
    read.detail = statement->text(11);
  }
}

Status Store::read_samples(SeriesRecord& series) {
  auto statement = database_.prepare("SELECT us, cycles FROM samples WHERE series = ? ORDER BY number");
  if (!statement.ok()) return statement.status();
  statement->bind(series.id);
  series.us.clear();
  series.cycles.clear();
  for (;;) {
    const auto row = statement->step();
    if (!row.ok()) return row.status();
    if (!*row) break;
    series.us.push_back(statement->number(0));
    if (statement->number(1) > 0) series.cycles.push_back(statement->number(1));
  }
  if (series.cycles.size() != series.us.size()) series.cycles.clear();
  return {};
}

}  // namespace farwarp::results
