// Ranks exchange the times of their devices' clocks: rank 0 with each other rank in turn, several times.
#include "farwarp/world/clock_exchange_args.h"
#include "farwarp/world/device/call.dev.h"
#include "farwarp/world/device/wait.dev.h"

namespace farwarp::FARWARP_TARGET {

/// [thread] A cell is written again in the same round of a later call. Its reader has then left this call: the writer
/// waited for its answer, but for the last one, and a call has several rounds.
FARWARP_DEVICE void exchange_clocks(const ClockExchangeArgs& args, Call& call) {
  using Cell = SystemCell<std::uint64_t>;
  const int me = args.view.rank;
  const auto cell_at = [&](int rank, int from, int round) {
    return peer_address<Cell>(args.view, rank, args.cells) + (from * kClockRounds + round);
  };
  const auto receive = [&](int from, int round) {
    std::uint32_t ignored = 0;
    return wait_tagged(call, Global<Cell>(cell_at(me, from, round).raw), call.epoch, ignored,
                       Wait{.site = 0, .peer = from, .depth = static_cast<std::uint32_t>(me == 0 ? 1 : 0)});
  };
  const Global<std::uint64_t> times(args.times);
  for (int peer = me == 0 ? 1 : 0; peer < (me == 0 ? args.view.size : 1); ++peer) {
    for (int round = 0; round < kClockRounds; ++round) {
      if (me == 0) {
        const std::uint64_t sent = nanoseconds();
        signal_cell<Order::release>(cell_at(peer, me, round), tagged(call.epoch, 0));
        if (!receive(peer, round)) return;
        store(times + (peer * kClockRounds + round) * 2, sent);
        store(times + ((peer * kClockRounds + round) * 2 + 1), nanoseconds());
      } else {
        if (!receive(0, round)) return;
        store(times + round, nanoseconds());
        signal_cell<Order::release>(cell_at(0, me, round), tagged(call.epoch, 0));
      }
    }
  }
}

}  // namespace farwarp::FARWARP_TARGET

FARWARP_KERNEL(world_clock_exchange, farwarp::ClockExchangeArgs, 64) {
  using namespace farwarp::FARWARP_TARGET;
  Call call = begin_call(args.view, args.slot, 0);
  if (!call.live) return;
  if (thread_index() == 0) exchange_clocks(args, call);
  end_call(call, 0);
}
