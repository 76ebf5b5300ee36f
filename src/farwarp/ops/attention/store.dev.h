// Stores a warpgroup's results.
#pragma once

#include "farwarp/ops/attention/sequence.dev.h"

namespace farwarp::FARWARP_TARGET::attention {

/// [quad] words[i] of thread t becomes words[t] of thread i.
FARWARP_DEVICE void transpose_in_quad(std::uint32_t (&words)[4]) {
  const int lane = lane_index();
#pragma unroll
  for (int bit = 1; bit < 4; bit *= 2) {
    const bool upper = (lane & bit) != 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i & bit) continue;
      const std::uint32_t received = shuffle_xor(upper ? words[i] : words[i + bit], bit);
      words[i] = upper ? received : words[i];
      words[i + bit] = upper ? words[i + bit] : received;
    }
  }
}

/// [warpgroup] Rounds and stores the rows of a block from `first_row` on, and their logarithms. A fragment has 2
/// columns of each 8; after a transposition in the quad, a thread has 8 columns of each 32, which it stores at once.
template <class T, int count>
FARWARP_DEVICE void store_rows(const Args& args, const BlockWork& work, int first_row, const float (&out)[count],
                               const float (&logarithm)[2]) {
  const MatrixIndex at = wgmma_sum(thread_index() % 128, 0);
  const int in_quad = lane_index() % 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int query = work.row + first_row + at.row + 8 * half;
    const bool stored = query < work.sequence.queries;
    const std::int64_t row = work.sequence.first_query + query;
    T* const first = static_cast<T*>(args.out) + work.sequence.query_batch * args.out_rows.batch_pitch +
                     row * args.out_rows.row_pitch + work.place.head * args.head_dim;
#pragma unroll
    for (int group = 0; group < count / 16; ++group) {
      std::uint32_t words[4];
#pragma unroll
      for (int i = 0; i < 4; ++i)
        words[i] = round_pair<T>(out[16 * group + 4 * i + 2 * half], out[16 * group + 4 * i + 2 * half + 1]);
      transpose_in_quad(words);
      const int column = 32 * group + 8 * in_quad;
      if (stored && column < args.head_dim) {
        const Vec16 eight{static_cast<std::uint64_t>(words[1]) << 32 | words[0],
                          static_cast<std::uint64_t>(words[3]) << 32 | words[2]};
        store(Global<Vec16>(reinterpret_cast<Vec16*>(first + column)), eight);
      }
    }
    if (stored && args.lse != nullptr && in_quad == 0) {
      const bool ragged = args.query_starts != nullptr;
      const std::int64_t in_head = ragged ? args.total_queries : args.max_queries;
      const std::int64_t head = std::int64_t{work.sequence.query_batch} * args.heads + work.place.head;
      store(Global<float>(args.lse + (head * in_head + row)), logarithm[half]);
    }
  }
}

}  // namespace farwarp::FARWARP_TARGET::attention
