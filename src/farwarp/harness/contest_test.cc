#include "farwarp/harness/contest.h"

#include <gtest/gtest.h>

#include "farwarp/harness/device_buffer.h"

namespace farwarp::harness {
namespace {

constexpr int kSets = 25;  // more than the calls of a train

// Each set is one byte of `bytes`. `prepare` poisons it, `step` writes its number.
Status time_in_every_way(World& world, Stream stream, DeviceTimer& timer, const DeviceBuffer& bytes) {
  std::size_t set = 0;
  const auto fill = [&](std::uint8_t value) {
    return world.device().fill(static_cast<std::byte*>(bytes.get()) + set, value, 1, stream);
  };
  Contest contest(
      world, stream, timer, kSets, kSets, [&](int used) { set = static_cast<std::size_t>(used); },
      [&](bool) { return fill(kPoisonByte); });
  const Contender contender{.name = "fill", .step = [&] { return fill(static_cast<std::uint8_t>(set)); }};
  const auto expect_all_written = [&](const char* where) {
    std::vector<std::uint8_t> found(kSets);
    EXPECT_TRUE(bytes.download(found.data(), kSets, stream).ok());
    for (int i = 0; i < kSets; ++i) EXPECT_EQ(found[static_cast<std::size_t>(i)], i) << where;
  };
  const auto measured = contest.in_turn({contender, contender});
  if (!measured.ok()) return measured.status();
  EXPECT_EQ(measured->size(), 2u);
  EXPECT_EQ(set, kSets - 1u) << "the last sample's";
  expect_all_written("in turn");
  if (const auto graph_us = contest.from_graphs(contender); !graph_us.ok()) return graph_us.status();
  expect_all_written("from graphs");
  const auto train_us = contest.in_train(contender);
  if (!train_us.ok()) return train_us.status();
  expect_all_written("in a train");
  return {};
}

TEST(Contest, WritesEverySetThatItPoisons) {
  WorldOptions options;
  options.target = TargetKind::kEmuSm90;
  options.heap_bytes = 1 << 16;
  const Status status = run_ranks(2, [&](std::shared_ptr<Bootstrap> bootstrap) -> Status {
    auto world = World::create(std::move(bootstrap), options);
    if (!world.ok()) return world.status();
    const auto stream = world->device().create_stream();
    if (!stream.ok()) return stream.status();
    auto timer = DeviceTimer::create(*world, *stream);
    if (!timer.ok()) return timer.status();
    const auto bytes = DeviceBuffer::create(world->device(), kSets);
    if (!bytes.ok()) return bytes.status();
    const Status timed = time_in_every_way(*world, *stream, *timer, *bytes);
    const Status closed = timer->close();
    world->device().destroy_stream(*stream);
    return timed.ok() ? closed : timed;
  });
  EXPECT_TRUE(status.ok()) << status.to_string();
}

}  // namespace
}  // namespace farwarp::harness
