// For tests of operators: how calls must end if something is wrong with the World or with their streams. A `Rank` is
// one rank's operator and what it needs: `world`, `stream`, `launch(stream)`, and `expect_right()`, which calls it once
// more and checks the result.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>

#include "farwarp/world/host/world.h"

namespace farwarp {

/// Waits for `stream`. Returns the World's status if it is not ok, since it says what kernels found.
inline Status drain(World& world, Stream stream) {
  const Status drained = world.device().synchronize(stream, 60'000'000'000);
  return world.status().ok() ? drained : world.status();
}

/// Collective: a barrier.
inline void wait_for_all_ranks(World& world) {
  ASSERT_TRUE(world.bootstrap().allgather({std::byte{1}}, std::chrono::minutes(1)).ok());
}

/// Collective: a call in an aborted World ends with kAborted, and after recover() the next call is right.
template <class Rank>
void expect_aborted_until_recovered(Rank& rank) {
  if (rank.world.rank() == 0) rank.world.abort();
  wait_for_all_ranks(rank.world);  // the other ranks may learn of the abort only from their next kernel
  Status status = rank.launch(rank.stream);
  if (status.ok()) status = drain(rank.world, rank.stream);
  EXPECT_EQ(status.code(), StatusCode::kAborted) << status.to_string();
  ASSERT_TRUE(rank.world.recover({rank.stream}).ok());
  rank.expect_right();
}

/// The outcomes of a rank's two calls in two streams at once.
struct TwoStreams {
  Status second_launch;  ///< not ok if the World has already recorded the first call's misuse
  bool told = false;     ///< misuse was reported for one of the calls
};

/// Collective: two calls in two streams at once, which is misuse, both end: right, or with an error. After recover()
/// the next is right.
template <class Rank>
void expect_two_streams_end(Rank& rank, TwoStreams& seen) {
  const auto second = rank.world.device().create_stream();
  ASSERT_TRUE(second.ok());
  EXPECT_TRUE(rank.launch(rank.stream).ok());
  seen.second_launch = rank.launch(*second);
  const Status statuses[] = {drain(rank.world, rank.stream), drain(rank.world, *second)};
  for (const Status& status : statuses) {
    const bool known = status.code() == StatusCode::kMisuse || status.code() == StatusCode::kAborted;
    EXPECT_TRUE(status.ok() || known) << status.to_string();
    seen.told = seen.told || known;
  }
  ASSERT_TRUE(rank.world.recover({rank.stream, *second}).ok());
  rank.expect_right();
  rank.world.device().destroy_stream(*second);
}

}  // namespace farwarp
