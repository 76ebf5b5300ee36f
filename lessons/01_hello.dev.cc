// Lesson 01: put with signal. Every rank writes a greeting into its right neighbour's heap and waits for one from its
// left neighbour.
//
//   rank r                          rank r + 1
//   store(greeting)  ------------>  greeting
//   release store(flag = epoch) ->  flag: wait until it equals the epoch (acquire), then load(greeting)
//
// A flag holds the epoch of its call and is never reset: the next call waits for the next epoch. There are two sets of
// cells, for even and odd epochs. Each rank sends its flag to all ranks, so a call ends only after all ranks have begun
// it. A rank in call e + 2 has therefore seen all ranks in call e + 1, and no rank still reads what call e wrote.
#include "farwarp/world/device/call.dev.h"
#include "farwarp/world/device/wait.dev.h"
#include "lesson.h"

namespace farwarp::FARWARP_TARGET {

FARWARP_DEVICE void hello(const lessons::Args& args) {
  Call call = begin_call(args.view, args.slot, 0);
  if (!call.live) return;
  const int me = args.view.rank, ranks = args.view.size;
  const int right = (me + 1) % ranks;
  const int parity = static_cast<int>(call.epoch & 1);

  // Workspace: [2] greetings, then [2][ranks] flags.
  const auto greeting_at = [&](int rank) {
    return peer_address<std::uint64_t>(args.view, rank, args.workspace) + parity;
  };
  const auto flag_at = [&](int rank, int from) {
    return peer_address<SystemCell<std::uint64_t>>(args.view, rank, args.workspace + 16) + (parity * ranks + from);
  };

  if (thread_index() == 0) store(greeting_at(right), std::uint64_t{100} + me);
  signal_after_block(
      ranks, [&](int rank) { return flag_at(rank, me); }, [&](int) { return tagged(call.epoch, 0); });

  if (thread_index() < ranks) {
    const int from = thread_index();
    std::uint32_t unused = 0;
    wait_tagged(call, Global<SystemCell<std::uint64_t>>(flag_at(me, from).raw), call.epoch, unused,
                Wait{.site = lessons::kSiteHello, .peer = from});
  }
  if (!block_any(!call.live) && thread_index() == 0) {
    const Global<std::uint64_t> greeting(greeting_at(me).raw);
    store(Global<std::uint32_t>(args.out), static_cast<std::uint32_t>(load(greeting)));
  }
  end_call(call, 0);
}

}  // namespace farwarp::FARWARP_TARGET

FARWARP_KERNEL(lesson_01_hello, farwarp::lessons::Args, 128) { farwarp::FARWARP_TARGET::hello(args); }
