#include "farwarp/world/device/call.dev.h"
#include "farwarp/world/device/wait.dev.h"
#include "farwarp/world/host/exchange_test_args.h"

namespace farwarp::FARWARP_TARGET {

FARWARP_DEVICE void exchange_numbers(const ExchangeArgs& args) {
  Call call = begin_call(args.view, args.slot, 0);
  if (!call.live) return;
  const int me = args.view.rank;
  const int ranks = args.view.size;
  const int parity = static_cast<int>(call.epoch & 1);
  const auto cell_at = [&](int rank, int from) {
    return peer_address<SystemCell<std::uint64_t>>(args.view, rank, args.cells) + (parity * ranks + from);
  };
  signal_after_block(
      ranks, [&](int rank) { return cell_at(rank, me); }, [&](int) { return tagged(call.epoch, args.number); });
  if (thread_index() < ranks) {
    const int from = thread_index();
    std::uint32_t number = 0;
    const Global<SystemCell<std::uint64_t>> cell(cell_at(me, from).raw);
    if (wait_tagged(call, cell, call.epoch, number, Wait{.site = 0, .peer = from}))
      store(Global<std::uint32_t>(args.out) + from, number);
  }
  end_call(call, 0);
}

}  // namespace farwarp::FARWARP_TARGET

FARWARP_KERNEL(world_test_exchange, farwarp::ExchangeArgs, 64) { farwarp::FARWARP_TARGET::exchange_numbers(args); }
