#include "farwarp/results/schema.h"

#include <fmt/format.h>

#include <chrono>
#include <iterator>
#include <thread>
#include <utility>

#include "farwarp/base/file.h"

namespace farwarp::results {
namespace {

constexpr std::int64_t kApplicationId = 0x66617277;  // "farw"

// `complete`: no case was left to run. `settings`: what differs from the suite, by --set. `entry`: whose time it is on
// a leaderboard; empty for parts of a case. Times are in microseconds.
constexpr const char* kSteps[] = {
    R"sql(
CREATE TABLE runs (
  id INTEGER PRIMARY KEY AUTOINCREMENT, label TEXT NOT NULL, began TEXT NOT NULL, machine TEXT NOT NULL,
  target TEXT NOT NULL, driver TEXT NOT NULL, clocks TEXT NOT NULL, ranks INTEGER NOT NULL, version TEXT NOT NULL,
  farwarp_commit TEXT NOT NULL, command TEXT NOT NULL, complete INTEGER NOT NULL);
CREATE TABLE cases (
  id INTEGER PRIMARY KEY, run INTEGER NOT NULL REFERENCES runs, op TEXT NOT NULL, suite TEXT NOT NULL,
  label TEXT NOT NULL, settings TEXT NOT NULL, params TEXT NOT NULL, scaled INTEGER NOT NULL, seed INTEGER NOT NULL,
  floor_us REAL, floor_bound_by TEXT NOT NULL, speed_of_light_us REAL, verified INTEGER NOT NULL, detail TEXT NOT NULL,
  plan TEXT NOT NULL, no_baseline TEXT NOT NULL);
CREATE INDEX cases_of_runs ON cases (run);
CREATE INDEX cases_of_suites ON cases (suite);
CREATE TABLE series (
  id INTEGER PRIMARY KEY, "case" INTEGER NOT NULL REFERENCES cases, name TEXT NOT NULL, entry TEXT NOT NULL,
  ours INTEGER NOT NULL, graph_us REAL, back_to_back_us REAL);
CREATE INDEX series_of_cases ON series ("case");
CREATE TABLE samples (
  series INTEGER NOT NULL REFERENCES series, number INTEGER NOT NULL, us REAL NOT NULL,
  PRIMARY KEY (series, number)) WITHOUT ROWID;
)sql",
    // NULL where the clock is not known
    "ALTER TABLE samples ADD COLUMN cycles REAL",
    // of the time of a case's baseline; NULL where it was not measured
    R"sql(
CREATE TABLE taxes (
  id INTEGER PRIMARY KEY, run INTEGER NOT NULL REFERENCES runs, suite TEXT NOT NULL, "case" TEXT NOT NULL,
  baseline TEXT NOT NULL, baseline_us REAL NOT NULL, launch_us REAL, bulk_us REAL, locality_us REAL, rest_us REAL,
  fused_us REAL, detail TEXT NOT NULL);
CREATE INDEX taxes_of_runs ON taxes (run);
)sql",
};

std::int64_t newest() { return static_cast<std::int64_t>(std::size(kSteps)); }

Status set(Database& database, const char* pragma, std::int64_t value) {
  return database.run(fmt::format("PRAGMA {} = {}", pragma, value).c_str());
}

/// kInvalidArgument if it is not ours, or too new.
Result<std::int64_t> version_of(Database& database) {
  // One statement, so that no other process brings it up to date in between.
  auto statement = database.prepare(
      "SELECT version.user_version, application.application_id, (SELECT count(*) FROM sqlite_master) "
      "FROM pragma_user_version AS version, pragma_application_id AS application");
  if (!statement.ok()) return statement.status();
  const auto row = statement->step();
  if (!row.ok()) return row.status();
  const std::int64_t version = statement->integer(0), application = statement->integer(1);
  if (version == 0 && application == 0 && statement->integer(2) == 0) return 0;
  if (application != kApplicationId || version <= 0)
    return invalid_argument("is another program's database; allowed: one of farwarp's results");
  if (version > newest())
    return invalid_argument(fmt::format("is of a newer farwarp: its schema is {}; allowed: 1..{}", version, newest()));
  return version;
}

Status migrate(Database& database) {
  auto version = version_of(database);
  if (!version.ok() || *version == newest()) return version.status();
  auto transaction = Transaction::begin(database);
  if (!transaction.ok()) return transaction.status();
  version = version_of(database);  // another process may have done it meanwhile
  if (!version.ok()) return version.status();
  Status status = set(database, "application_id", kApplicationId);
  for (std::int64_t step = *version; step < newest() && status.ok(); ++step)
    status = database.run(schema_steps()[static_cast<std::size_t>(step)]);
  if (status.ok()) status = set(database, "user_version", newest());
  return status.ok() ? transaction->commit() : status;
}

/// Readers and the writer do not wait for each other. SQLite does not wait by itself for the change to this mode; on a
/// file system without shared memory the mode stays what it is, which works too.
Status use_log(Database& database) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(kBusyMs);
  for (;;) {
    Status status = database.run("PRAGMA journal_mode = WAL");
    if (status.code() != StatusCode::kUnavailable || std::chrono::steady_clock::now() > end) return status;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

/// Fails if nothing can be written, before there is something to write.
Status try_to_write(Database& database) {
  auto transaction = Transaction::begin(database);
  if (!transaction.ok()) return transaction.status();
  const auto version = database.integer("PRAGMA user_version");
  return version.ok() ? set(database, "user_version", *version) : version.status();
}

}  // namespace

std::span<const char* const> schema_steps() { return kSteps; }

Result<Database> open_results(const std::string& path, Database::Access access) {
  if (Status status = check_regular(path); !status.ok()) return status;
  auto database = Database::open(path, access);
  if (!database.ok()) return database;
  const auto version = version_of(*database);
  if (!version.ok()) return version.status();
  if (access == Database::Access::kRead) {
    if (*version == newest()) return database;
    auto updated = open_results(path, Database::Access::kWrite);
    if (updated.ok()) return updated;
    return invalid_argument(fmt::format("is of an older farwarp, with schema {}, and cannot be brought up to date: {}",
                                        *version, updated.status().message()));
  }
  Status status = use_log(*database);
  if (status.ok()) status = migrate(*database);
  if (status.ok()) status = try_to_write(*database);
  if (!status.ok()) return status;
  return database;
}

}  // namespace farwarp::results
