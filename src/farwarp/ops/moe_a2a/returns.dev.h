// What dispatch keeps of a row for combine. Combine: owners send partial sums as words to the tokens' sources, which
// add them up. Words need no flag and no fence. Their reader clears them.
#pragma once

#include "farwarp/ops/moe_a2a/encoding.dev.h"
#include "farwarp/ops/moe_a2a/routing.dev.h"
#include "farwarp/world/device/words.dev.h"

namespace farwarp::FARWARP_TARGET::moe {

using namespace farwarp::moe;

/// [thread] At the owner: sends vector `u` of a row's sum to the row's source.
FARWARP_DEVICE void send_sum(const Regions& regions, const ReceivedSegment& segment, int u, Vector sum) {
  store_words(regions.returned(segment.source, segment.token, regions.me()) + u, sendable(sum));
}

/// sum += weight * round(y): rounds y to T, then one fused multiply-add.
template <class T, int count>
FARWARP_DEVICE void add_weighted(float (&sum)[count], float weight, const float (&y)[count]) {
#pragma unroll
  for (int i = 0; i < count; ++i) sum[i] = fused_multiply_add(weight, to_float(round_to<T>(y[i])), sum[i]);
}

// ---- split form: what dispatch keeps of a row for combine (Regions::kept_record()) ----------------------------------

/// The word of a copy: its output row, and the entry's weight.
FARWARP_DEVICE std::uint64_t pack_copy(std::int32_t output_row, float weight) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(output_row)) << 32 |
         std::bit_cast<std::uint32_t>(weight);
}
FARWARP_DEVICE std::int64_t output_row_of_copy(std::uint64_t word) { return static_cast<std::int64_t>(word >> 32); }
FARWARP_DEVICE float weight_of_copy(std::uint64_t word) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(word));
}

/// The first word of a record: the row's source and token, and how many copies of it there are.
FARWARP_DEVICE std::uint64_t pack_row(const ReceivedSegment& segment, int copies) {
  return static_cast<std::uint64_t>(segment.token) << 32 | static_cast<std::uint32_t>(copies << 8 | segment.source);
}
FARWARP_DEVICE int source_of_row(std::uint64_t row_word) { return static_cast<int>(row_word & 0xff); }
FARWARP_DEVICE int copies_of_row(std::uint64_t row_word) { return static_cast<int>(row_word >> 8 & 0xff); }
FARWARP_DEVICE std::int32_t token_of_row(std::uint64_t row_word) { return static_cast<std::int32_t>(row_word >> 32); }

/// [warp] Stores the record of a segment's row, and the caller's origins and tokens of its copies. `copy_word`: on lane
/// j, pack_copy() of k-slot j, or kNoRoute. The words of copies are stored without gaps. Copies with one output row, in
/// the masked layout, have the origin of the first.
FARWARP_DEVICE void store_record(const Regions& regions, const ReceivedSegment& segment, std::uint64_t copy_word) {
  const Args& args = regions.args;
  const bool is_copy = copy_word != kNoRoute;
  const std::uint64_t copies = ballot(is_copy);
  const Global<std::uint64_t> record = regions.kept_record(segment.row_number);
  int first = lane_index();
  if (args.dispatch.masked_layout != 0 && args.dispatch.origins != nullptr)
    first = lowest_bit(match_any(static_cast<std::uint32_t>(is_copy ? copy_word >> 32 : ~0u)));
  if (lane_index() == 0) store(record, pack_row(segment, count_bits(copies)));
  if (!is_copy) return;
  store(record + (1 + count_bits(copies & lanes_below())), copy_word);
  if (args.expert_rows.row_tokens != nullptr)
    store(Global<std::int32_t>(args.expert_rows.row_tokens) + output_row_of_copy(copy_word), segment.token);
  if (args.dispatch.origins == nullptr || first != lane_index()) return;
  const std::int64_t origin = std::int64_t{segment.source} << 48 | std::int64_t{segment.token} << 16 | lane_index();
  store(Global<std::int64_t>(args.dispatch.origins) + output_row_of_copy(copy_word), origin);
}

/// For return_rows(): the weights are those that dispatch keeps. weights.dev.h has those that arrive at combine.
struct KeptWeights {
  static constexpr bool kArrive = false;
};

