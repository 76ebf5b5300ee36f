// Results survive what happens to their writers and to their file.
#include "farwarp/results/store.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <tuple>

#include "farwarp/base/temporary_folder_test.h"
#include "farwarp/results/results_test_records.h"
#include "farwarp/results/schema.h"

namespace farwarp::results {
namespace {

using Access = Database::Access;

class StoreTest : public testing::Test {
 protected:
  Store open(Access access = Access::kCreate) const {
    auto store = Store::open(path_, access);
    EXPECT_TRUE(store.ok()) << store.status().to_string();
    return std::move(*store);
  }
  std::string refusal(const std::string& path, Access access) const {
    const auto store = Store::open(path, access);
    return store.ok() ? "opened" : store.status().message();
  }
  std::string refusal(Access access = Access::kCreate) const { return refusal(path_, access); }

  /// All cases, with samples.
  std::vector<CaseRecord> all_cases() const {
    Store store = open(Access::kRead);
    auto cases = store.cases_of_suite("mine");
    EXPECT_TRUE(cases.ok()) << cases.status().to_string();
    for (CaseRecord& record : *cases) {
      for (SeriesRecord& series : record.series) EXPECT_TRUE(store.read_samples(series).ok());
    }
    return *cases;
  }

  TemporaryFolder folder_;
  std::string path_ = (folder_ / "results.db").string();
};

/// The child's exit status, as waitpid() returns it.
pid_t in_child(const std::function<int()>& work) {
  const pid_t child = fork();
  if (child == 0) _exit(work());
  return child;
}

TEST_F(StoreTest, ReturnsWhatWasAdded) {
  RunRecord run = a_run();
  run.label = "first";
  CaseRecord made = a_case("benchmarks[0]", 10);
  made.settings = "dtype=bf16";
  made.scaled = true;
  made.seed = 0xffff'ffff'ffff'fff0u;
  made.speed_of_light_us = 1.5;
  made.series[0].us = {3, 1, 2};
  made.series[0].cycles = {6000, 2000, 4000};
  made.series.push_back(a_baseline("NCCL 2.28.9", 20));
  CaseRecord failed = a_case("benchmarks[1]", 10);
  failed.verified = false;
  failed.detail = "rank 1: wrong \"element\"; DROP TABLE runs;--\n\xff";
  failed.floor_us = 0;
  failed.series.clear();
  {
    Store store = open();
    ASSERT_TRUE(store.add(run, made).ok());
    EXPECT_EQ(run.id, 1);
    ASSERT_TRUE(store.add(run, failed).ok());
    EXPECT_EQ(run.id, 1);
    EXPECT_FALSE(store.runs()->front().complete);
    ASSERT_TRUE(store.complete(run).ok());
    EXPECT_EQ(keep(store, a_run(), {made}), 2);
  }
  Store store = open(Access::kRead);
  const auto runs = store.runs();
  ASSERT_TRUE(runs.ok());
  ASSERT_EQ(runs->size(), 2u);
  const RunRecord& first = runs->front();
  EXPECT_EQ(std::tuple(first.id, first.label, first.began, first.machine, first.target, first.driver, first.clocks,
                       first.ranks, first.version, first.commit, first.command, first.complete),
            std::tuple(1, run.label, run.began, run.machine, run.target, run.driver, run.clocks, run.ranks, run.version,
                       run.commit, run.command, true));
  const auto cases = store.cases_of_run(1);
  ASSERT_TRUE(cases.ok());
  ASSERT_EQ(cases->size(), 2u);
  const CaseRecord& one = cases->front();
  EXPECT_EQ(std::tuple(one.run, one.op, one.suite, one.label, one.settings, one.params, one.scaled, one.seed),
            std::tuple(1, made.op, made.suite, made.label, made.settings, made.params, true, made.seed));
  EXPECT_EQ(std::tuple(one.floor_us, one.floor_bound_by, one.speed_of_light_us, one.verified, one.plan),
            std::tuple(2.0, made.floor_bound_by, 1.5, true, made.plan));
  ASSERT_EQ(one.series.size(), 2u);
  SeriesRecord ours = one.series[0], baseline = one.series[1];
  EXPECT_EQ(std::tuple(ours.name, ours.entry, ours.ours, ours.graph_us, ours.back_to_back_us),
            std::tuple("all-reduce", "farwarp aaaa", true, 9.0, 0.0));
  EXPECT_FALSE(baseline.ours);
  ASSERT_TRUE(store.read_samples(ours).ok());
  EXPECT_EQ(ours.us, (std::vector<double>{3, 1, 2})) << "in the order in which they were taken";
  EXPECT_EQ(ours.cycles, (std::vector<double>{6000, 2000, 4000}));
  ASSERT_TRUE(store.read_samples(baseline).ok());
  EXPECT_EQ(baseline.us.size(), 8u);
  EXPECT_TRUE(baseline.cycles.empty());
  EXPECT_EQ(cases->back().detail, failed.detail);
  EXPECT_EQ(cases->back().floor_us, 0);
  EXPECT_FALSE(cases->back().verified);
  EXPECT_TRUE(cases->back().series.empty());
}

/// A writer is killed while it writes a large case: that one is lost as a whole, those before it are there.
TEST_F(StoreTest, AKilledWriterLosesAtMostTheCaseUnderWay) {
  constexpr int kSamples = 50'000;
  std::size_t written_before = 0;
  for (int attempt = 0; attempt < 8; ++attempt) {
    int pipes[2];
    ASSERT_EQ(pipe(pipes), 0);
    const pid_t child = in_child([&] {
      auto store = Store::open(path_, Access::kCreate);
      if (!store.ok()) return 1;
      RunRecord run = a_run();
      for (char number = 0;; ++number) {
        if (write(pipes[1], &number, 1) != 1) return 1;  // `number` cases are written, and the next one begins
        if (!store->add(run, a_case("benchmarks[0]", 10, "aaaa", kSamples)).ok()) return 2;
      }
    });
    close(pipes[1]);
    char begun = 0;
    for (int cases = 0; cases <= 2; ++cases) ASSERT_EQ(read(pipes[0], &begun, 1), 1);
    usleep(static_cast<useconds_t>(1000 * attempt));  // into its writing
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status)) << status;
    while (read(pipes[0], &begun, 1) == 1) {
    }
    close(pipes[0]);
    const auto cases = all_cases();
    const std::size_t added = cases.size() - written_before;
    EXPECT_GE(added, static_cast<std::size_t>(begun));
    EXPECT_LE(added, static_cast<std::size_t>(begun) + 1);
    written_before = cases.size();
    for (const CaseRecord& record : cases) {
      ASSERT_EQ(record.series.size(), 1u);
      EXPECT_EQ(record.series[0].us.size(), static_cast<std::size_t>(kSamples));
    }
  }
  auto database = open_results(path_, Access::kRead);
  ASSERT_TRUE(database.ok());
  auto check = database->prepare("PRAGMA integrity_check");
  ASSERT_TRUE(check.ok() && *check->step());
  EXPECT_EQ(check->text(0), "ok");
  EXPECT_EQ(*database->integer("SELECT count(*) FROM samples WHERE series NOT IN (SELECT id FROM series)"), 0);
}

