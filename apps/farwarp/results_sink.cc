#include "results_sink.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <filesystem>

#include "farwarp/runtime/device.h"
#include "farwarp/vendor/nvml.h"
#include "print.h"

namespace farwarp::cli {
namespace {

Status create_folder_of(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
  return error ? unavailable(error.message()) : Status();
}

}  // namespace

Status check_label(const std::string& what, const std::string& label) {
  const auto fits = [](unsigned char c) { return std::isprint(c) != 0 && c != '/'; };
  const bool allowed =
      label.empty() || (std::isalpha(static_cast<unsigned char>(label[0])) != 0 && label.size() <= 100 &&
                        std::all_of(label.begin(), label.end(), fits) && !label.ends_with(".db"));
  if (allowed) return {};
  return invalid_argument(
      fmt::format("{} '{}': allowed are up to 100 printable ASCII characters, the first one a letter, without '/' and "
                  "without .db at the end",
                  what, label));
}

Result<std::string> results_path(const std::string& option) {
  if (!option.empty()) return option;
  const auto path = results::default_path();
  if (!path.ok()) return path.status();
  return path->string();
}

Result<results::Store> open_store(const std::string& option, results::Database::Access access) {
  const auto path = results_path(option);
  if (!path.ok()) return path.status();
  std::error_code error;
  auto store = access == results::Database::Access::kRead && !std::filesystem::exists(*path, error)
                   ? Result<results::Store>(invalid_argument("does not exist; `farwarp bench` writes it"))
                   : results::Store::open(*path, access);
  if (store.ok()) return store;
  const std::string what =
      option.empty() ? fmt::format("results are in '{}'", *path) : fmt::format("--results is '{}'", *path);
  return Status{store.status().code(), fmt::format("{}: {}", what, store.status().message())};
}

Status ResultsSink::open(const CheckOptions& options, const results::Origin& origin,
                         std::map<std::string, std::string> build) {
  if (Status status = check_label("--label is", options.label); !status.ok()) return status;
  if (options.no_results) return {};
  const bool by_default = options.results.empty();
  const auto path = results_path(options.results);
  Status status = path.status();
  if (status.ok() && by_default) status = create_folder_of(*path);
  if (status.ok()) {
    auto store = open_store(options.results, results::Database::Access::kCreate);
    status = store.status();
    if (store.ok()) store_.emplace(std::move(*store));
  }
  if (!status.ok() && !by_default) return invalid_argument(status.message());
  if (!status.ok()) {
    print_text(stderr, "farwarp: results of this bench are not kept: {}\n", status.message());
    return {};
  }
  path_ = *path;
  origin_ = origin;
  run_.label = options.label;
  run_.began = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}",
                           fmt::gmtime(std::chrono::system_clock::to_time_t(std::chrono::system_clock::now())));
  run_.version = build["version"];
  run_.commit = build["commit"];
  run_.command = options.command;
  return {};
}

void ResultsSink::keep(const harness::CaseResult& result, const std::string& entry) {
  if (!store_ || !status_.ok()) return;
  const bool of_taxes = result.request.bench && result.request.bench->taxes;
  if (of_taxes && !result.bench.taxes) return;  // there is no baseline
  const harness::RunOptions& options = result.request.options;
  if (run_.id == 0) {
    const auto device = Device::open(options.target, 0);
    run_.machine = device.ok() ? (*device)->model() : "unknown";
    run_.target = name_of(options.target);
    run_.ranks = options.ranks;
    if (options.target == TargetKind::kCuda) {
      run_.driver = nvml::driver_version();
      run_.clocks = nvml::highest_clocks();
    }
  }
  status_ = of_taxes ? store_->add(run_, results::tax_record_of(result, origin_))
                     : store_->add(run_, results::record_of(result, origin_,
                                                            entry.empty() ? results::own_entry(run_.commit) : entry));
}

Status ResultsSink::finish(bool all) {
  if (store_ && status_.ok() && all && run_.id != 0) status_ = store_->complete(run_);
  if (status_.ok()) return {};
  return unavailable(fmt::format("cannot keep results in {}: {}", path_, status_.message()));
}

std::string ResultsSink::summary() const {
  return run_.id != 0 && status_.ok() ? fmt::format("kept as run {} in {}\n", run_.id, path_) : std::string();
}

}  // namespace farwarp::cli
