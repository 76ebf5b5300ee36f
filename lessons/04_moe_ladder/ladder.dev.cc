// Lesson 04: the MoE all-to-all in seven rungs (README.md). Each kernel is a list of what its blocks do, in order.
#include "combine.dev.h"

namespace farwarp::FARWARP_TARGET::ladder {

/// Rungs below kEpochs: clears all counters and cells. A barrier of all ranks follows.
FARWARP_DEVICE void reset(const Args& args) {
  const auto clear = [&](auto memory, std::int64_t count, const auto& zero) {
    for (std::int64_t i = block_index() * num_threads() + thread_index(); i < count;
         i += num_blocks() * num_threads()) {
      zero(memory + i);
    }
  };
  clear(own_address<std::uint32_t>(args.view, args.workspace + args.layout.counters),
        (args.layout.cells - args.layout.counters) / 4, [](auto word) { store(word, 0u); });
  clear(own_address<Cell>(args.view, args.workspace + args.layout.cells),
        (args.layout.cells_end - args.layout.cells) / 8, [](auto cell) { store<Order::relaxed>(cell, 0u); });
}

/// Runs `parts` as phase `phase` of the call; phase `next` follows.
template <int rung, class Parts>
FARWARP_DEVICE void run_phase(const Args& args, std::uint32_t phase, std::uint32_t next, const Parts& parts) {
  Call call = begin_call(args.view, args.slot, phase);
  if (!call.live) return;
  const Memory<rung> memory(args, call);
  parts(call, memory);
  end_call(call, next);
}

template <int rung>
FARWARP_DEVICE void run_dispatch(const Args& args) {
  run_phase<rung>(args, 0, 1, [](Call& call, const Memory<rung>& memory) { dispatch(call, memory); });
}
template <int rung>
FARWARP_DEVICE void run_expert(const Args& args) {
  run_phase<rung>(args, 1, 2, [](Call& call, const Memory<rung>& memory) { apply_experts(call, memory); });
}
template <int rung>
FARWARP_DEVICE void run_combine(const Args& args) {
  run_phase<rung>(args, 2, 0, [](Call& call, const Memory<rung>& memory) { combine(call, memory); });
}
template <int rung>
FARWARP_DEVICE void run_fused(const Args& args) {
  run_phase<rung>(args, 0, 0, [](Call& call, const Memory<rung>& memory) {
    dispatch(call, memory);
    apply_experts(call, memory);
    combine(call, memory);
  });
}

}  // namespace farwarp::FARWARP_TARGET::ladder

namespace {
namespace ladder = farwarp::FARWARP_TARGET::ladder;
using farwarp::lessons::ladder::Args;
using farwarp::lessons::ladder::kThreads;
}  // namespace

FARWARP_KERNEL(lesson_04_reset, Args, kThreads) { ladder::reset(args); }
FARWARP_KERNEL(lesson_04_dispatch_1, Args, kThreads) { ladder::run_dispatch<1>(args); }
FARWARP_KERNEL(lesson_04_expert_1, Args, kThreads) { ladder::run_expert<1>(args); }
FARWARP_KERNEL(lesson_04_combine_1, Args, kThreads) { ladder::run_combine<1>(args); }
FARWARP_KERNEL(lesson_04_dispatch_2, Args, kThreads) { ladder::run_dispatch<2>(args); }
FARWARP_KERNEL(lesson_04_expert_2, Args, kThreads) { ladder::run_expert<2>(args); }
FARWARP_KERNEL(lesson_04_combine_2, Args, kThreads) { ladder::run_combine<2>(args); }
FARWARP_KERNEL(lesson_04_fused_3, Args, kThreads) { ladder::run_fused<3>(args); }
FARWARP_KERNEL(lesson_04_fused_4, Args, kThreads) { ladder::run_fused<4>(args); }
FARWARP_KERNEL(lesson_04_fused_5, Args, kThreads) { ladder::run_fused<5>(args); }
FARWARP_KERNEL(lesson_04_fused_6, Args, kThreads) { ladder::run_fused<6>(args); }
FARWARP_KERNEL(lesson_04_fused_7, Args, kThreads) { ladder::run_fused<7>(args); }