/// They begin at the same time, also with the file.
TEST_F(StoreTest, TwoWritersAtOnceLoseNothing) {
  constexpr int kCases = 40;
  for (const char* name : {"one.db", "other.db", "third.db"}) {
    path_ = (folder_ / name).string();
    std::vector<pid_t> children;
    for (int writer = 0; writer < 2; ++writer) {
      children.push_back(in_child([&] {
        auto store = Store::open(path_, Access::kCreate);
        if (!store.ok()) return 1;
        RunRecord run = a_run();
        for (int i = 0; i < kCases; ++i) {
          if (!store->add(run, a_case(std::to_string(i), writer + 1.0)).ok()) return 2;
        }
        return store->complete(run).ok() ? 0 : 3;
      }));
    }
    for (const pid_t child : children) {
      int status = 0;
      waitpid(child, &status, 0);
      EXPECT_EQ(status, 0);
    }
    Store store = open(Access::kRead);
    const auto runs = store.runs();
    ASSERT_EQ(runs->size(), 2u);
    for (const RunRecord& run : *runs) {
      EXPECT_TRUE(run.complete);
      auto cases = store.cases_of_run(run.id);
      ASSERT_EQ(cases->size(), static_cast<std::size_t>(kCases));
      double us = 0;
      for (int i = 0; i < kCases; ++i) {
        CaseRecord& record = (*cases)[static_cast<std::size_t>(i)];
        EXPECT_EQ(record.label, std::to_string(i));
        ASSERT_TRUE(store.read_samples(record.series[0]).ok());
        if (us == 0) us = record.series[0].us[0];
        EXPECT_EQ(record.series[0].us, std::vector<double>(8, us)) << "a case of the other run";
      }
    }
  }
}

