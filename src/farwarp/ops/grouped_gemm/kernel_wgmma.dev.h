// grouped_gemm on Hopper: persistent blocks of a warpgroup that loads and one or two that multiply and store.
#pragma once

#include "farwarp/ops/grouped_gemm/args.h"
#include "farwarp/ops/grouped_gemm/groups.dev.h"
#include "farwarp/tile/gemm/epilogue_wgmma.dev.h"
#include "farwarp/tile/gemm/gate_wgmma.dev.h"
#include "farwarp/tile/gemm/mainloop_wgmma.dev.h"
#include "farwarp/tile/gemm/scaled_steps_wgmma.dev.h"
#include "farwarp/world/device/wait.dev.h"

namespace farwarp::FARWARP_TARGET::grouped_gemm {

// Registers of a thread. All warps together may not have more than the block was launched with, or raise_registers()
// waits for ever.
inline constexpr int kLoaderRegisters = 40, kMultiplierRegisters = 232;
static_assert(128 * kLoaderRegisters + 256 * kMultiplierRegisters <= farwarp::tile::kWgmmaThreads * 168);

/// [warp] Joins the call for its block, says what the groups' rows have wrong, and leaves the call. The other threads
/// need not wait for it: no work here depends on the epoch or waits for a peer.
FARWARP_DEVICE void join_and_leave_call(const Args& args, const BadRows& bad) {
  int group = bad.group;  // the first
  for (int distance = 1; distance < Target::kWarpSize; distance *= 2) {
    const int other = shuffle_xor(group, distance);
    group = other < group ? other : group;
  }
  const bool is_bad = group < args.groups;
  const std::uint64_t lanes = ballot(is_bad && bad.group == group);
  const int first = lanes == 0 ? 0 : lowest_bit(lanes);
  const std::uint64_t allowed = shuffle(bad.allowed, first), found = shuffle(bad.found, first);
  if (lane_index() != 0) return;
  std::uint32_t phase = 0;
  Call call = read_call(args.view, args.slot, phase);
  if (!call.live) return;
  if (block_index() == 0) {
    claim_call(call);
    if (is_bad) give_up_inlined(call, StatusCode::kBadInput, kSiteRows, -1, allowed, found);
  }
  leave_call(call, 0);
}

template <class T, int columns, int rows, bool gated, bool fp8>
class Kernel {
 public:
  using Block = tile::WgmmaBlock<T, columns, kBoxes, rows>;
  using Tile = typename Block::Tile;
  static constexpr int kParts = gated ? 2 : 1;  ///< of a tile's columns: the gate's and the up projection's
  static constexpr int kPartColumns = columns / kParts;

  FARWARP_DEVICE explicit Kernel(const Args& args)
      : args_(args), block_{block_shared()}, table_(block_shared() + Block::kShared.total(), args) {}

  FARWARP_DEVICE void run() const {
    if (thread_index() == 0) block_.initialise();
    const bool builds = thread_index() / Target::kWarpSize == 1;
    BadRows bad;
    if (builds) bad = table_.build(args_);
    block_sync();
    BlockWaits waits;
    const auto wait = [&](Shared<Mbarrier> barrier, std::uint32_t parity) {
      return wait_mbarrier(waits, args_.view, barrier, parity);
    };
    const int works = uniform(table_.works(args_)), warpgroup = thread_index() / 128;
    if (warpgroup == 0) {
      if constexpr (Tile::kMultipliers > 1) lower_registers<kLoaderRegisters>();
      if (thread_index() == 0) {
        load_works(works, wait);
      } else if (builds) {
        if (lane_index() == 0) tensor_prefetch(args_.y);
        join_and_leave_call(args_, bad);
      }
    } else {
      if constexpr (Tile::kMultipliers > 1) raise_registers<kMultiplierRegisters>();
      multiply_works(warpgroup - 1, works, wait);
    }
    report_expired(waits, args_.view, args_.slot, kSiteStage);
  }

 private:
  using Writer = tile::BoxWriter<kBoxes>;

  FARWARP_DEVICE int first_column(const Work& work) const { return work.column * kPartColumns; }
  /// The row of w, of all groups, of a tile's first column.
  FARWARP_DEVICE int row_of_w(const Work& work) const { return work.group * kParts * args_.n + first_column(work); }