/// [warp] Gathers the experts' outputs of a received segment in k-slot order, sums and rounds them as apply_experts()
/// does, and sends the sum to the source. `copy_word`: on lane i, pack_copy() of copy i.
template <class T>
FARWARP_DEVICE void reduce_segment(const Regions& regions, const ReceivedSegment& segment, int copies,
                                   std::uint64_t copy_word) {
  // A lane has kAhead vectors of each of kCopiesAhead copies in flight (measured: MEASURED.md, "Tried and rejected").
  constexpr int kAhead = 4, kCopiesAhead = 2;
  const Global<const Vector> input(static_cast<const Vector*>(regions.args.combine.y));
#pragma unroll 1
  for (int base = segment.first; base < segment.last; base += kAhead * kStride) {
    const int u = base + lane_index();
    float sum[kAhead][kElementsPer<Vector>] = {};
#pragma unroll 1
    for (int first = 0; first < copies; first += kCopiesAhead) {
      // All shuffles precede the loads: a shuffle between them makes ptxas wait for the loads that were issued before
      // it.
      std::uint64_t copy[kCopiesAhead];
#pragma unroll
      for (int c = 0; c < kCopiesAhead; ++c) copy[c] = shuffle(copy_word, first + c < copies ? first + c : first);
      Vector packed[kCopiesAhead][kAhead];
#pragma unroll
      for (int c = 0; c < kCopiesAhead; ++c) {
#pragma unroll
        for (int a = 0; a < kAhead; ++a) {
          const bool wanted = first + c < copies && u + a * kStride < segment.last;
          const Global<const Vector> from = input + (output_row_of_copy(copy[c]) * regions.vectors() + u + a * kStride);
          packed[c][a] = wanted ? load<Cache::streaming>(from) : Vector{};
        }
      }
#pragma unroll
      for (int c = 0; c < kCopiesAhead; ++c) {
        if (first + c >= copies) break;
#pragma unroll
        for (int a = 0; a < kAhead; ++a) {
          if (base + a * kStride >= segment.last) break;  // no lane has such a vector
          float y[kElementsPer<Vector>];
          values_of<T>(packed[c][a], y);
          add_weighted<T>(sum[a], weight_of_copy(copy[c]), y);
        }
      }
    }
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      if (u + a * kStride < segment.last) send_sum(regions, segment, u + a * kStride, rounded<T, Vector>(sum[a]));
    }
  }
}

/// [warp] Prefetches the outputs that reduce_segment() reads.
FARWARP_DEVICE void prefetch_copies(const Regions& regions, const ReceivedSegment& segment, int copies,
                                    std::uint64_t copy_word) {
  constexpr int kLine = 128 / sizeof(Vector);
  const Global<const Vector> input(static_cast<const Vector*>(regions.args.combine.y));
#pragma unroll 1
  for (int c = 0; c < copies; ++c) {
    const std::int64_t row = output_row_of_copy(shuffle(copy_word, c)) * regions.vectors();
#pragma unroll 1
    for (int u = segment.first + lane_index() * kLine; u < segment.last; u += Target::kWarpSize * kLine)
      prefetch(input + (row + u));
  }
}

/// A record, as a warp holds it.
struct KeptRecord {
  std::uint64_t row_word;   ///< pack_row()
  std::uint64_t copy_word;  ///< on lane i: pack_copy() of copy i

  /// [warp] That of the row of segment `item` of all. `most`: a bound for `item`.
  FARWARP_DEVICE static KeptRecord of(const Regions& regions, int item, int most) {
    const Args& args = regions.args;
    if (item >= most) return {};
    const Global<std::uint64_t> record = regions.kept_record(args.by_segments.quotient(item));
    return {load(record), lane_index() < args.k ? load(record + (1 + lane_index())) : 0};
  }
};

/// What a warp loads of the records before it joins combine's call.
struct KeptAhead {
  std::uint32_t records;  ///< how many there are
  KeptRecord first;       ///< of the warp's first segment; without meaning if there is no such row

  /// [warp] Loads nothing unless `wanted`.
  FARWARP_DEVICE KeptAhead(const Args& args, bool wanted) {
    const Regions regions{args, 0};  // what is kept does not alternate
    records = wanted ? load(regions.kept_record_count()) : 0;
    first = KeptRecord::of(regions, warp_in_grid(), wanted ? args.max_tokens * args.view.size * args.segments : 0);
  }
};

