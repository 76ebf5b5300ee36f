// How weights lie in device memory; then activations, a worker's shared memory for products, and Task.
//
// Weights: slices, so that what the workers of one launch read at the same time lies side by side, because neighbouring
// blocks should read neighbouring memory (probes/README.md). A tile is 16 rows of the matrix. A slice is 256 of K of a
// tile, 8 KB, in fragments of 16 x 16. Each of a worker's eight warps multiplies 32 of these, two fragments; with
// streamed vectors on Hopper a warp has a tile, and multiplies all 16 fragments of every second slice. A tile belongs
// to one worker, so no sum crosses workers. A worker's tiles are consecutive. In layouts of weights `column` is an
// element's place in K, elsewhere a sequence.
//
// With packets two slices of a tile are a slot, which is copied at once; a pass, as much of K as a worker keeps
// activations of, may end with half a slot. Memory has the order pass, tile, slot, worker, in which workers read.
//
// With streamed vectors a slot is a slice of two tiles, a pair. Memory has the order pair, slice, worker. A group is as
// many tiles as a worker keeps sums of. On Hopper a worker reads a slice of all pairs of a group before the next slice,
// so it reads from two such places in turn; on CDNA it reads tile after tile of a pass.
#pragma once

#include <cstdint>

#include "farwarp/base/fragments.h"
#include "farwarp/base/machine_shape.h"
#include "farwarp/base/swizzle.h"

namespace farwarp::fleet {

inline constexpr int kTileRows = 16;
inline constexpr int kSliceDepth = 256;
inline constexpr int kSliceBytes = kTileRows * kSliceDepth * 2;
inline constexpr int kWarps = 8;           ///< of a worker, that compute
inline constexpr int kSliceFragments = 2;  ///< of a warp, where the eight share a slice
inline constexpr int kFragmentBytes = 16 * 16 * 2;
inline constexpr int kMaxColumns = 64;
/// Of more columns than this, vectors are plain memory, and stream through shared memory (stream.dev.h).
inline constexpr int kMaxPacketColumns = 8;
constexpr bool streams(int columns) { return columns > kMaxPacketColumns; }
inline constexpr int kMaxPassSlices = 20;
/// Of a worker for so many columns. A pass of a vector waits in shared memory, of which CDNA3 has 64 KB. Where a thread
/// loads vectors, none does, and this number changes no layout.
constexpr int most_pass_slices(int columns, bool bulk_copy) {
  if (streams(columns)) return columns > 32 ? 2 : 64 / columns;
  return bulk_copy || columns <= 4 ? kMaxPassSlices : kMaxPassSlices / 2;
}
inline constexpr int kGroupTiles = 4;  ///< of a worker, whose sums are in registers while a vector streams by: a group
/// Tiles of a group that are multiplied by one instruction and finished together: a portion.
constexpr int portion_tiles(bool bulk_copy) { return bulk_copy ? kGroupTiles : 1; }
inline constexpr int kMaxPassTiles =
    4;  ///< of a worker, in a matrix of several passes: their sums wait in shared memory

// A worker's ring of slots, where there are bulk copies.
inline constexpr int kSlotSlices = 2;
inline constexpr int kSlotBytes = kSlotSlices * kSliceBytes;
/// Of a worker for so many columns: what its vectors leave room for (ProjectShared).
constexpr int ring_slots(int columns) {
  if (streams(columns)) return columns > 32 ? 7 : columns > 16 ? 8 : 11;
  return columns > 4 ? 8 : columns > 2 ? 10 : 12;
}
/// Slices of a streamed vector that are in shared memory.
constexpr int vector_slots(int columns) { return columns > 32 ? 2 : 4; }
constexpr int vector_slice_bytes(int columns) { return kSliceDepth * columns * 2; }
/// Copies of slots that are under way; more make every other access of the multiprocessor wait longer
/// (probes/README.md). Of 64 columns one less, so that a warp knows the phases of its pages' slots (attend.dev.h).
constexpr int slots_in_flight(int columns) { return columns > 32 ? 3 : 4; }
/// The same of the first slots of a streamed task: they fill the ring while the step before ends, and its release waits
/// as long as copies take.
inline constexpr int kSlotsInFlightAhead = 2;
static_assert(kSlotsInFlightAhead <= slots_in_flight(64) && kSlotsInFlightAhead <= slots_in_flight(16));
/// Streamed vectors, within a group: a warpgroup waits for every second slice, which has `slots` slots. A wait
/// tells a slot's phase only from the phase before, so that one must have ended. It has if the warpgroup has waited for
/// it, or if the loader has since issued as many copies as can be under way.
constexpr bool knows_phases(int columns, int slots) {
  // Slots between the first one of a slice in its phase before, and the last one that the warpgroup has waited for.
  const int before = ring_slots(columns) - slots - 1;
  return before < slots || before >= slots_in_flight(columns);
}
constexpr int aligned(int bytes, int to) { return (bytes + to - 1) / to * to; }
constexpr int ring_bytes(int columns, bool bulk_copy) {
  if (!bulk_copy) return 0;
  return aligned(ring_slots(columns) * (kSlotBytes + 16), streams(columns) ? kSwizzleAlignment : 16);
}

/// Consecutive things of one worker.
struct Share {
  std::int32_t first, count;
};
/// The first `total` % `workers` workers have one more than the others.
constexpr Share share_of(int total, int workers, int worker) {
  const int base = total / workers, extra = total % workers;
  return {worker * base + (worker < extra ? worker : extra), base + (worker < extra ? 1 : 0)};
}
/// Whose share has thing `i`.
constexpr int owner_of(int total, int workers, int i) {
  const int base = total / workers, extra = total % workers;
  const int in_longer = extra * (base + 1);
  return i < in_longer ? i / (base + 1) : extra + (i - in_longer) / base;
}

struct MatrixShape {
  std::int32_t tiles;
  std::int32_t slices;                        ///< of a tile
  std::int32_t most_slices = kMaxPassSlices;  ///< of a pass
  /// Of a worker's group: kGroupTiles, which loaders and multipliers have built in. 0: no groups.
  std::int32_t group_tiles = 0;

