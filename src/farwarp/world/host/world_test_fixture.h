// For tests: Worlds of threads, on every target that this machine has enough devices of.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>

#include "farwarp/world/host/bootstrap.h"
#include "farwarp/world/host/world.h"

namespace farwarp {

/// `Param`: a TargetKind, or a tuple that has one.
template <class Param>
class WorldTestOf : public ::testing::TestWithParam<Param> {
 protected:
  static TargetKind target() {
    if constexpr (std::is_same_v<Param, TargetKind>)
      return WorldTestOf::GetParam();
    else
      return std::get<TargetKind>(WorldTestOf::GetParam());
  }
  static bool is_real() { return !is_emulated(target()); }

  static WorldOptions options() {
    WorldOptions options;
    options.target = target();
    options.heap_bytes = 1 << 20;
    return options;
  }

  /// Runs `body` as every rank; skips the test if there are fewer devices than ranks.
  static void on_ranks(int size, const std::function<void(std::shared_ptr<Bootstrap>)>& body) {
    if (!Device::has_kernels(target())) GTEST_SKIP() << "no kernels in this build";
    if (const int devices = Device::count(target()); devices < size && is_real()) {
      GTEST_SKIP() << "needs " << size << " devices, this machine has " << devices;
    }
    const Status status = run_ranks(size, [&](std::shared_ptr<Bootstrap> bootstrap) {
      body(std::move(bootstrap));
      return Status{};
    });
    EXPECT_TRUE(status.ok()) << status.to_string();
  }

  /// Runs `body` with a World on every rank; the World is destroyed when the body returns.
  static void on_worlds(int size, const WorldOptions& options, const std::function<void(World&)>& body) {
    on_ranks(size, [&](std::shared_ptr<Bootstrap> bootstrap) {
      auto world = World::create(std::move(bootstrap), options);
      ASSERT_TRUE(world.ok()) << world.status().to_string();
      body(*world);
    });
  }

  /// The same with a stream on every rank, which is destroyed when the body returns.
  static void on_streams(int size, const WorldOptions& options, const std::function<void(World&, Stream)>& body) {
    on_worlds(size, options, [&](World& world) {
      const auto stream = world.device().create_stream();
      ASSERT_TRUE(stream.ok()) << stream.status().to_string();
      body(world, *stream);
      world.device().destroy_stream(*stream);
    });
  }
};

using WorldTestBase = WorldTestOf<TargetKind>;

inline constexpr TargetKind kAllTargets[] = {TargetKind::kEmuSm90, TargetKind::kEmuGfx942, TargetKind::kCuda,
                                             TargetKind::kHip};
inline std::string name_of_target(const ::testing::TestParamInfo<TargetKind>& info) {
  return std::string(name_of(info.param));
}

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace farwarp
