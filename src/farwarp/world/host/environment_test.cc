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

TEST(Environment, OneRankNeedsNoRendezvous) {
  auto environment = read({{"RANK", "0"}, {"WORLD_SIZE", "1"}});
  ASSERT_TRUE(environment.ok()) << environment.status().to_string();
  EXPECT_EQ(environment->size, 1);
}

TEST(Environment, NamesTheVariableItsValueAndWhatIsAllowed) {
  expect_refused({{"RANK", "0"}}, "WORLD_SIZE is not set; allowed: 1 to 8");
  expect_refused({{"WORLD_SIZE", "2"}}, "RANK is not set; allowed: 0 to 1");
  expect_refused({{"OMPI_COMM_WORLD_RANK", "0"}}, "OMPI_COMM_WORLD_SIZE is not set");
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
