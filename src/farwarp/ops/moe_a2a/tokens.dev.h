// Which tokens there are, to which ranks they go, and how the owners learn of their rows.
#pragma once

#include "farwarp/ops/moe_a2a/memory.dev.h"
#include "farwarp/world/device/wait.dev.h"

namespace farwarp::FARWARP_TARGET::moe {

using namespace farwarp::moe;

// ---- the caller's tensors -------------------------------------------------------------------------------------------

/// The caller's number of tokens, unchecked.
FARWARP_DEVICE int given_tokens(const Args& args) {
  return args.tokens.on_device ? load(Global<const std::int32_t>(args.tokens.on_device)) : args.tokens.count;
}
/// `tokens`, or 0 if it is out of range.
FARWARP_DEVICE int tokens_or_none(const Args& args, int tokens) {
  return tokens >= 0 && tokens <= args.max_tokens ? tokens : 0;
}
/// [block] `tokens`; if it is out of range, gives up and returns 0.
FARWARP_DEVICE int checked_tokens(Call& call, const Args& args, int tokens) {
  if (tokens >= 0 && tokens <= args.max_tokens) return tokens;
  if (block_index() == 0 && thread_index() == 0) {
    give_up(call, StatusCode::kBadInput, kSiteTokens, -1, args.max_tokens, static_cast<std::uint64_t>(tokens));
  }
  call.live = false;
  return 0;
}
FARWARP_DEVICE int token_count(Call& call, const Args& args) { return checked_tokens(call, args, given_tokens(args)); }

/// [thread] Reads `count` entries of the top-k table from entry `entry` (token * k + k-slot) on, of which `left` exist:
/// an expert, or -1 if the entry is skipped or does not exist. Any other value is the caller's error. A value beyond 32
/// bits becomes the nearest in 32, which is all that the other functions handle. All loads are issued before any result
/// is examined.
template <int count>
FARWARP_DEVICE void read_table(const Args& args, int entry, int left, std::int32_t (&experts)[count]) {
  const auto words = Global<const std::int32_t>(static_cast<const std::int32_t*>(args.tokens.topk));
  const bool wide = args.tokens.wide_indices != 0;
  const int stride = wide ? 2 : 1;
#pragma unroll
  for (int i = 0; i < count; ++i) experts[i] = i < left ? load(words + (entry + i) * stride) : -1;
  if (!wide) return;
  std::int32_t upper[count];
#pragma unroll
  for (int i = 0; i < count; ++i) upper[i] = i < left ? load(words + ((entry + i) * stride + 1)) : -1;
#pragma unroll
  for (int i = 0; i < count; ++i) {
    if (upper[i] != experts[i] >> 31) experts[i] = upper[i] >> 31 ^ 0x7fffffff;
  }
}
/// [thread] One entry, of 64 bits the lower half; -1 unless `there`. For expert_or_none().
FARWARP_DEVICE std::int32_t table_entry(const Args& args, int entry, bool there) {
  const auto words = Global<const std::int32_t>(static_cast<const std::int32_t*>(args.tokens.topk));
  return there ? load(words + (args.tokens.wide_indices != 0 ? 2 * entry : entry)) : -1;
}

/// [warp] On lane j: entry j of a token, as table_entry() gives it, and its weight.
struct TokenEntry {
  std::int32_t listed;
  float weight;
  /// Without `there`: -1 and 0.
  FARWARP_DEVICE TokenEntry(const Args& args, int token, bool there) {
    const int entry = token * args.k + lane_index();
    const bool here = there && lane_index() < args.k;
    listed = table_entry(args, entry, here);
    weight = here ? load(Global<const float>(args.tokens.weights) + entry) : 0;
  }
};

/// [thread] Gives up if the entry is out of range.
FARWARP_DEVICE void check_expert(Call& call, const Args& args, std::int32_t expert) {
  if (expert >= -1 && expert < args.num_experts) [[likely]]
    return;
  if (call.live) {
    give_up(call, StatusCode::kBadInput, kSiteExpert, -1, args.num_experts - 1,
            static_cast<std::uint64_t>(std::int64_t{expert}));
  }
}
/// [thread] The entry as an expert, or a negative number. send_bitmaps() checks all bits of all entries, and gives up
/// if one is out of range.
FARWARP_DEVICE int expert_or_none(const Args& args, std::int32_t expert) {
  return expert < args.num_experts ? expert : -1;
}

/// Fault injection: this rank drops the token's row.
FARWARP_DEVICE bool dropped(const Args& args, int token) {
  return static_cast<std::uint32_t>(token) + 1 == args.send.drop_put;
}

/// moe_rank_of()
FARWARP_DEVICE int rank_of(const Args& args, int expert) {
  const auto dividend = static_cast<std::uint32_t>(expert) * static_cast<std::uint32_t>(args.view.size);
  return static_cast<int>(std::uint64_t{dividend} * args.reciprocal >> 32);
}
/// The rank `i` after mine, i from 1 to the number of ranks. A rank sends to the rank after it first, so that the ranks
/// do not all begin with the same link.
FARWARP_DEVICE int rank_after(const Args& args, int i) {
  const int rank = args.view.rank + i;
  return rank < args.view.size ? rank : rank - args.view.size;
}
FARWARP_DEVICE int first_expert(const Args& args, int rank) {
  return args.by_ranks.quotient(rank * args.num_experts + args.view.size - 1);  // moe_first_expert()
}

/// The rank of an expert; -1 of a negative number.
FARWARP_DEVICE int owner_or_none(const Args& args, int expert) { return expert >= 0 ? rank_of(args, expert) : -1; }

// To which ranks a token goes. Bit r of a result: it has an expert on rank r. Entries out of range count as skipped:
// send_bitmaps() gives up for them.

/// [thread] `largest`: of entry + 1, so that a skipped entry gives 0, and those out of range exceed all others.
FARWARP_DEVICE std::uint32_t ranks_of_token(const Args& args, int token, std::uint32_t& largest) {
  constexpr int kTogether = 8;
  std::uint32_t ranks = 0;
  largest = 0;
#pragma unroll 1
  for (int first = 0; first < args.k; first += kTogether) {
    std::int32_t experts[kTogether];
    read_table(args, token * args.k + first, args.k - first, experts);
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      const std::uint32_t plus_one = static_cast<std::uint32_t>(experts[i]) + 1;
      largest = plus_one > largest ? plus_one : largest;
      if (static_cast<std::uint32_t>(experts[i]) < static_cast<std::uint32_t>(args.num_experts))
        ranks |= 1u << rank_of(args, experts[i]);
    }
  }
  return ranks;
}
FARWARP_DEVICE std::uint32_t ranks_of_token(const Args& args, int token) {
  std::uint32_t ignored = 0;
  return ranks_of_token(args, token, ignored);
}
/// [thread] Gives up if an entry is out of range.
FARWARP_DEVICE std::uint32_t checked_ranks_of_token(Call& call, const Args& args, int token) {
  std::uint32_t largest = 0;
  const std::uint32_t ranks = ranks_of_token(args, token, largest);
  check_expert(call, args, static_cast<std::int32_t>(largest - 1));
  return ranks;
}

