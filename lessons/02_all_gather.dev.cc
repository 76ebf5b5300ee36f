// Lesson 02: all-gather with a flag per chunk. Block b sends chunk b of this rank's words to every rank and sets its
// flag. Then it waits for chunk b of every rank and copies it to the output. No block waits for a whole tensor, and
// there is no barrier of all ranks.
//
// Back-pressure: call e + 2 writes the buffers of call e again. A rank in call e + 2 has seen every rank's flags of
// call e + 1, and each rank sent those after it had finished call e.
//
// args.switches & kOmitRelease stores the flag without a release, so the words may arrive after it. Try
//   ./dev farwarp check lesson-02 --set omit_release=1 --schedules 50
#include "farwarp/world/device/call.dev.h"
#include "farwarp/world/device/wait.dev.h"
#include "lesson.h"

namespace farwarp::FARWARP_TARGET {

struct AllGather {
  const lessons::Args& args;
  Call& call;

  FARWARP_DEVICE int parity() const { return static_cast<int>(call.epoch & 1); }
  FARWARP_DEVICE Peer<std::uint32_t> words_at(int rank, int from) const {
    return peer_address<std::uint32_t>(args.view, rank, args.workspace + 2 * 8 * args.view.size * lessons::kChunks) +
           static_cast<std::int64_t>(parity() * args.view.size + from) * args.words;
  }
  FARWARP_DEVICE Peer<SystemCell<std::uint64_t>> flag_at(int rank, int from, int chunk) const {
    return peer_address<SystemCell<std::uint64_t>>(args.view, rank, args.workspace) +
           ((parity() * args.view.size + from) * lessons::kChunks + chunk);
  }

  FARWARP_DEVICE void push(int chunk, int first, int last) {
    const int me = args.view.rank;
    for (int i = first + thread_index(); i < last; i += num_threads()) {
      const std::uint32_t word = load(Global<const std::uint32_t>(args.in) + i);
      for (int rank = 0; rank < args.view.size; ++rank) store(words_at(rank, me) + i, word);
    }
    const auto flag = [&](int rank) { return flag_at(rank, me, chunk); };
    if (args.switches & lessons::kOmitRelease) {
      if (thread_index() < args.view.size) store<Order::relaxed>(flag(thread_index()), tagged(call.epoch, 0));
    } else {
      signal_after_block(args.view.size, flag, [&](int) { return tagged(call.epoch, 0); });
    }
  }

  FARWARP_DEVICE void collect(int chunk, int first, int last) {
    const int me = args.view.rank;
    if (const int from = thread_index(); from < args.view.size) {
      std::uint32_t unused = 0;
      wait_tagged(call, Global<SystemCell<std::uint64_t>>(flag_at(me, from, chunk).raw), call.epoch, unused,
                  Wait{.site = lessons::kSiteChunk, .peer = from});
    }
    if (block_any(!call.live)) return;
    for (int from = 0; from < args.view.size; ++from) {
      const Global<std::uint32_t> words(words_at(me, from).raw);
      for (int i = first + thread_index(); i < last; i += num_threads()) {
        store(Global<std::uint32_t>(args.out) + (from * args.words + i), load(words + i));
      }
    }
  }
};

FARWARP_DEVICE void all_gather(const lessons::Args& args) {
  Call call = begin_call(args.view, args.slot, 0);
  if (!call.live) return;
  AllGather gather{args, call};
  const int chunk = block_index();  // the grid has kChunks blocks
  const int first = args.words * chunk / lessons::kChunks, last = args.words * (chunk + 1) / lessons::kChunks;
  gather.push(chunk, first, last);
  gather.collect(chunk, first, last);
  end_call(call, 0);
}

}  // namespace farwarp::FARWARP_TARGET

FARWARP_KERNEL(lesson_02_all_gather, farwarp::lessons::Args, 128) { farwarp::FARWARP_TARGET::all_gather(args); }
