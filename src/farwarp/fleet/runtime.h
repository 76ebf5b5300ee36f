// The host's side of the runtime: what its kernels read beside a model's weights, and how each dispatcher launches
// them.
#pragma once

#include <cstdint>

#include "farwarp/fleet/dispatcher.h"
#include "farwarp/fleet/graph.h"
#include "farwarp/fleet/launch.h"
#include "farwarp/runtime/device_memory.h"
#include "farwarp/world/host/world.h"

namespace farwarp::fleet {

inline constexpr std::uint8_t kNoTag = 0xff;  ///< bytes of a tag that no token has

/// What a model's plan gives the runtime.
struct RuntimePlan {
  Graph graph;
  int columns = 1, rows = 0;  ///< of the hidden vector
  int workers = 0, threads = 0, shared_bytes = 0;
  bool gang = false;  ///< whether the gang dispatcher may launch it
};

class Runtime {
 public:
  Runtime() = default;
  /// Local. `packets_at`: where the graph's packets begin in the heap, whose bytes are kNoTag.
  static Result<Runtime> create(World& world, std::uint32_t slot, RuntimePlan plan, std::int64_t packets_at,
                                Stream stream);

  /// The next token is the first. No packet may have a tag: World::recover() has filled them, or they are new.
  Status reset(Stream stream) const;
  /// For a model's arguments.
  Launch launch(const std::byte* weights, float epsilon) const;
  const DeviceMemory& residual() const { return residual_; }
  int steps() const { return static_cast<int>(plan_.graph.steps.size()); }

  /// Launches `tokens` tokens of `args`, whose `launch` is launch(). `kernel`: that of the dispatcher.
  /// next_token(args): what changes from token to token, where each has launches of its own.
  template <class Args, class NextToken>
  Status run(FleetDispatcher dispatcher, const Kernel& kernel, Args args, int tokens, const NextToken& next_token,
             Stream stream) const {
    Launch& launch = args.launch;
    if (dispatcher == FleetDispatcher::kGang) launch.tasks = gang_tasks_.as<const Task>();
    if (dispatcher != FleetDispatcher::kGraph) {
      launch.tokens = tokens;
      return farwarp::launch(world_->device(), kernel, config(plan_.workers), args, stream);
    }
    launch.tokens = 1;
    for (int token = 0; token < tokens; ++token, next_token(args)) {
      for (int step = 0; step < steps(); ++step) {
        launch.first_task = step;
        launch.end_task = step + 1;
        launch.ends_token = step + 1 == steps() ? 1 : 0;
        // The last step has one worker: others might read the state after that one has written it.
        const LaunchConfig shape = config(launch.ends_token != 0 ? 1 : plan_.workers);
        if (Status status = farwarp::launch(world_->device(), kernel, shape, args, stream); !status.ok()) return status;
      }
    }
    return {};
  }

 private:
  LaunchConfig config(int workers) const {
    return {workers, plan_.threads, static_cast<std::size_t>(plan_.shared_bytes)};
  }
  Status copy_tasks(const Graph& graph, std::int64_t packets_at, const DeviceMemory& to, Stream stream) const;

  World* world_ = nullptr;
  std::uint32_t slot_ = 0;
  RuntimePlan plan_;
  DeviceMemory tasks_, residual_, tag_;
  DeviceMemory plain_;                    ///< the plain buffers of the graph, or of gang's
  DeviceMemory step_cells_;               ///< of streamed vectors
  DeviceMemory gang_tasks_, gang_cells_;  ///< of gang
};

}  // namespace farwarp::fleet