/// [warp] Of the token whose entries the lanes have. `owner`: owner_or_none() of the lane's entry.
FARWARP_DEVICE std::uint32_t ranks_of_lanes(const Args& args, int owner) {
  std::uint32_t ranks = 0;
#pragma unroll 1
  for (int r = 0; r < args.view.size; ++r) ranks |= ballot(owner == r) != 0 ? 1u << r : 0u;
  return ranks;
}
/// [warp] ranks_of_token(), with one entry on each lane.
FARWARP_DEVICE std::uint32_t warp_ranks_of_token(const Args& args, int token) {
  const int j = lane_index();
  const std::int32_t entry = table_entry(args, token * args.k + j, j < args.k);
  return ranks_of_lanes(args, owner_or_none(args, expert_or_none(args, entry)));
}

/// [warp] Calls `work(rank)` for each of `ranks`, beginning with the rank after mine.
template <class Visit>
FARWARP_DEVICE void for_each_rank(const Args& args, std::uint32_t ranks, const Visit& work) {
  const int after_mine = args.view.rank + 1, size = args.view.size;
  std::uint32_t after =
      (ranks >> after_mine | ranks << (size - after_mine)) & ((1u << size) - 1);  // bit i: rank + 1 + i
#pragma unroll 1
  for (; after != 0; after &= after - 1) work(rank_after(args, 1 + lowest_bit(after)));
}

// ---- bitmaps --------------------------------------------------------------------------------------------------------
//
// A row's slot in every owner's inbox is its token's number at the source, so that a row can be sent as soon as its own
// top-k entries are known. Bitmaps say into which slots an owner will receive rows, a packet for each 32 tokens. They
// are the first part of a header.

