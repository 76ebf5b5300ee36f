// The barrier of all ranks as a kernel: one block, one cell per pair of ranks and parity.
#include "farwarp/world/barrier_args.h"
#include "farwarp/world/device/call.dev.h"
#include "farwarp/world/device/wait.dev.h"

namespace farwarp::FARWARP_TARGET {

/// A rank writes a cell of parity e & 1 again in call e + 2. By then it has completed call e + 1, in which the cell's
/// reader signalled only after it had completed call e.
FARWARP_DEVICE void meet_all_ranks(const BarrierArgs& args) {
  Call call = begin_call(args.view, args.slot, 0);
  if (!call.live) return;
  const int me = args.view.rank, ranks = args.view.size;
  const auto cell_at = [&](int rank, int from) {
    return peer_address<SystemCell<std::uint64_t>>(args.view, rank, args.cells) +
           (static_cast<int>(call.epoch & 1) * ranks + from);
  };
  signal_after_block(
      ranks, [&](int rank) { return cell_at(rank, me); }, [&](int) { return tagged(call.epoch, 0); });
  if (const int from = thread_index(); from < ranks) {
    std::uint32_t ignored = 0;
    wait_tagged(call, Global<SystemCell<std::uint64_t>>(cell_at(me, from).raw), call.epoch, ignored,
                Wait{.site = 0, .peer = from});
  }
  end_call(call, 0);
}

}  // namespace farwarp::FARWARP_TARGET

FARWARP_KERNEL(world_barrier, farwarp::BarrierArgs, farwarp::kBarrierThreads) {
  farwarp::FARWARP_TARGET::meet_all_ranks(args);
}