/// [block] Sums the experts' outputs of all rows that dispatch received, and sends the sums to the rows' sources.
template <class T, class Weights>
FARWARP_DEVICE void return_rows(Call& call, const Args& args, const KeptAhead& ahead) {
  const Regions regions = regions_of(args, call);
  const int items = static_cast<int>(ahead.records) * args.segments;
  KeptRecord kept = ahead.first;
#pragma unroll 1
  for (int item = warp_in_grid(); item < items; item += warps_of_grid()) {
    const KeptRecord next = KeptRecord::of(regions, item + warps_of_grid(), items);
    const int row_number = args.by_segments.quotient(item);
    const Segment segment = segment_of<1>(args, token_of_row(kept.row_word), item - row_number * args.segments);
    const ReceivedSegment received{
        source_of_row(kept.row_word), segment.token, row_number, segment.number, segment.first, segment.last};
    const int copies = copies_of_row(kept.row_word);
    if constexpr (Weights::kArrive) {
      prefetch_copies(regions, received, copies, kept.copy_word);
      if (!Weights::take(call, regions, received, copies, kept.copy_word)) return;
    }
    reduce_segment<T>(regions, received, copies, kept.copy_word);
    kept = next;
  }
}

// ---- at the source --------------------------------------------------------------------------------------------------

/// [warp] Waits for a segment of the sums of one token from the owners in `ranks`, adds them in rank order in fp32, and
/// rounds once. A token without owners gives zeros. `owners`: at least the number of ranks. `ahead`: vectors of each
/// owner that a lane has in flight. All loads are issued before any result is examined.
template <class T, int owners, int ahead>
FARWARP_DEVICE void add_up(Call& call, const Regions& regions, std::uint32_t ranks, const Segment& segment) {
  const Global<const Vector> sums(regions.returned(regions.me(), segment.token, 0).raw);
  const Global<Vector> out =
      Global<Vector>(static_cast<Vector*>(regions.args.combine.out)) + std::int64_t{segment.token} * regions.vectors();
#pragma unroll 1
  for (int u = segment.first + lane_index(); u < segment.last; u += ahead * kStride) {
    Global<const Vector> from[owners * ahead];
    Vector parts[owners * ahead];
    std::uint32_t wanted = 0;
#pragma unroll
    for (int i = 0; i < owners * ahead; ++i) {
      const int owner = i / ahead, vector = u + i % ahead * kStride;
      from[i] = sums + (owner * regions.vectors() + vector);
      if ((ranks >> owner & 1) != 0 && vector < segment.last) wanted |= 1u << i;
    }
    if (!wait_words<ahead>(call, from, wanted, parts, Wait{.site = kSiteReturn, .peer = -1, .depth = 1})) break;
    clear_words(from, wanted);
#pragma unroll
    for (int a = 0; a < ahead; ++a) {
      if (u + a * kStride >= segment.last) break;
      float sum[kElementsPer<Vector>] = {};
#pragma unroll
      for (int owner = 0; owner < owners; ++owner) {
        if (!(ranks >> owner & 1)) continue;
#pragma unroll
        for (int i = 0; i < kElementsPer<Vector>; ++i)
          sum[i] = add(sum[i], to_float(element<T>(parts[owner * ahead + a], i)));
      }
      store<Cache::streaming>(out + (u + a * kStride), rounded<T, Vector>(sum));
    }
  }
}

/// [warp] add_up() with eight loads of a lane in flight, for few ranks as for many.
template <class T>
FARWARP_DEVICE void add_up_returns(Call& call, const Regions& regions, std::uint32_t ranks, const Segment& segment) {
  const TraceStart start = trace_start();
  if (regions.ranks() <= 2) {
    add_up<T, 2, 4>(call, regions, ranks, segment);
  } else if (regions.ranks() <= 4) {
    add_up<T, 4, 2>(call, regions, ranks, segment);
  } else {
    add_up<T, kMaxRanks, 1>(call, regions, ranks, segment);
  }
  trace_warp(start, TraceWork::kReduce, segment.token);
}

/// [block] Waits for the sums of all tokens and adds them up, in the order in which the tokens were sent.
template <class T>
FARWARP_DEVICE void receive_returns(Call& call, const Args& args, int tokens) {
  const Regions regions = regions_of(args, call);
#pragma unroll 1
  for (int item = warp_in_grid(); item < tokens * args.segments; item += warps_of_grid()) {
    const int token = args.by_segments.quotient(item);
    const Segment segment = segment_of<1>(args, token, item - token * args.segments);
    add_up_returns<T>(call, regions, warp_ranks_of_token(args, token), segment);
    // If one lane has given up, its warp stops.
    if (ballot(!call.live) != 0) {
      call.live = false;
      return;
    }
  }
}

}  // namespace farwarp::FARWARP_TARGET::moe
