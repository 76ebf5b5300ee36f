// The rows of q that a wave reads, and those of out that it stores.
#pragma once

#include "farwarp/ops/attention/loader_mfma.dev.h"
#include "farwarp/ops/attention/softmax_mfma.dev.h"

namespace farwarp::FARWARP_TARGET::attention {

/// The first of a wave's rows in its block.
FARWARP_DEVICE int first_query_of_wave() { return wave() * kMfmaWaveQueries; }

/// Where row `row` of the work's sequence and head begins.
template <class Bytes, class Void>
FARWARP_DEVICE Global<Bytes> row_at(const Args& args, Void* tensor, const Rows& rows, const BlockWork& work, int row) {
  const std::int64_t element = work.sequence.query_batch * rows.batch_pitch +
                               (std::int64_t{work.sequence.first_query} + row) * rows.row_pitch +
                               std::int64_t{work.place.head} * args.head_dim;
  return Global<Bytes>(static_cast<Bytes*>(tensor) + element * 2);
}
/// Of element `column` of a row from there, `row` below 32. A pitch is at most 2^24 elements.
FARWARP_DEVICE std::uint32_t offset_in(const Rows& rows, int row, int column) {
  return static_cast<std::uint32_t>(row) * static_cast<std::uint32_t>(rows.row_pitch * 2) +
         static_cast<std::uint32_t>(column) * 2;
}

/// [warp] Reads the wave's queries as operands. Rows after the last one repeat it; columns beyond the head's are zeros.
template <int slices>
FARWARP_DEVICE void read_queries(const Args& args, const BlockWork& work, Vec16 (&queries)[slices]) {
  const int wanted = work.row + first_query_of_wave(), last = work.sequence.queries - 1;
  const int first = wanted < last ? wanted : last;
  const Global<const std::byte> base = row_at<const std::byte>(args, args.q_base, args.q_rows, work, first);
  const MatrixIndex lane = mfma32_operand(recomputed(lane_index()), 0);
#pragma unroll
  for (int slice = 0; slice < slices; ++slice) {
    const int column = 16 * slice + lane.column;
    const std::uint32_t offset = offset_in(args.q_rows, lane.row < last - first ? lane.row : last - first, column);
    queries[slice] = load_from<Vec16>(base, 0, column < args.head_dim ? offset : kNoAddress);
  }
}

/// [warp] Normalises, rounds and stores the wave's rows and their logarithms. A lane has 8 neighbouring columns of each
/// 16.
template <class T, int fragments>
FARWARP_DEVICE void store_results(const Args& args, const BlockWork& work, const Mfma32Sums (&out)[fragments],
                                  const RowSoftmax& softmax) {
  const MatrixIndex lane = mfma32_sum(recomputed(lane_index()), 0);
  const float sink = args.sinks == nullptr ? kNoScore : load(Global<const float>(args.sinks + work.place.head));
  const int first = work.row + first_query_of_wave();
  const Global<std::byte> base = row_at<std::byte>(args, args.out, args.out_rows, work, first);
  const auto [factor, logarithm] = softmax.finish(sink, args.scale);
  const bool stored = first + lane.column < work.sequence.queries;
#pragma unroll
  for (int eight = 0; eight < 2 * fragments; ++eight) {
    const int column = 16 * eight + farwarp::tile::column_in_row(lane.row);
    std::uint64_t words[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const Mfma32Sums& sums = out[eight / 2];
      const int at = eight % 2 * 8 + 2 * j;
      words[j] = round_pair<T>(multiply(sums[at], factor), multiply(sums[at + 1], factor));
    }
    const bool inside = stored && column < args.head_dim;
    store_to<Vec16>(base, 0, inside ? offset_in(args.out_rows, lane.column, column) : kNoAddress,
                    {words[1] << 32 | words[0], words[3] << 32 | words[2]});
  }
  if (args.lse == nullptr) return;
  const std::int64_t in_head = args.query_starts != nullptr ? args.total_queries : args.max_queries;
  const std::int64_t head = std::int64_t{work.sequence.query_batch} * args.heads + work.place.head;
  float* const lse = args.lse + (head * in_head + work.sequence.first_query + first);
  store_to<float>(Global<std::byte>(reinterpret_cast<std::byte*>(lse)), 0,
                  stored && lane.row == 0 ? static_cast<std::uint32_t>(4 * lane.column) : kNoAddress, logarithm);
}

}  // namespace farwarp::FARWARP_TARGET::attention
