// Dispatchers that lack one of static's ideas each, for comparison: what is the idea worth?
#pragma once

#include "farwarp/models/qwen3/decode.dev.h"

namespace farwarp::FARWARP_TARGET::qwen3 {

/// An mbarrier on which each warp that computes arrives once its part of a task's input is there.
template <int columns>
FARWARP_DEVICE Shared<Mbarrier> asked() {
  static_assert(!Target::kHasBulkCopy || Layout<columns>::kBytes + kAskedBytes <= 232448);
  return word_at<Mbarrier>(block_shared(), Layout<columns>::kBytes);
}

/// Asks the loading thread for a task's weights, keys and values.
template <int columns>
class AskingReader : public WeightReader<columns> {
 public:
  using WeightReader<columns>::WeightReader;
  FARWARP_DEVICE void input_arrived() const {
    warp_sync();
    if (lane_index() == 0) mbarrier_arrive(asked<columns>());
  }
};

/// As static, but a task's weights are not requested before its input has arrived. `barrier`: also, no step begins before all workers have ended the
/// one before. Each thread has its own.
template <int columns, bool barrier>
class OnDemand {
 public:
  template <int>
  using Reader = AskingReader<columns>;

  FARWARP_DEVICE explicit OnDemand(const Args& args) : arrived_(&args.state->arrived) {}

  FARWARP_DEVICE bool join(Call&, Shared<std::byte>) const {
    if (thread_index() == 0) mbarrier_init(asked<columns>(), kWarps);
    return true;
  }
  FARWARP_DEVICE auto worker() const { return Worker<1>::of_block(); }
  FARWARP_DEVICE void begin_step(Call&) const {}
  FARWARP_DEVICE void end_step(Call& call) {
    if constexpr (barrier) {
      tiles_finished();
      all_arrived_ += static_cast<std::uint32_t>(num_blocks());
      if (thread_index() == 0) {
        fetch_add<Order::release, Scope::device>(arrived_, 1u);
        wait_count<Scope::device>(call, arrived_, all_arrived_, Wait{.site = kSiteStep, .peer = call.view.rank});
      }
      sync_warps();
    }
  }
  FARWARP_DEVICE void end_launch() const {}
  /// [the warps that compute, and those that finish]
  FARWARP_DEVICE void tiles_finished() const {
    if constexpr (barrier) group_sync(2, kWorkerThreads + TileFinisher<columns>::kThreads);
  }
  FARWARP_DEVICE bool may_load(const Context<columns>& context, BlockWaits& waits, const Task& task) {
    const bool loads = static_cast<Kind>(task.kind) == Kind::kAttend ? TileCursor<columns>(context).exists()
                                                                     : task.matrix.stages > 0 && task.count > 0;
    if (!loads) return true;
    const std::uint32_t parity = parity_;
    parity_ ^= 1;
    return wait_mbarrier(waits, context.args.view, asked<columns>(), parity);
  }

 private:
  Global<std::uint32_t> arrived_;
  std::uint32_t all_arrived_ = 0, parity_ = 0;
};

}  // namespace farwarp::FARWARP_TARGET::qwen3