TEST_F(StoreTest, ReadsWhileAnotherWrites) {
  Store writer = open();
  EXPECT_EQ(keep(writer, a_run(), {a_case("benchmarks[0]", 10)}), 1);
  auto database = open_results(path_, Access::kWrite);
  ASSERT_TRUE(database.ok());
  auto transaction = Transaction::begin(*database);
  ASSERT_TRUE(transaction.ok());
  ASSERT_TRUE(database->run("DELETE FROM runs").ok());
  EXPECT_EQ(open(Access::kRead).runs()->size(), 1u) << "what is not committed is not seen";
}

/// As the first farwarp with results wrote it.
void write_oldest(const std::string& path) {
  auto database = Database::open(path, Access::kCreate);
  ASSERT_TRUE(database.ok());
  for (const char* sql :
       {schema_steps()[0],
        "INSERT INTO runs VALUES (5, 'old', '2026-11-27T00:00:00Z', 'NVIDIA H200', 'cuda', '', '', 2, '0.1.0', 'aaaa', "
        "'farwarp bench', 1)",
        "INSERT INTO cases VALUES (9, 5, 'all-reduce', 'mine', 'benchmarks[0]', '', '{}', 0, 7, 2.5, 'links', NULL, 1, "
        "'', 'one-shot', '')",
        "INSERT INTO series VALUES (3, 9, 'all-reduce', 'farwarp aaaa', 1, NULL, NULL)",
        "INSERT INTO samples VALUES (3, 0, 11.5), (3, 1, 12.5)", "PRAGMA application_id = 0x66617277",
        "PRAGMA user_version = 1"})
    ASSERT_TRUE(database->run(sql).ok()) << sql;
}

