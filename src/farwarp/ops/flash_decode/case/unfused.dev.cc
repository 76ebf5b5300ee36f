// Merges of ranks' outputs in a kernel of its own, after a local flash-decode: bsp and fused-wait (unfused.h).
#include "farwarp/base/half.h"
#include "farwarp/ops/flash_decode/case/unfused_args.h"
#include "farwarp/world/device/words.dev.h"

namespace farwarp::FARWARP_TARGET::decode {

using namespace farwarp::decode;

inline constexpr float kNothing = -__builtin_huge_valf();  ///< LSE of a row that has seen no key

/// A warp has some rows at a time, and each of a row's lanes 8 columns.
struct Rows {
  static constexpr int kLanes = kUnfusedVectors, kAtOnce = Target::kWarpSize / kLanes;
  static_assert(kLanes >= kMaxRanks);
  FARWARP_DEVICE static int lane() { return lane_index() % kLanes; }
  FARWARP_DEVICE static int row() { return lane_index() / kLanes; }

  /// [warp] Calls work(row, exists) for the rows of the warp.
  template <class Work>
  FARWARP_DEVICE static void for_each(const UnfusedArgs& args, const Work& work) {
    const int warps = num_threads() / Target::kWarpSize, stride = num_blocks() * warps * kAtOnce;
    for (int begin = (block_index() * warps + warp_index()) * kAtOnce; begin < args.rows; begin += stride)
      work(begin + row(), begin + row() < args.rows);
  }
};

/// Eight columns of a row, and its LSE, from each rank.
struct Outputs {
  Vec16 columns[kMaxRanks] = {};
  float lse[kMaxRanks] = {};
};

FARWARP_DEVICE Vec16 load_columns(const UnfusedArgs& args, int part, int row) {
  const auto from = reinterpret_cast<const Vec16*>(args.parts + part * args.part_bytes);
  return load(Global<const Vec16>(from) + (std::int64_t{row} * (args.head_dim / 8) + Rows::lane()));
}
FARWARP_DEVICE float load_lse(const UnfusedArgs& args, int part, int row) {
  return load(
      Global<const float>(reinterpret_cast<const float*>(args.parts + part * args.part_bytes + args.lse_offset)) + row);
}

template <class T>
FARWARP_DEVICE float column_of(Vec16 eight, int i) {
  return to_float(T{static_cast<std::uint16_t>((i < 4 ? eight.lo : eight.hi) >> i % 4 * 16)});
}

/// exp(lse - highest), where both may be minus infinity.
FARWARP_DEVICE float share_of(float lse, float highest) {
  return lse == kNothing ? 0.0f : exp2(multiply(add(lse, -highest), 1.44269504088896341f));
}

/// [thread] Adds the ranks' rows, each times its share of the denominator, in the order of the ranks.
template <class T>
FARWARP_DEVICE void store_merged(const UnfusedArgs& args, int row, const Outputs& of) {
  const float sink = args.sinks == nullptr ? kNothing : load(Global<const float>(args.sinks) + row % args.query_heads);
  float highest = sink;
#pragma unroll
  for (int rank = 0; rank < kMaxRanks; ++rank) {
    if (rank < args.ranks) highest = maximum(highest, of.lse[rank]);
  }
  float denominator = share_of(sink, highest), sum[8] = {};
#pragma unroll
  for (int rank = 0; rank < kMaxRanks; ++rank) {
    if (rank >= args.ranks) continue;
    const float share = share_of(of.lse[rank], highest);
    denominator = add(denominator, share);
#pragma unroll
    for (int i = 0; i < 8; ++i) sum[i] = fused_multiply_add(column_of<T>(of.columns[rank], i), share, sum[i]);
  }
  const float factor = denominator == 0 ? 0.0f : divide(1.0f, denominator);
  std::uint64_t pairs[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) pairs[i] = round_pair<T>(multiply(sum[2 * i], factor), multiply(sum[2 * i + 1], factor));
  if (Rows::lane() * 8 < args.head_dim)
    store(Global<Vec16>(static_cast<Vec16*>(args.out)) + (std::int64_t{row} * (args.head_dim / 8) + Rows::lane()),
          Vec16{pairs[1] << 32 | pairs[0], pairs[3] << 32 | pairs[2]});
  if (Rows::lane() == 0 && args.lse != nullptr)
    store(Global<float>(args.lse) + row,
          denominator == 0 ? kNothing : add(highest, multiply(log2(denominator), 0.693147180559945309f)));
}

/// bsp: the parts of all ranks are in this rank's memory.
template <class T>
FARWARP_DEVICE void combine(const UnfusedArgs& args) {
  Rows::for_each(args, [&args](int row, bool exists) {
    if (!exists) return;
    Outputs of;
#pragma unroll
    for (int rank = 0; rank < kMaxRanks; ++rank) {
      if (rank >= args.ranks) continue;
      if (Rows::lane() * 8 < args.head_dim) of.columns[rank] = load_columns(args, rank, row);
      of.lse[rank] = load_lse(args, rank, row);
    }
    store_merged<T>(args, row, of);
  });
}

/// At `where`: word `vector` of a row from `source`.
FARWARP_DEVICE Peer<Vec16> word_of(const UnfusedArgs& args, const Call& call, int where, int source, int row,
                                   int vector) {
  const std::int64_t source_row =
      std::int64_t{static_cast<int>(call.epoch & 1) * args.ranks + source} * args.rows + row;
  return peer_address<Vec16>(args.view, where, args.inbox) + (source_row * (kUnfusedVectors + 1) + vector);
}
/// The LSE is a word of 8 bytes whose upper half is 0, so it never looks absent.
FARWARP_DEVICE Peer<std::uint64_t> lse_word_of(const UnfusedArgs& args, const Call& call, int where, int source,
                                               int row) {
  return Peer<std::uint64_t>(&word_of(args, call, where, source, row, kUnfusedVectors).raw->lo);
}

/// [warp] Waits for the peers' rows and clears their words. A lane waits for its columns of all peers; lane i of a row
/// also for peer i's LSE.
FARWARP_DEVICE void receive(Call& call, const UnfusedArgs& args, int row, bool exists, float own_lse, Outputs& of) {
  const int me = args.view.rank, lane = Rows::lane(), place = exists ? row : 0;
  Global<const Vec16> from[kMaxRanks];
  std::uint32_t mask = 0;
#pragma unroll
  for (int source = 0; source < kMaxRanks; ++source) {
    const bool there = exists && source < args.ranks && source != me;
    if (there && lane * 8 < args.head_dim) mask |= 1u << source;
    from[source] = Global<const Vec16>(word_of(args, call, me, there ? source : 0, place, lane).raw);
  }
  const bool has_lse = exists && lane < args.ranks && lane != me;
  const Global<const std::uint64_t> lse_from[1] = {
      Global<const std::uint64_t>(lse_word_of(args, call, me, has_lse ? lane : 0, place).raw)};
  std::uint64_t lse[1] = {std::bit_cast<std::uint32_t>(own_lse)};  // of the lane for this rank it stays
  wait_words<1>(call, from, mask, of.columns, {.site = kUnfusedSiteOutput, .peer = -1});
  wait_words<1>(call, lse_from, has_lse ? 1u : 0u, lse, {.site = kUnfusedSiteOutput, .peer = lane});
  call.live = ballot(!call.live) == 0;
  if (!call.live) return;
  clear_words(from, mask);
  clear_words(lse_from, has_lse ? 1u : 0u);
#pragma unroll
  for (int source = 0; source < kMaxRanks; ++source)
    of.lse[source] =
        shuffle(std::bit_cast<float>(static_cast<std::uint32_t>(lse[0])), Rows::row() * Rows::kLanes + source);
}

/// fused-wait: sends this rank's part to all peers, waits for each row of theirs, and merges it.
template <class T>
FARWARP_DEVICE void exchange_and_combine(const UnfusedArgs& args) {
  Call call = begin_call(args.view, args.slot, 0);
  if (!call.live) return;
  const int me = args.view.rank, lane = Rows::lane();
  const auto own_columns = [&](int row, bool exists) {
    return exists && lane * 8 < args.head_dim ? load_columns(args, 0, row) : Vec16{};
  };
  Rows::for_each(args, [&](int row, bool exists) {
    const Vec16 columns = sendable(own_columns(row, exists));
    if (!exists) return;
    const std::uint64_t lse = std::bit_cast<std::uint32_t>(load_lse(args, 0, row));
    for (int i = 1; i < args.ranks; ++i) {
      const int rank = me + i < args.ranks ? me + i : me + i - args.ranks;
      if (lane * 8 < args.head_dim) store_words(word_of(args, call, rank, me, row, lane), columns);
      if (lane == 0) store_words(lse_word_of(args, call, rank, me, row), lse);
    }
  });
  Rows::for_each(args, [&](int row, bool exists) {
    if (!call.live) return;
    Outputs of;
    receive(call, args, row, exists, exists ? load_lse(args, 0, row) : 0.0f, of);
    const Vec16 own = own_columns(row, exists);
#pragma unroll
    for (int rank = 0; rank < kMaxRanks; ++rank) {
      if (rank == me) of.columns[rank] = own;
    }
    if (call.live && exists) store_merged<T>(args, row, of);
  });
  end_call(call, 0);
}

}  // namespace farwarp::FARWARP_TARGET::decode

namespace {
namespace target = farwarp::FARWARP_TARGET;
using farwarp::Bf16;
using farwarp::Half;
using farwarp::decode::kUnfusedThreads;
using farwarp::decode::UnfusedArgs;
}  // namespace

FARWARP_KERNEL(flash_decode_unfused_combine_bf16, UnfusedArgs, kUnfusedThreads) { target::decode::combine<Bf16>(args); }
FARWARP_KERNEL(flash_decode_unfused_combine_fp16, UnfusedArgs, kUnfusedThreads) { target::decode::combine<Half>(args); }
FARWARP_KERNEL(flash_decode_unfused_exchange_bf16, UnfusedArgs, kUnfusedThreads) {
  target::decode::exchange_and_combine<Bf16>(args);
}
FARWARP_KERNEL(flash_decode_unfused_exchange_fp16, UnfusedArgs, kUnfusedThreads) {
  target::decode::exchange_and_combine<Half>(args);
}