  constexpr int passes() const { return (slices + most_slices - 1) / most_slices; }
  /// Slices of a tile in each pass but the last.
  constexpr int pass_slices() const { return (slices + passes() - 1) / passes(); }
  constexpr int slices_of(int pass) const {
    const int rest = slices - pass * pass_slices();
    return rest < pass_slices() ? rest : pass_slices();
  }
  constexpr std::int64_t bytes() const { return std::int64_t{tiles} * slices * kSliceBytes; }
  constexpr int groups(int count) const { return group_tiles == 0 ? 1 : (count + group_tiles - 1) / group_tiles; }
  /// Two tiles of a worker in a matrix with groups, or its last one. A slice of both is a slot.
  struct Pair {
    std::int64_t first;  ///< where its first slice lies, in slices from the matrix's begin
    std::int32_t step;   ///< to its next slice
    std::int32_t tiles;  ///< 0: the worker has no such pair
  };
  constexpr Pair pair_of(int workers, int worker, int pair) const {
    const auto in_pair = [&](int count) {
      const int rest = count - 2 * pair;
      return rest < 0 ? 0 : rest > 2 ? 2 : rest;
    };
    const int base = tiles / workers, extra = tiles % workers, longer = in_pair(base + 1), shorter = in_pair(base);
    const int before = worker < extra ? worker * longer : extra * longer + (worker - extra) * shorter;
    return {std::int64_t{2 * pair * workers} * slices + before, extra * longer + (workers - extra) * shorter,
            worker < extra ? longer : shorter};
  }
  /// Slice `slice` of pass `pass` of the worker's tile `tile`, in slices from the matrix's begin.
  constexpr std::int64_t slice_at(int workers, int worker, int pass, int tile, int slice) const {
    return group_tiles > 0 ? slice_in_pair_at(workers, worker, pass, tile, slice)
                           : slice_in_pass_at(workers, worker, pass, tile, slice);
  }
  /// The same of a matrix with groups.
  constexpr std::int64_t slice_in_pair_at(int workers, int worker, int pass, int tile, int slice) const {
    const Pair pair = pair_of(workers, worker, tile / 2);
    return pair.first + std::int64_t{pass * pass_slices() + slice} * pair.step + tile % 2;
  }
  /// The same of one without.
  constexpr std::int64_t slice_in_pass_at(int workers, int worker, int pass, int tile, int slice) const {
    const int base = tiles / workers, count = slices_of(pass);
    const std::int64_t earlier = std::int64_t{pass} * pass_slices() * tiles;
    const int full = tile < base ? tile : base;
    const int side_by_side = tile < base ? workers : tiles % workers;
    const int first = slice / kSlotSlices * kSlotSlices,
              in_slot = count - first < kSlotSlices ? count - first : kSlotSlices;
    return earlier + std::int64_t{full} * count * workers + std::int64_t{first} * side_by_side + worker * in_slot +
           slice - first;
  }
};

/// How a fragment of 16 x 16 lies in memory: each lane's part of A together. Hopper: its words in the order of the
/// instruction's registers, so that none is moved.
enum class FragmentOrder { kMma, kWgmma, kMfma };
/// Of keys, values, and weights that are multiplied by packets.
constexpr FragmentOrder fragment_order(MatrixUnit unit) {
  return unit == MatrixUnit::kWgmma ? FragmentOrder::kMma : FragmentOrder::kMfma;
}
/// Of weights.
constexpr FragmentOrder fragment_order(MatrixUnit unit, const MatrixShape& shape) {
  return unit == MatrixUnit::kWgmma && shape.group_tiles > 0 ? FragmentOrder::kWgmma : fragment_order(unit);
}

/// Where element (row, column) of a fragment lies in it, in bytes.
constexpr int fragment_offset(FragmentOrder order, int row, int column) {
  if (order == FragmentOrder::kMfma) return (column / 4 * 16 + row) * 8 + column % 4 * 2;
  // mma() takes the columns of A and B in an order of its own, so that a lane has four consecutive ones
  // (mma_operand()); wgmma() in theirs (wgmma_a()).
  const int lane = row % 8 * 4 + (order == FragmentOrder::kMma ? column / 4 : column % 8 / 2);
  const int second = order == FragmentOrder::kMma ? column % 4 / 2 : column / 8;  // of two pairs of columns
  return lane * 16 + second * 8 + row / 8 * 4 + column % 2 * 2;
}

/// Where element (row, column) of a tile lies in one of its slices, in bytes; `column` is of the slice.
constexpr int slice_offset(FragmentOrder order, int row, int column) {
  return column / 16 * kFragmentBytes + fragment_offset(order, row, column % 16);
}

/// Where element (row, column) of the matrix lies, in bytes from its begin.
constexpr std::int64_t element_offset(const MatrixShape& shape, MatrixUnit unit, int workers, int row, int column) {
  const int tile = row / kTileRows, worker = owner_of(shape.tiles, workers, tile);
  const int slice = column / kSliceDepth, pass = slice / shape.pass_slices();
  const std::int64_t at = shape.slice_at(workers, worker, pass, tile - share_of(shape.tiles, workers, worker).first,
                                         slice - pass * shape.pass_slices());
  return at * kSliceBytes + slice_offset(fragment_order(unit, shape), row % kTileRows, column % kSliceDepth);
}

// ---- activations
//
// Between tasks activations are vectors of bf16 for several columns (sequences). Rows 4i to 4i + 3 of a column are a
// four, 8 bytes. In a buffer of packets each four is a packet, with a tag that says of which token and layer it is: a
// reader needs no counter and no fence, and nothing is ever cleared. In a plain buffer fours lie side by side, and the
// dispatcher orders who writes and who reads (stream_dispatcher.dev.h, gang.dev.h). Places are in fours from the
// buffer's begin.

/// The four fours of 16 rows of a column lie together. Of a streamed vector on Hopper the 16 of 64 rows, swizzled as
/// wgmma() reads them; on CDNA the eight of 32 rows, so that those which a lane multiplies by a warp's two fragments of
/// a slice are neighbours.
constexpr std::int64_t four_at(MatrixUnit unit, int columns, int row, int column) {
  if (!streams(columns)) return (std::int64_t{row / 16} * columns + column) * 4 + row / 4 % 4;
  if (unit == MatrixUnit::kMfma)
    return (std::int64_t{row / 32} * columns + column) * 8 + row / 4 % 4 * 2 + row / 16 % 2;
  return (std::int64_t{row / 64} * columns * kSwizzleRowBytes + swizzled_offset(column, row % 64 * 2)) / 8;
}

// A vector that RMSNorm reads has been multiplied by the norm's weights. After its fours follow sums of squares of the
// numbers before that product, fp32. Each tile and pair of columns has the place of a four for its two sums.
constexpr int column_pairs(int columns) { return (columns + 1) / 2; }
constexpr std::int64_t squares_at(int columns, int rows, int tile, int pair) {
  return std::int64_t{rows} / 4 * columns + std::int64_t{tile} * column_pairs(columns) + pair;
}
constexpr std::int64_t normed_fours(int columns, int rows) { return squares_at(columns, rows, rows / kTileRows, 0); }
/// In a plain buffer of an even number of columns they are numbers, [tiles][columns].
constexpr int squares_bytes(int columns, int rows) { return rows / kTileRows * columns * 4; }

// Several ranks with a share each of a matrix's K have partial sums, fp32: a packet for two rows. If vectors are
// packets, each rank sends its own to every rank. Of streamed vectors each column has an owner, a rank that adds up,
// and sends every rank what becomes of four rows. Of the two packets of four rows, all first ones of a tile lie
// together, then all second ones: a warp's store of either fills whole lines.
/// Row `row`, which is even, of rank `source`'s sums.
constexpr std::int64_t rank_sums_at(int columns, int tiles, int source, int tile, int column, int row) {
  return (((std::int64_t{source} * tiles + tile) * 2 + row / 2 % 2) * columns + column) * (kTileRows / 4) + row / 4;
}
/// What the owner of a column sends of rows `row` to `row` + 3, four bf16 of the hidden vector: after the sums of all
/// ranks.
constexpr std::int64_t rank_hidden_at(int columns, int tiles, int ranks, int tile, int column, int row) {
  return rank_sums_at(columns, tiles, ranks, 0, 0, 0) + (std::int64_t{tile} * columns + column) * (kTileRows / 4) +
         row / 4;
}
/// The rank that adds up a column.
constexpr int column_owner(int columns, int ranks, int column) { return column * ranks / columns; }
constexpr std::int64_t rank_sums_packets(int columns, int tiles, int ranks) {
  return streams(columns) ? rank_hidden_at(columns, tiles, ranks, tiles, 0, 0)
                          : rank_sums_at(columns, tiles, ranks, 0, 0, 0);
}

/// Partial sums that a sum is made of: each warp has those of an eighth of K; of streamed vectors on Hopper each
/// warpgroup those of every second slice.
constexpr int partial_sums(int columns, bool bulk_copy) { return streams(columns) && bulk_copy ? 2 : kWarps; }
/// Where rows 4i to 4i + 3 of a tile's partial sums of a streamed vector lie, in sums. The order of a column's four
/// changes with the column, so that lanes that have the same rows of several columns store to different banks.
constexpr int portion_sums_at(int columns, int tile, int column, int row) {
  return (tile * columns + column) * kTileRows + ((row / 4) ^ (column / 2 % 4)) * 4;
}
/// Buffers of partial sums: two with packets; one with streamed vectors, where a barrier follows the finishing of each
/// portion.
constexpr int sum_buffers(int columns) { return streams(columns) ? 1 : 2; }

/// Threads that finish a tile of at most eight columns: one for each sum, in whole warps.
constexpr int finishing_threads(int columns, int warp_size) { return aligned(columns * kTileRows, warp_size); }
/// Threads of a worker: warps that compute, then, where there are bulk copies, those that finish tiles and one that
/// loads weights. Of streamed vectors the warps that compute finish tiles, and one more loads vectors.
constexpr int worker_threads(int columns, int warp_size, bool bulk_copy) {
  const int finishing = streams(columns) ? warp_size : finishing_threads(columns, warp_size);
  return kWarps * warp_size + (bulk_copy ? finishing + warp_size : 0);
}

/// Where the numbers of projections lie in a worker's shared memory; bytes.
template <int columns, bool bulk_copy>
struct ProjectShared {
  static constexpr int kTile = columns * kTileRows * 4, kSumBuffers = sum_buffers(columns);
  static constexpr bool kLoadsVectors = streams(columns) && bulk_copy;
  static constexpr int kPartials = partial_sums(columns, bulk_copy);
  static constexpr int kPortionTiles = streams(columns) ? portion_tiles(bulk_copy) : 1;
  /// [tiles of a portion][columns][16] fp32
  static constexpr int partials(int buffer, int partial) {
    return (buffer * kPartials + partial) * kPortionTiles * kTile;
  }
  static constexpr int kept(int tile) {
    return partials(kSumBuffers, 0) + tile * kTile;
  }                                                                         ///< the same, of earlier passes
  static constexpr int kRing = kept(streams(columns) ? 0 : kMaxPassTiles);  ///< mbarriers of the buffers
  /// [warps][columns] fp32, of a streamed vector: what each warp has added of a column's squares.
  static constexpr int kSquares = kRing + kSumBuffers * 16;
  /// mbarriers of a vector's slices; where no thread loads vectors, the warps' parts of a pass begin here.
  static constexpr int kVectorRing = kSquares + (streams(columns) ? kWarps * columns * 4 : 0);
  /// Only where a thread loads vectors.
  static constexpr int kVectorSlices = aligned(kVectorRing + vector_slots(columns) * 16, kSwizzleAlignment);
  /// A warp's part of a pass: [fragments][columns][16] bf16; streamed (CDNA):
  /// [slices][columns][4][2 fragments][4].
  static constexpr int vector(int warp) {
    return kVectorRing + warp * most_pass_slices(columns, bulk_copy) * kSliceFragments * columns * 32;
  }
  /// Where a thread loads vectors: [4][columns][64] bf16, swizzled.
  static constexpr int vector_slice(int slot) { return kVectorSlices + slot * vector_slice_bytes(columns); }
  static constexpr int kBytes = kLoadsVectors ? vector_slice(vector_slots(columns)) : vector(kWarps);
};

/// What becomes of the sums of a task that multiplies.
enum class Epilogue : std::int16_t {
  kNone,   ///< the task multiplies nothing
  kStore,  ///< rows of `out`
  kGated,  ///< SiLU of rows 0 to 7 of a tile, times rows 8 to 15: rows of `out`
  /// added to the residual, which is the hidden vector: that times a norm's weights, and its squares, are `out`.
  /// Without weights (a matrix of tiles without slices) the model says what the vector begins with
  kHidden,
  kModel  ///< the model's own
};

/// A task, as a worker reads it.
struct alignas(16) Task {
  std::int32_t kind;   ///< the model's number of the step's operation
  std::int32_t layer;  ///< tells the tag of what the task reads
  std::int32_t first;
  /// From `first` on: tiles, one after the other; of a step without tiles its units, each as many after the one before
  /// as there are workers.
  std::int32_t count;
  MatrixShape matrix;     ///< of which these tiles are
  std::int64_t weights;   ///< the matrix, in bytes from the weights' begin
  std::int64_t in, out;   ///< buffers: packets, in bytes in the heap; plain, in bytes from Launch::plain
  std::int64_t out_norm;  ///< kHidden: the norm's weights, bf16, in bytes from the weights' begin
  /// kHidden: packets, in bytes in the heap of every rank: the sums of all ranks are added; -1: sums are whole
  std::int64_t rank_sums;
  std::int32_t in_norm_rows;  ///< rows of `in`, if its RMSNorm is multiplied; else 0
  Epilogue epilogue;
  /// kHidden with weights: the tag of `out` minus that of `layer`. Other tasks' outputs have the tag of `layer`.
  std::int16_t out_later;
};
static_assert(sizeof(Task) == 80);

inline constexpr int kTaskPlaces = 4;  ///< of tasks that a worker's loading thread hands over
inline constexpr int kTaskRingBytes = kTaskPlaces * (static_cast<int>(sizeof(Task)) + 16);

}  // namespace farwarp::fleet