TEST_F(StoreTest, BringsAnOlderSchemaUpToDate) {
  for (const Access access : {Access::kRead, Access::kWrite}) {
    path_ = (folder_ / (access == Access::kRead ? "read.db" : "written.db")).string();
    write_oldest(path_);
    Store store = open(access);
    const auto runs = store.runs();
    ASSERT_TRUE(runs.ok());
    EXPECT_EQ(runs->front().label, "old");
    const auto cases = all_cases();
    ASSERT_EQ(cases.size(), 1u);
    EXPECT_EQ(cases[0].floor_us, 2.5);
    EXPECT_EQ(cases[0].series[0].us, (std::vector<double>{11.5, 12.5}));
    EXPECT_TRUE(cases[0].series[0].cycles.empty());
    EXPECT_EQ(*open_results(path_, access)->integer("PRAGMA user_version"),
              static_cast<std::int64_t>(schema_steps().size()));
    Store writer = open(Access::kWrite);
    CaseRecord made = a_case("benchmarks[1]", 10);
    made.series[0].cycles.assign(8, 20'000);
    EXPECT_EQ(keep(writer, a_run(), {made}), 6) << "numbers of runs are not used again";
    EXPECT_EQ(all_cases()[1].series[0].cycles.size(), 8u);
    EXPECT_TRUE(writer.taxes_of_run(5)->empty());
    RunRecord of_taxes = a_run();
    ASSERT_TRUE(writer.add(of_taxes, a_tax("all-reduce benchmarks[0]")).ok());
    EXPECT_EQ(writer.taxes_of_run(of_taxes.id)->size(), 1u);
  }
}

TEST_F(StoreTest, RefusesANewerSchema) {
  EXPECT_EQ(keep(*std::make_unique<Store>(open()), a_run(), {a_case("benchmarks[0]", 10)}), 1);
  const auto newest = static_cast<std::int64_t>(schema_steps().size());
  {
    auto database = open_results(path_, Access::kWrite);
    ASSERT_TRUE(database->run(("PRAGMA user_version = " + std::to_string(newest + 1)).c_str()).ok());
  }
  const std::string expected =
      "is of a newer farwarp: its schema is " + std::to_string(newest + 1) + "; allowed: 1.." + std::to_string(newest);
  for (const Access access : {Access::kRead, Access::kWrite, Access::kCreate}) EXPECT_EQ(refusal(access), expected);
}

TEST_F(StoreTest, RefusesFilesThatAreNotItsOwn) {
  std::ofstream(path_) << std::string(5000, 'x');
  EXPECT_EQ(refusal(), "file is not a database");
  EXPECT_EQ(refusal(Access::kRead), "file is not a database");
  std::filesystem::remove(path_);
  {
    auto other = Database::open(path_, Access::kCreate);
    ASSERT_TRUE(other.ok() && other->run("CREATE TABLE songs (title TEXT)").ok());
  }
  EXPECT_EQ(refusal(), "is another program's database; allowed: one of farwarp's results");
  std::filesystem::remove(path_);
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_EQ(refusal(), "is a pipe; allowed: a regular file");
  EXPECT_EQ(refusal(Access::kRead), "is a pipe; allowed: a regular file");
  EXPECT_EQ(refusal(folder_.string(), Access::kCreate), "is a folder; allowed: a regular file");
}

/// A file that was cut or overwritten is refused where that is noticed, and nothing crashes.
TEST_F(StoreTest, RefusesACorruptFile) {
  {
    Store store = open();
    std::vector<CaseRecord> cases;
    for (int i = 0; i < 50; ++i) cases.push_back(a_case(std::to_string(i), 10, "aaaa", 500));
    EXPECT_EQ(keep(store, a_run(), cases), 1);
  }
  const auto bytes = std::filesystem::file_size(path_);
  const std::string cut = (folder_ / "cut.db").string(), noise = (folder_ / "noise.db").string();
  std::filesystem::copy(path_, cut);
  std::filesystem::resize_file(cut, bytes / 2);
  std::filesystem::copy(path_, noise);
  {
    std::fstream file(noise, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(4096);
    file << std::string(bytes - 4096, '\x5a');
  }
  for (const std::string& path : {cut, noise}) {
    Status status;
    auto store = Store::open(path, Access::kRead);
    status = store.status();
    if (store.ok()) {
      auto cases = store->cases_of_suite("mine");
      status = cases.status();
      if (cases.ok()) {
        for (CaseRecord& record : *cases) {
          for (SeriesRecord& series : record.series) {
            if (status.ok()) status = store->read_samples(series);
          }
        }
      }
    }
    EXPECT_EQ(status.message(), "database disk image is malformed") << path;
  }
}

TEST_F(StoreTest, RefusesPathsThatCannotBeWritten) {
  EXPECT_EQ(refusal((folder_ / "none" / "results.db").string(), Access::kCreate), "unable to open database file");
  EXPECT_EQ(refusal(path_, Access::kWrite), "unable to open database file") << "kWrite creates nothing";
  EXPECT_FALSE(std::filesystem::exists(path_));
  EXPECT_NE(refusal("/proc/results.db", Access::kCreate), "opened");
}

/// On media that cannot be written, SQLite cannot even make its own files beside the database.
TEST_F(StoreTest, ReadsWhatCannotBeWritten) {
  const std::string kept = (folder_ / "results #1%20?.db").string();
  path_ = kept;
  EXPECT_EQ(keep(*std::make_unique<Store>(open()), a_run(), {a_case("benchmarks[0]", 10)}), 1);
  if (geteuid() == 0) {  // to whom permissions do not apply: another user reads
    const pid_t child = in_child([&] {
      if (chmod(folder_.string().c_str(), 0555) != 0 || setuid(65534) != 0) return 1;
      auto store = Store::open(kept, Access::kRead);
      if (!store.ok() || store->runs()->size() != 1) return 2;
      return Store::open(kept, Access::kWrite).ok() ? 3 : 0;
    });
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  } else {
    chmod(folder_.string().c_str(), 0555);
    EXPECT_EQ(open(Access::kRead).runs()->size(), 1u);
    EXPECT_NE(refusal(Access::kWrite), "opened");
  }
  chmod(folder_.string().c_str(), 0755);
}

TEST(DefaultPath, IsOfTheUsersData) {
  const char* const home = std::getenv("HOME");
  const std::string kept = home != nullptr ? home : "";
  setenv("XDG_DATA_HOME", "/data", 1);
  EXPECT_EQ(default_path()->string(), "/data/farwarp/results.db");
  setenv("XDG_DATA_HOME", "relative", 1);
  setenv("HOME", "/home/somebody", 1);
  EXPECT_EQ(default_path()->string(), "/home/somebody/.local/share/farwarp/results.db");
  unsetenv("XDG_DATA_HOME");
  unsetenv("HOME");
  EXPECT_EQ(default_path().status().message(),
            "no folder to keep results in: neither XDG_DATA_HOME nor HOME is a path");
  if (home != nullptr) setenv("HOME", kept.c_str(), 1);
}

}  // namespace
}  // namespace farwarp::results