  /// [thread] The role of the loader.
  template <class WaitBarrier>
  FARWARP_DEVICE void load_works(int works, const WaitBarrier& wait) const {
    const Tile tile = block_.tile();
    tile::RingPosition<Tile::kStages> at, last;
    for (int number = block_index(); number < works; number += num_blocks()) {
      const Work work = table_.work(args_, number);
      const int row = row_of_w(work);
      const TraceStart start = trace_start();
      for (int step = 0; step < args_.steps; ++step) {
        if (!wait(tile.ring.empty(at.stage), at.parity ^ 1)) return;  // in the first round every stage is empty
        const Shared<Mbarrier> full = tile.ring.full(at.stage);
        mbarrier_arrive_expect(full, Tile::kStageBytes);
        tensor_load(tile.left(at.stage), args_.x, work.rows.begin, step * Tile::kStepDepth, full);
#pragma unroll
        for (int part = 0; part < kParts; ++part)
          tensor_load(tile.right(at.stage) + part * kPartColumns * farwarp::kSwizzleRowBytes, args_.w,
                      row + part * args_.n, step * Tile::kStepDepth, full);
        last = at;
        at.advance();
      }
      trace_work(start, TraceWork::kLoad, number);
    }
    if (works > block_index()) wait(tile.ring.empty(last.stage), last.parity);
  }

  /// [warpgroup] The role of multiplier number `multiplier`.
  template <class WaitBarrier>
  FARWARP_DEVICE void multiply_works(int multiplier, int works, const WaitBarrier& wait) const {
    const Writer writer(block_.boxes(multiplier), 1 + multiplier);
    tile::RingPosition<Tile::kStages> at;
    for (int number = block_index(); number < works; number += num_blocks()) {
      const Work work = table_.work(args_, number);
      float sums[1][Tile::kSums];
      const TraceStart multiplied = trace_start();
      multiply(work, multiplier, sums, at, wait);
      trace_warp(multiplied, TraceWork::kMultiply, number);
      const TraceStart stored = trace_start();
      store_sums(work, work.rows.begin + 64 * multiplier, writer, sums[0]);
      trace_warp(stored, TraceWork::kStore, number);
    }
    writer.finish();
  }

  template <class WaitBarrier>
  FARWARP_DEVICE void multiply(const Work& work, int multiplier, float (&sums)[1][Tile::kSums],
                               tile::RingPosition<Tile::kStages>& at, const WaitBarrier& wait) const {
    if constexpr (fp8) {
      const farwarp::tile::ScaleStrides& of_w = args_.w_scales;
      int of_columns[kParts];
#pragma unroll
      for (int part = 0; part < kParts; ++part)
        of_columns[part] = (work.group * kParts + part) * args_.w_scales_of_matrix +
                           first_column(work) / farwarp::tile::kScaledDepth * static_cast<int>(of_w.row_stride);
      const tile::StepScales<kParts> scales(args_.x_scales, work.rows.begin + 64 * multiplier, work.rows.end, of_w,
                                            of_columns);
      tile::multiply_scaled_steps(block_.tile(), multiplier, 0, args_.steps, scales, sums, at, wait);
    } else {
      tile::multiply_steps(block_.tile(), multiplier, args_.steps, sums, at, wait);
    }
  }

  /// [warpgroup] Stores the sums of 64 rows from `row`. Rows from the group's end on are another group's.
  FARWARP_DEVICE void store_sums(const Work& work, int row, const Writer& writer,
                                 const float (&sums)[Tile::kSums]) const {
    const int end = work.rows.end;
    const auto send_box = [&](int box_row, int column, Shared<std::byte> box) {
      if (box_row + 64 <= end) {
        tile::store_box(args_.y, box_row, column, box);
      } else {
        store_rows(box_row, end, column, box);
      }
    };
    const std::int64_t first_bias = std::int64_t{work.group} * kParts * args_.n;
    const Global<const T> bias(args_.bias == nullptr ? nullptr : static_cast<const T*>(args_.bias) + first_bias);
    if constexpr (gated) {
      tile::fill_gated_boxes<T, kPartColumns>(writer, send_box, row, first_column(work), args_.clamped != 0, bias,
                                              args_.n, sums);
    } else {
      tile::fill_boxes<T, columns>(writer, send_box, row, first_column(work), bias, args_.n, sums);
    }
  }

  /// [warpgroup] Stores the rows before `end` of a box that begins at (row, column).
  FARWARP_DEVICE void store_rows(int row, int end, int column, Shared<std::byte> box) const {
    constexpr int kVectors = 8, kElements = 8;  // of a row; of a vector
    for (int i = thread_index() % 128; i < 64 * kVectors; i += 128) {
      const int box_row = i / kVectors, vector = i % kVectors, first = column + vector * kElements;
      if (row + box_row >= end || first >= args_.n) continue;
      const Shared<std::byte> from = box + farwarp::swizzled_offset(box_row, 16 * vector);
      T* const to = static_cast<T*>(args_.y_rows) + (std::int64_t{row} + box_row) * args_.n + first;
      store(Global<Vec16>(reinterpret_cast<Vec16*>(to)), load(Shared<Vec16>(reinterpret_cast<Vec16*>(from.raw))));
    }
  }

  const Args& args_;
  Block block_;
  GroupTable<rows> table_;
};

}  // namespace farwarp::FARWARP_TARGET::grouped_gemm