/// Bitmaps of all sources. Bitmap p * ranks + i is packet p of source rank_after(1 + i).
FARWARP_DEVICE int bitmap_count(const Args& args) { return num_bitmaps(args.max_tokens) * args.view.size; }
FARWARP_DEVICE Shared<std::uint32_t> bitmaps_of(const Args& args) {
  return shared_at<std::uint32_t>(args.shared.bitmaps);
}
/// The one with a source's token.
FARWARP_DEVICE int bitmap_of(const Args& args, int source, int token) {
  const int after = source - args.view.rank - 1;  // source is rank_after(1 + after); below 0: less the number of ranks
  return token / kBitmapTokens * args.view.size + (after < 0 ? after + args.view.size : after);
}

/// The data of a bitmap's packet: the bitmap, and in the upper half the folded configuration, of which the call's form
/// is a part.
FARWARP_DEVICE std::uint64_t with_configuration(const Args& args, std::uint32_t lower) {
  return static_cast<std::uint64_t>(folded(args.send.configuration)) << 32 | lower;
}
FARWARP_DEVICE void check_configuration(Call& call, const Args& args, int source, std::uint64_t data) {
  const std::uint32_t expected = folded(args.send.configuration), seen = static_cast<std::uint32_t>(data >> 32);
  if (seen != expected && call.live) [[unlikely]]
    give_up(call, StatusCode::kMismatch, kSiteConfiguration, source, expected, seen);
}

/// [block] Sends every rank the bitmaps of the tokens that have a row there. A warp takes as many tokens as it has
/// lanes, and waits for nobody. The last warps of the grid do it, since they have the fewest rows to send; the very
/// last one takes the last turn, because in the split form its block counts all entries. Bitmaps of tokens that this
/// call does not have are sent as well: each call writes all of them.
FARWARP_DEVICE void send_bitmaps(Call& call, const Args& args, int tokens) {
  if (!call.live) return;
  constexpr int kBitmaps = Target::kWarpSize / kBitmapTokens;
  const Regions regions = regions_of(args, call);
  const int bitmaps = num_bitmaps(args.max_tokens);
  const int bitmap = lane_index() / kBitmapTokens,
            peer = lane_index() % kBitmapTokens;  // the packet that my lane stores
  const int from_end = warps_of_grid() - 2 - warp_in_grid(), turn = from_end < 0 ? warps_of_grid() - 1 : from_end;
#pragma unroll 1
  for (int first = kBitmaps * turn; first < bitmaps; first += kBitmaps * warps_of_grid()) {
    const int token = first * kBitmapTokens + lane_index();
    const std::uint32_t ranks = token < tokens ? checked_ranks_of_token(call, args, token) : 0;
    std::uint32_t bits = 0;
#pragma unroll 1
    for (int r = 0; r < args.view.size; ++r) {
      const std::uint64_t tokens_with_row = ballot((ranks >> r & 1) != 0);
      if (peer == r) bits = static_cast<std::uint32_t>(tokens_with_row >> (bitmap * kBitmapTokens));
    }
    // If an entry is out of range, its bitmap is not sent; so no peer takes an incomplete call for a complete one.
    if (ballot(!call.live) != 0) return;
    if (peer < args.view.size && first + bitmap < bitmaps) {
      store_packet(regions.header(peer, args.view.rank) + (first + bitmap), with_configuration(args, bits), call.epoch);
    }
  }
}

/// [thread] Waits for packet `packet` of a source's header. False if the call is over.
FARWARP_DEVICE bool await_header(Call& call, const Args& args, int source, int packet, std::uint64_t& data) {
  const Global<Packet> from[] = {mine(regions_of(args, call).header(args.view.rank, source)) + packet};
  std::uint64_t found[1] = {};
  if (!wait_packets<1>(call, from, 1, found, Wait{.site = kSiteHeader, .peer = source})) return false;
  data = found[0];
  return true;
}

/// [thread] Stores bitmap `bitmap`, which `source` has sent, in shared memory.
FARWARP_DEVICE void take_bitmap(Call& call, const Args& args, int source, int bitmap, std::uint64_t data) {
  check_configuration(call, args, source, data);
  store(bitmaps_of(args) + bitmap, static_cast<std::uint32_t>(data));
}

/// [block] Waits for the bitmaps of all sources, and stores them in shared memory. A thread that gives up sets
/// call.live to false. The caller continues with block_any(!call.live), which also orders reads of the bitmaps after
/// the stores. A rank's bitmaps also say that its previous call is over. So this rank's next call may write the buffers
/// that the previous one used (ORDER.md, 5).
FARWARP_DEVICE void await_bitmaps(Call& call, const Args& args) {
#pragma unroll 1
  for (int i = thread_index(); i < bitmap_count(args); i += num_threads()) {
    const int packet = args.by_ranks.quotient(i), source = rank_after(args, 1 + i - packet * args.view.size);
    std::uint64_t data = 0;
    if (!await_header(call, args, source, packet, data)) break;
    take_bitmap(call, args, source, i, data);
  }
}

