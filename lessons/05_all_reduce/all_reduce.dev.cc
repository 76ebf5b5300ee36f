// Lesson 05: the kernel of the all-reduce. README.md has the protocol's drawing and its argument.
#include "args.h"
#include "farwarp/world/device/call.dev.h"
#include "farwarp/world/device/wait.dev.h"

namespace farwarp::FARWARP_TARGET {

using lessons::all_reduce::Args;

struct AllReduce {
  const Args& args;
  Call& call;

  FARWARP_DEVICE int parity() const { return static_cast<int>(call.epoch & 1); }
  /// In `rank`'s heap: what `from` sends it in this call.
  FARWARP_DEVICE Peer<float> vector_at(int rank, int from) const {
    return peer_address<float>(args.view, rank, args.vectors) +
           std::int64_t{parity() * args.view.size + from} * args.elements;
  }
  /// Guards this block's part of that vector.
  FARWARP_DEVICE Peer<SystemCell<std::uint64_t>> flag_at(int rank, int from) const {
    return peer_address<SystemCell<std::uint64_t>>(args.view, rank, args.flags) +
           ((parity() * args.view.size + from) * num_blocks() + block_index());
  }

  /// [block] Puts this rank's elements from `first` to `last` into every rank's memory, and signals.
  FARWARP_DEVICE void send(int first, int last) const {
    const int me = args.view.rank;
    for (int i = first + thread_index(); i < last; i += num_threads()) {
      const float value = load(Global<const float>(args.in) + i);
      for (int rank = 0; rank < args.view.size; ++rank) store(vector_at(rank, me) + i, value);
    }
    signal_after_block(
        args.view.size, [&](int rank) { return flag_at(rank, me); }, [&](int) { return tagged(call.epoch, 0); });
  }

  /// [block] Waits for the same elements of all ranks, and adds them up.
  FARWARP_DEVICE void add_up(int first, int last) const {
    const int me = args.view.rank;
    if (const int from = thread_index(); from < args.view.size) {
      std::uint32_t unused = 0;
      wait_tagged(call, Global<SystemCell<std::uint64_t>>(flag_at(me, from).raw), call.epoch, unused,
                  Wait{.site = lessons::all_reduce::kSiteVector, .peer = from});
    }
    if (block_any(!call.live)) return;
    for (int i = first + thread_index(); i < last; i += num_threads()) {
      float sum = 0;
      for (int from = 0; from < args.view.size; ++from) sum += load(Global<const float>(vector_at(me, from).raw) + i);
      store(Global<float>(args.out) + i, sum);
    }
  }
};

FARWARP_DEVICE void all_reduce(const Args& args) {
  Call call = begin_call(args.view, args.slot, 0);
  if (!call.live) return;
  const AllReduce operation{args, call};
  const auto boundary = [&](int block) { return static_cast<int>(std::int64_t{args.elements} * block / num_blocks()); };
  const int first = boundary(block_index()), last = boundary(block_index() + 1);
  operation.send(first, last);
  operation.add_up(first, last);
  end_call(call, 0);
}

}  // namespace farwarp::FARWARP_TARGET

FARWARP_KERNEL(lesson_05_all_reduce, farwarp::lessons::all_reduce::Args, farwarp::lessons::all_reduce::kThreads) {
  farwarp::FARWARP_TARGET::all_reduce(args);
}
