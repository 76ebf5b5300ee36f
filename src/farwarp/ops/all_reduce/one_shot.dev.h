// One-shot, by words: every rank sends its tensor to all ranks, and adds up all of it.
#pragma once

#include "farwarp/ops/all_reduce/tensor.dev.h"
#include "farwarp/world/device/words.dev.h"

namespace farwarp::FARWARP_TARGET::all_reduce {

template <class T, int most>
struct OneShot {
  const Args& args;
  Call& call;

  /// In every heap: the offset of vector `vector` of `source`.
  FARWARP_DEVICE std::int64_t place(int source, std::int64_t vector) const {
    const int parity = static_cast<int>(call.epoch & 1);
    return args.words + ((parity * args.view.size + source) * args.word_pitch + vector) * kVectorBytes;
  }

  /// [thread] Sends a vector to all peers. `own` is sendable(), and what this rank adds itself: the same bits.
  FARWARP_DEVICE void send(std::int64_t vector, Vec16 own) const {
    if (static_cast<std::uint64_t>(vector) + 1 == args.drop_put) return;
    const WorldView& view = args.view;
#pragma unroll
    for (int i = 1; i < most; ++i) {
      if (i >= view.size) continue;
      const int to = view.rank + i < view.size ? view.rank + i : view.rank + i - view.size;
      store_words(peer_address<Vec16>(view, to, place(view.rank, vector)), own);
    }
  }

  /// [thread] Waits for the vector of all peers, adds up, stores the sum, and clears the words: the call after the next
  /// one uses them again.
  /// False: the call is over.
  FARWARP_DEVICE bool add_up(std::int64_t vector, Vec16 own) const {
    const int rank = args.view.rank, ranks = args.view.size;
    Global<const Vec16> from[most];
    Vec16 parts[most];
    std::uint32_t wanted = 0;
#pragma unroll
    for (int source = 0; source < most; ++source) {
      const bool is_peer = source < ranks && source != rank;
      if (is_peer) wanted |= 1u << source;
      from[source] = own_address<const Vec16>(args.view, place(is_peer ? source : 0, vector));
      parts[source] = own;  // wait_words() replaces those of peers
    }
    if (!wait_words<1>(call, from, wanted, parts, {.site = kSiteWords, .peer = -1})) return false;
    store_vector<T>(args, vector, tile::sum_in_order<T>(parts, ranks));
    clear_words(from, wanted);
    return true;
  }
};

template <class T, int most>
FARWARP_DEVICE void one_shot(const Args& args) {
  const std::int64_t stride = std::int64_t{num_blocks()} * sending_threads();
  // The warp that keeps the cells reads nothing: in place, another thread may have stored the sum.
  std::int64_t vector = thread_index() < sending_threads()
                            ? std::int64_t{block_index()} * sending_threads() + thread_index()
                            : args.vectors;
  Vec16 own{};
  if (vector < args.vectors) own = load_vector<T>(args, vector);
  Call call = join_call(args.view, args.slot);  // its loads and that of `own` overlap: nothing before it uses `own`
  if (!call.live || keeps_cells(call)) return;
  const OneShot<T, most> operation{args, call};
  own = sendable(own);
  if (vector < args.vectors) operation.send(vector, own);
  while (vector < args.vectors) {
    const std::int64_t next = vector + stride;
    Vec16 next_own{};
    if (next < args.vectors) {
      next_own = sendable(load_vector<T>(args, next));
      operation.send(next, next_own);
    }
    if (!operation.add_up(vector, own)) return;
    vector = next;
    own = next_own;
  }
}

}  // namespace farwarp::FARWARP_TARGET::all_reduce
