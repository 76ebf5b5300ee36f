// Lesson 03: a producer and a consumer on different GPUs share a ring of kRing items. The producer may be at most kRing
// items ahead of the consumer: it waits for the consumer's room cell before it writes a place of the ring again
// (back-pressure).
//   rank 0 (producer)                                 rank 1 (consumer)
//   wait room cell = tag(i - kRing), if i >= kRing
//   write item i  --------------------------------->  ring[i % kRing]
//   release item cell = tag(i)  ------------------->  wait item cell = tag(i), acquire, read
//   room cell  <------------------------------------  release room cell = tag(i)
// If the target has bulk copies, an item is built in shared memory and sent by one copy. The copy reads shared memory
// through the async proxy, so every thread that has written it calls proxy_fence(). Only bulk_wait_all() says that the
// item has arrived; bulk_wait_read() only says that the shared memory may be reused.
// No other item of this or another call has the same tag, so cells are never reset. Ranks from 2 on have nothing to do.
#include "farwarp/world/device/call.dev.h"
#include "farwarp/world/device/wait.dev.h"
#include "lesson.h"

namespace farwarp::FARWARP_TARGET {

struct Ring {
  using Cell = SystemCell<std::uint64_t>;
  static constexpr Wait kRoom{lessons::kSiteRoom, 1};
  const lessons::Args& args;
  Call& call;

  // Workspace of each rank: [kRing] item cells, [kRing] room cells, [kRing][words].
  FARWARP_DEVICE Peer<Cell> item_cell(int rank, int item) const {
    return peer_address<Cell>(args.view, rank, args.workspace) + item % lessons::kRing;
  }
  FARWARP_DEVICE Peer<Cell> room_cell(int rank, int item) const { return item_cell(rank, item) + lessons::kRing; }
  FARWARP_DEVICE Peer<std::uint32_t> words_at(int rank, int item) const {
    return peer_address<std::uint32_t>(args.view, rank, args.workspace + 16 * lessons::kRing) +
           item % lessons::kRing * args.words;
  }
  /// The tag of an item's cells, different for each item and each call.
  FARWARP_DEVICE std::uint32_t tag_of(int item) const {
    return call.epoch * static_cast<std::uint32_t>(args.items) + static_cast<std::uint32_t>(item);
  }
  FARWARP_DEVICE bool await(Peer<Cell> cell, int item, Wait wait) {
    std::uint32_t unused = 0;
    if (thread_index() == 0) wait_tagged(call, Global<Cell>(cell.raw), tag_of(item), unused, wait);
    call.live = !block_any(!call.live);
    return call.live;
  }

  /// [block] Item i is the input's words, each plus i.
  FARWARP_DEVICE void ship(int item) {
    const Global<const std::uint32_t> in(args.in);
    const auto value = [&](int i) { return load(in + i) + static_cast<std::uint32_t>(item); };
    if constexpr (Target::kHasBulkCopy) {
      const Shared<std::uint32_t> stage(reinterpret_cast<std::uint32_t*>(block_shared().raw));
      for (int i = thread_index(); i < args.words; i += num_threads()) store(stage + i, value(i));
      proxy_fence();
      block_sync();
      if (thread_index() == 0) {
        bulk_store(Peer<std::byte>(reinterpret_cast<std::byte*>(words_at(1, item).raw)), block_shared(),
                   4 * args.words);
        bulk_commit();
        bulk_wait_all();
      }
    } else {
      for (int i = thread_index(); i < args.words; i += num_threads()) store(words_at(1, item) + i, value(i));
    }
  }

  FARWARP_DEVICE void produce() {
    for (int item = 0; item < args.items; ++item) {
      if (item >= lessons::kRing && !await(room_cell(0, item), item - lessons::kRing, kRoom)) return;
      ship(item);
      signal_after_block(
          1, [&](int) { return item_cell(1, item); }, [&](int) { return tagged(tag_of(item), 0); });
    }
    // The call ends when the last item has been read, so the next call begins with an empty ring.
    await(room_cell(0, args.items - 1), args.items - 1, kRoom);
  }

  FARWARP_DEVICE void consume() {
    for (int item = 0; item < args.items; ++item) {
      if (!await(item_cell(1, item), item, Wait{.site = lessons::kSiteItem, .peer = 0})) return;
      const Global<std::uint32_t> words(words_at(1, item).raw);
      for (int i = thread_index(); i < args.words; i += num_threads()) {
        store(Global<std::uint32_t>(args.out) + (item * args.words + i), load(words + i));
      }
      signal_after_block(
          1, [&](int) { return room_cell(0, item); }, [&](int) { return tagged(tag_of(item), 0); });
    }
  }
};

FARWARP_DEVICE void run_ring(const lessons::Args& args) {
  Call call = begin_call(args.view, args.slot, 0);
  if (!call.live) return;
  Ring ring{args, call};
  if (args.view.rank == 0) ring.produce();
  if (args.view.rank == 1) ring.consume();
  end_call(call, 0);
}

}  // namespace farwarp::FARWARP_TARGET

FARWARP_KERNEL(lesson_03_producer_consumer, farwarp::lessons::Args, 128) { farwarp::FARWARP_TARGET::run_ring(args); }