/// [thread] Whether `source` sends a row for its token `token`.
FARWARP_DEVICE bool has_row(const Args& args, int source, int token) {
  return (load(bitmaps_of(args) + bitmap_of(args, source, token)) >> token % kBitmapTokens & 1) != 0;
}

/// [warp] Sum of `value` over the lanes below mine, and over all lanes in `total`.
FARWARP_DEVICE std::int32_t sum_below(std::int32_t value, std::int32_t& total) {
  std::int32_t sum = value;
  for (int step = 1; step < Target::kWarpSize; step *= 2) {
    const std::int32_t other = shuffle(sum, lane_index() - step < 0 ? 0 : lane_index() - step);
    if (lane_index() >= step) sum += other;
  }
  total = shuffle(sum, Target::kWarpSize - 1);
  return sum - value;
}

/// Numbers the rows that arrive: the first 32 tokens of each source in turn, beginning with the rank after mine, then
/// the next 32. By blocks of 32 tokens this is roughly the order in which they are sent; among sources it is not. A
/// warp asks for rows in ascending order; each of its lanes holds a bitmap.
class ArrivingRows {
 public:
  FARWARP_DEVICE explicit ArrivingRows(const Args& args) : args_(args) {}

  /// [warp] Source and token of row `row_number`, which must not be less than in the previous call. False if there is
  /// no such row.
  FARWARP_DEVICE bool find(int row_number, int& source, std::int32_t& token) {
    for (;;) {
      const std::uint64_t ends_after = ballot(end_ > row_number);
      if (ends_after != 0) {
        locate(row_number, lowest_bit(ends_after), source, token);
        return true;
      }
      first_ += Target::kWarpSize;
      if (first_ >= bitmap_count(args_)) return false;
      const int bitmap = first_ + lane_index();
      bits_ = bitmap < bitmap_count(args_) ? load(bitmaps_of(args_) + bitmap) : 0;
      const int rows = count_bits(bits_);
      int all = 0;
      end_ = rows_before_ + sum_below(rows, all) + rows;
      rows_before_ += all;
    }
  }

  /// Number of rows of all sources; valid after find() has returned false.
  FARWARP_DEVICE int count() const { return rows_before_; }

 private:
  /// [warp] Finds row `row_number` in the bitmap of `lane`. Each lane examines one bit.
  FARWARP_DEVICE void locate(int row_number, int lane, int& source, std::int32_t& token) const {
    const std::uint64_t bits = shuffle(bits_, lane);
    const int index = row_number - (shuffle(end_, lane) - count_bits(bits));
    const std::uint64_t at = ballot((bits >> lane_index() & 1) != 0 && count_bits(bits & lanes_below()) == index);
    const int bitmap = first_ + lane, packet = args_.by_ranks.quotient(bitmap);
    source = rank_after(args_, 1 + bitmap - packet * args_.view.size);
    token = packet * kBitmapTokens + lowest_bit(at);
  }

  const Args& args_;
  int first_ = -Target::kWarpSize;  // lane 0's bitmap
  std::uint32_t bits_ = 0;          // the lane's bitmap
  int end_ = 0;                     // number of rows in all bitmaps up to and including the lane's
  int rows_before_ = 0;             // number of rows in all bitmaps read so far
};

/// [block] Calls `work(segment)` on a warp for each segment of each row that arrives. `work` returns false if the call
/// is over. A segment begins at a multiple of `align` vectors. Returns the number of rows, or 0 if the call is over.
template <int align, class Visit>
FARWARP_DEVICE int for_each_arriving_segment(const Args& args, const Visit& work) {
  ArrivingRows rows(args);
#pragma unroll 1
  for (int item = worker_warp_number(args);; item += args.roles.workers * warps_per_block()) {
    const int row_number = args.by_segments.quotient(item);
    int source = 0;
    std::int32_t token = 0;
    if (!rows.find(row_number, source, token)) return rows.count();
    const Segment segment = segment_of<align>(args, token, item - row_number * args.segments);
    if (!work(ReceivedSegment{source, token, row_number, segment.number, segment.first, segment.last})) return 0;
  }
}

}  // namespace farwarp::FARWARP_TARGET::moe
