// A dispatcher for streamed vectors: each worker has its list of tasks, and a step begins when all workers have ended
// the one before. Loading threads run ahead of steps with weights, but not with vectors. STREAM.md draws it and says
// why that is ordered.
#pragma once

#include "farwarp/fleet/launch.h"
#include "farwarp/fleet/sites.h"
#include "farwarp/fleet/weights.dev.h"

namespace farwarp::FARWARP_TARGET::fleet {

class StreamDispatcher {
 public:
  /// `counts`: not in a launch of one step, which ends with it.
  FARWARP_DEVICE StreamDispatcher(StepCells* cells, PlainBuffers buffers, bool counts)
      : ended_(&cells->ended), ended_before_(&cells->ended_before), buffers_(buffers), counts_(counts) {}

  FARWARP_DEVICE bool join(Call&, Shared<std::byte>) {
    next_ = load(ended_before_);
    return true;
  }
  template <int columns>
  FARWARP_DEVICE Worker<columns> worker() const {
    return {block_index(), buffers_};
  }

  /// [thread] Waits until all workers have ended the step before the next one of the launch.
  FARWARP_DEVICE void wait_step(Call& call) const {
    if (counts_) wait_count<Scope::device>(call, ended_, next_, Wait{.site = kSiteStep, .peer = -1});
  }
  FARWARP_DEVICE void advance() { next_ += static_cast<std::uint32_t>(num_blocks()); }
  /// [the warps that compute] Begins the next step.
  FARWARP_DEVICE void begin_step(Call& call) {
    if (thread_index() == 0) wait_step(call);
    advance();
    sync_warps();
  }
  /// [the warps that compute] The worker's task of the step has ended.
  FARWARP_DEVICE void end_step(const Call&) const {
    drain_stores();
    sync_warps();
    if (counts_ && thread_index() == 0) fetch_add<Order::release, Scope::device>(ended_, 1u);
  }
  /// [thread] One thread of the first worker, after the last step: all workers have long read the old value.
  FARWARP_DEVICE void end_launch() const {
    if (counts_) store(ended_before_, next_);
  }

 private:
  Global<std::uint32_t> ended_, ended_before_;
  PlainBuffers buffers_;
  std::uint32_t next_ = 0;  ///< `ended` when the next step may begin
  bool counts_;
};

}  // namespace farwarp::FARWARP_TARGET::fleet
