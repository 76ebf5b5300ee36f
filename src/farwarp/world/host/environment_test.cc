#include "farwarp/world/host/environment.h"

#include <gtest/gtest.h>

#include <map>

namespace farwarp {
namespace {

Result<RankEnvironment> read(const std::map<std::string, std::string>& variables) {
  return read_rank_environment([&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

void expect_refused(const std::map<std::string, std::string>& variables, const std::string& message_start) {
  auto environment = read(variables);
  ASSERT_FALSE(environment.ok()) << "expected: " << message_start;
  EXPECT_EQ(environment.status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(environment.status().message().starts_with(message_start)) << environment.status().message();
}

TEST(Environment, OfFarwarpLaunch) {
  auto environment =
      read({{"RANK", "3"}, {"WORLD_SIZE", "8"}, {"FARWARP_RENDEZVOUS", "job"}, {"MASTER_ADDR", "elsewhere.invalid"}});
  ASSERT_TRUE(environment.ok()) << environment.status().to_string();
  EXPECT_EQ(environment->rank, 3);
  EXPECT_EQ(environment->size, 8);
  EXPECT_EQ(environment->rendezvous, "job");
}

TEST(Environment, OfTorchrun) {
  for (const char* host : {"localhost", "127.0.0.1"}) {
    auto environment = read({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", host}, {"MASTER_PORT", "29500"}});
    ASSERT_TRUE(environment.ok()) << environment.status().to_string();
    EXPECT_EQ(environment->rendezvous, "port-29500");
  }
}

TEST(Environment, OfMpirun) {
  auto environment =
      read({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "4"}, {"PMIX_NAMESPACE", "prterun-7@1"}});
  ASSERT_TRUE(environment.ok()) << environment.status().to_string();
  EXPECT_EQ(environment->rank, 1);
  EXPECT_EQ(environment->size, 4);
  EXPECT_EQ(environment->rendezvous, "mpi-prterun-7@1");
}

using Variables = std::map<std::string, std::string>;

Variables both(Variables one, const Variables& other) {
  one.insert(other.begin(), other.end());
  return one;
}

GetEnv of(const Variables& variables) {
  return [&variables](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
}

TEST(Environment, OfAllOtherLaunchers) {
  const Variables name{{"FARWARP_RENDEZVOUS", "job"}};
  const std::pair<Variables, std::string> launched[] = {
      {both(name, {{"PMI_RANK", "2"}, {"PMI_SIZE", "3"}}), "job"},
      {{{"PMI_RANK", "2"}, {"PMI_SIZE", "3"}, {"PMI_JOBID", "71.0"}}, "mpi-71.0"},
      {both(name, {{"MV2_COMM_WORLD_RANK", "2"}, {"MV2_COMM_WORLD_SIZE", "3"}}), "job"},
      {both(name, {{"SLURM_PROCID", "2"}, {"SLURM_NTASKS", "3"}}), "job"},
      {{{"SLURM_PROCID", "2"},
        {"SLURM_NTASKS", "8"},  // of the allocation; this step has fewer
        {"SLURM_STEP_NUM_TASKS", "3"},
        {"SLURM_STEP_NUM_NODES", "1"},
        {"SLURM_JOB_ID", "71"},
        {"SLURM_STEP_ID", "4"},
        {"ENVIRONMENT", "BATCH"}},
       "slurm-71.4"}};
  for (const auto& [variables, rendezvous] : launched) {
    EXPECT_TRUE(has_ranks(of(variables)));
    const auto environment = read(variables);
    ASSERT_TRUE(environment.ok()) << environment.status().to_string();
    EXPECT_EQ(environment->rank, 2);
    EXPECT_EQ(environment->size, 3);
    EXPECT_EQ(environment->rendezvous, rendezvous);
  }
}

/// A batch script, the shell of an allocation and `srun --pty bash` are one process, whatever the allocation is for.
TEST(Environment, WhatSlurmHasNotStartedAsATaskIsNoRank) {
  const Variables batch{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}, {"ENVIRONMENT", "BATCH"}};
  const Variables shell{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}, {"SLURM_STEP_ID", "4294967290"}};
  const Variables alone{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}, {"SLURM_STEP_ID", "0"}};
  const Variables by_mpirun{{"OMPI_COMM_WORLD_RANK", "3"}, {"OMPI_COMM_WORLD_SIZE", "4"}, {"PMIX_NAMESPACE", "n"}};
  for (const Variables& variables : {Variables{}, {{"SLURM_NTASKS", "8"}}, batch, shell, alone}) {
    EXPECT_FALSE(has_ranks(of(variables)));
    const auto environment = read(both(variables, by_mpirun));
    ASSERT_TRUE(environment.ok()) << environment.status().to_string();
    EXPECT_EQ(environment->rank, 3);
  }
}

TEST(Environment, LaunchersThatDisagreeAreNamed) {
  const Variables name{{"FARWARP_RENDEZVOUS", "job"}};
  const Variables torchrun = both(name, {{"RANK", "0"}, {"WORLD_SIZE", "2"}});
  EXPECT_TRUE(read(both(torchrun, {{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}})).ok());
  // One process of a launcher has started another.
  for (const Variables& outer : {Variables{{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}},
                                 Variables{{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}},
                                 Variables{{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}}})
    EXPECT_TRUE(read(both(torchrun, outer)).ok());
  expect_refused(both(torchrun, {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}),
                 "RANK is 0 and WORLD_SIZE is 2 (torchrun or farwarp launch), but PMI_RANK is 1 and PMI_SIZE is 2 "
                 "(MPICH or Intel MPI); allowed: the same of both");
  expect_refused(both(torchrun, {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}}),
                 "RANK is 0 and WORLD_SIZE is 2 (torchrun or farwarp launch), but SLURM_PROCID is 0 and SLURM_NTASKS "
                 "is 4 (srun)");
  expect_refused(both({{"RANK", "0"}, {"WORLD_SIZE", "1"}}, {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}),
                 "RANK is 0 and WORLD_SIZE is 1 (torchrun or farwarp launch), but PMI_RANK is 1");
  expect_refused({{"MV2_COMM_WORLD_RANK", "0"},
                  {"MV2_COMM_WORLD_SIZE", "2"},
                  {"OMPI_COMM_WORLD_RANK", "1"},
                  {"OMPI_COMM_WORLD_SIZE", "2"}},
                 "OMPI_COMM_WORLD_RANK is 1 and OMPI_COMM_WORLD_SIZE is 2 (Open MPI), but MV2_COMM_WORLD_RANK is 0");
}

TEST(Environment, OneRankNeedsNoRendezvous) {
  auto environment = read({{"RANK", "0"}, {"WORLD_SIZE", "1"}});
  ASSERT_TRUE(environment.ok()) << environment.status().to_string();
  EXPECT_EQ(environment->size, 1);
}

TEST(Environment, NamesTheVariableItsValueAndWhatIsAllowed) {
  expect_refused({{"RANK", "0"}}, "WORLD_SIZE is not set; allowed: 1 to 8");
  expect_refused({{"WORLD_SIZE", "2"}}, "RANK is not set; allowed: 0 to 1");
  expect_refused({{"OMPI_COMM_WORLD_RANK", "0"}}, "OMPI_COMM_WORLD_SIZE is not set");
  expect_refused({{"PMI_SIZE", "2"}}, "PMI_RANK is not set; allowed: 0 to 1");
  expect_refused({{"MV2_COMM_WORLD_RANK", "0"}}, "MV2_COMM_WORLD_SIZE is not set");
  expect_refused({{"SLURM_PROCID", "0"}}, "SLURM_NTASKS is not set; allowed: 1 to 8");
  expect_refused({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "two"}}, "SLURM_NTASKS is 'two'; allowed: 1 to 8");
  expect_refused({{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "9"}, {"SLURM_NTASKS", "2"}},
                 "SLURM_STEP_NUM_TASKS is '9'; allowed: 1 to 8");
  expect_refused({{"RANK", "0"}, {"WORLD_SIZE", "two"}}, "WORLD_SIZE is 'two'; allowed: 1 to 8");
  expect_refused({{"RANK", "0"}, {"WORLD_SIZE", ""}}, "WORLD_SIZE is ''; allowed: 1 to 8");
  expect_refused({{"RANK", "0"}, {"WORLD_SIZE", "9"}}, "WORLD_SIZE is '9'; allowed: 1 to 8");
  expect_refused({{"RANK", "0"}, {"WORLD_SIZE", "0"}}, "WORLD_SIZE is '0'; allowed: 1 to 8");
  expect_refused({{"RANK", "1x"}, {"WORLD_SIZE", "2"}}, "RANK is '1x'; allowed: 0 to 1");
  expect_refused({{"RANK", "-1"}, {"WORLD_SIZE", "2"}}, "RANK is '-1'; allowed: 0 to 1");
  expect_refused({{"RANK", "2"}, {"WORLD_SIZE", "2"}}, "RANK is '2'; allowed: 0 to 1");
  expect_refused({{"RANK", "99999999999999999999"}, {"WORLD_SIZE", "2"}}, "RANK is '99999999999999999999'");
}

TEST(Environment, NeedsARendezvous) {
  const std::map<std::string, std::string> ranks{{"RANK", "0"}, {"WORLD_SIZE", "2"}};
  const auto with = [&](std::map<std::string, std::string> more) {
    more.insert(ranks.begin(), ranks.end());
    return more;
  };
  expect_refused(ranks, "FARWARP_RENDEZVOUS is not set");
  expect_refused({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}}, "FARWARP_RENDEZVOUS is not set");
  expect_refused({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}}, "FARWARP_RENDEZVOUS is not set");
  expect_refused({{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_STEP_NUM_NODES", "2"}},
                 "SLURM_STEP_NUM_NODES is '2'; allowed: 1");
  expect_refused(with({{"FARWARP_RENDEZVOUS", ""}}), "FARWARP_RENDEZVOUS is ''");
  expect_refused(with({{"MASTER_ADDR", "127.0.0.1"}}), "MASTER_PORT is not set; allowed: 1 to 65535");
  expect_refused(with({{"MASTER_PORT", "1234"}}), "MASTER_ADDR is not set but MASTER_PORT is");
  expect_refused(with({{"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "70000"}}),
                 "MASTER_PORT is '70000'; allowed: 1 to 65535");
  // 192.0.2.0/24 is reserved for documentation: no host has it.
  expect_refused(with({{"MASTER_ADDR", "192.0.2.1"}, {"MASTER_PORT", "1234"}}),
                 "MASTER_ADDR is '192.0.2.1'; allowed: a name or address of this host");
}

}  // namespace
}  // namespace farwarp
