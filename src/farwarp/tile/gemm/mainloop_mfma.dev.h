// The main loop on CDNA: all waves of a block copy both operands through registers into LDS, and multiply.
//
// A step of K is two stages. Each has its own half of LDS, its own registers between memory and LDS, and its own
// fragments, so that every index is a constant. While stage s is multiplied, s + 1 goes from LDS into fragments, s + 2
// goes from registers into LDS, and s + 3 and s + 4 are loaded from memory:
//
//   barrier            s + 1 is in LDS, and all waves have read the fragments of s
//   read fragments of s + 1
//   multiply s, first half
//   write s + 2 over s, load a later stage into the registers that this frees
//   multiply s, second half
//
// There is one barrier a stage. The only accesses that a wave has to wait for at it are its own to LDS, which are done
// by then. The feed runs across tiles: during an epilogue the next tile's operands are loaded.
//
// Rows of 64 bytes are half a cache line. With such rows both stages of a step are loaded together; otherwise each line
// would be read twice.
//
// tools/check_code_objects.py checks the instructions of a step, among them that enough matrix instructions stand
// between a load and its wait. Their counts are in ops/gemm/MEASURED.md.
#pragma once

#include "farwarp/base/fragments.h"
#include "farwarp/substrate/device.h"
#include "farwarp/tile/gemm/shape_mfma.h"

namespace farwarp::FARWARP_TARGET::tile {

using namespace farwarp::tile;

/// Constants of a tile and its place in LDS. T = Half or Bf16.
template <class T, MfmaShape shape>
struct MfmaTile {
  using Element = T;
  static constexpr MfmaShape kShape = shape;
  static constexpr int kRows = shape.rows;
  static constexpr int kColumns = shape.columns;
  static constexpr int kStepDepth = shape.step_depth();
  static constexpr int kThreads = shape.threads();
  static constexpr int kChunks = shape.chunks();
  static constexpr int kRowsAtOnce = kThreads / kChunks;  ///< rows that the block's threads copy with one chunk each
  static constexpr int kRowLoads = kRows / kRowsAtOnce;
  static constexpr int kColumnLoads = kColumns / kRowsAtOnce;
  static constexpr int kWaveRows = kRows / shape.row_waves;
  static constexpr int kWaveColumns = kColumns / shape.column_waves;
  static constexpr int kRowFragments = kWaveRows / 16;
  static constexpr int kColumnFragments = kWaveColumns / 16;
  static constexpr int kSlices = shape.depth / 32;  ///< 32 elements of K each; a lane reads 16 bytes of each
  static constexpr int kSums = kRowFragments * kColumnFragments * 4;
  static constexpr int kColumnsOffset = kRows * shape.row_bytes();  ///< byte offset of w's part of a stage
  static constexpr bool kWholeLines = shape.row_bytes() >= 128;
  static_assert(kRows % kRowsAtOnce == 0 && kColumns % kRowsAtOnce == 0 && kWaveColumns % 32 == 0);

  Shared<std::byte> memory;  ///< two stages

  FARWARP_DEVICE Shared<std::byte> stage(int number) const { return memory + number * shape.stage_bytes(); }
  /// [thread] First row and column of the tile that the thread's wave sums.
  FARWARP_DEVICE static int wave_row() { return warp_index() / shape.column_waves * kWaveRows; }
  FARWARP_DEVICE static int wave_column() { return warp_index() % shape.column_waves * kWaveColumns; }
};

/// The chunks of one stage that a thread carries from memory to LDS.
template <class Tile>
struct Transit {
  Vec16 rows[Tile::kRowLoads];
  Vec16 columns[Tile::kColumnLoads];
};

/// An operand in memory: `count` rows of K elements. `pitch`: elements from one row to the next. Rows are 16-byte
/// aligned.
template <class T>
struct Operand {
  const T* first;
  std::int64_t pitch;
  int count;
};

/// Where a thread reads its chunks of one tile.
template <class Tile>
class TileSource {
 public:
  using T = typename Tile::Element;

  /// [thread] Points this source at the tile whose first rows are `row` of x and `column` of w.
  FARWARP_DEVICE void open(const Operand<T>& x, const Operand<T>& w, int row, int column) {
    rows_ = Global<const std::byte>(reinterpret_cast<const std::byte*>(x.first + row * x.pitch));
    columns_ = Global<const std::byte>(reinterpret_cast<const std::byte*>(w.first + column * w.pitch));
    // Rows outside the matrix repeat the last row. Their sums are not stored.
    const auto offset = [](const Operand<T>& operand, int first, int index) {
      const int last = operand.count - 1 - first;
      return static_cast<std::uint32_t>((index < last ? index : last) * operand.pitch * sizeof(T));
    };
    const int mine = thread_index() / Tile::kChunks;
#pragma unroll
    for (int i = 0; i < Tile::kRowLoads; ++i) row_offsets_[i] = offset(x, row, mine + i * Tile::kRowsAtOnce);
#pragma unroll
    for (int i = 0; i < Tile::kColumnLoads; ++i)
      column_offsets_[i] = offset(w, column, column_in_row(mine + i * Tile::kRowsAtOnce));
  }

  /// [thread] Loads this thread's part of the stage that begins at element `k`. `depth`: elements of K in a row; chunks
  /// after them are zeros.
  FARWARP_DEVICE void load(int k, int depth, Transit<Tile>& transit) const {
    const int wanted = k + thread_index() % Tile::kChunks * 8;
    const std::uint32_t at = wanted < depth ? static_cast<std::uint32_t>(wanted) * sizeof(T) : kNoAddress;
#pragma unroll
    for (int i = 0; i < Tile::kRowLoads; ++i) transit.rows[i] = load_from<Vec16>(rows_, 0, row_offsets_[i] + at);
#pragma unroll
    for (int i = 0; i < Tile::kColumnLoads; ++i)
      transit.columns[i] = load_from<Vec16>(columns_, 0, column_offsets_[i] + at);
  }

 private:
  Global<const std::byte> rows_, columns_;  // the same for all threads; offsets from there are below 2^31
  std::uint32_t row_offsets_[Tile::kRowLoads];
  std::uint32_t column_offsets_[Tile::kColumnLoads];
};

/// [thread] Writes a stage's chunks into LDS.
template <class Tile>
FARWARP_DEVICE void put_stage(const Tile& tile, int number, const Transit<Tile>& transit) {
  const int row = thread_index() / Tile::kChunks;
  const Shared<std::byte> at = tile.stage(number) + chunk_offset(row, thread_index() % Tile::kChunks, Tile::kChunks);
  // kRowsAtOnce is a multiple of 8 lines: the permutation repeats.
  constexpr int kStride = Tile::kRowsAtOnce * Tile::kShape.row_bytes();
  const auto put = [&](int offset, Vec16 chunk) {
    store(Shared<Vec16>(reinterpret_cast<Vec16*>((at + offset).raw)), chunk);
  };
#pragma unroll
  for (int i = 0; i < Tile::kRowLoads; ++i) put(i * kStride, transit.rows[i]);
#pragma unroll
  for (int i = 0; i < Tile::kColumnLoads; ++i) put(Tile::kColumnsOffset + i * kStride, transit.columns[i]);
}

/// A wave's operands of one stage. Each chunk has 8 elements of K for two instructions, 4 for each. Both operands
/// divide their chunks in the same way, so which elements an instruction takes does not matter.
template <class Tile>
struct Fragments {
  Vec16 rows[Tile::kSlices][Tile::kRowFragments];
  Vec16 columns[Tile::kSlices][Tile::kColumnFragments];
};

/// [warp] Reads the wave's operands of a stage.
template <class Tile>
FARWARP_DEVICE void read_fragments(const Tile& tile, int number, Fragments<Tile>& fragments) {
  const MatrixIndex lane = mfma_operand(lane_index(), 0);
  const auto read = [&](Shared<std::byte> first, int slice, int fragment) {
    const int offset = chunk_offset(lane.row, 4 * slice + lane.column / 4, Tile::kChunks);
    const auto at = first + (offset + fragment * 16 * Tile::kShape.row_bytes());
    return load(Shared<const Vec16>(reinterpret_cast<const Vec16*>(at.raw)));
  };
  const Shared<std::byte> rows = tile.stage(number) + Tile::wave_row() * Tile::kShape.row_bytes();
  const Shared<std::byte> columns =
      tile.stage(number) + (Tile::kColumnsOffset + Tile::wave_column() * Tile::kShape.row_bytes());
#pragma unroll
  for (int slice = 0; slice < Tile::kSlices; ++slice) {
#pragma unroll
    for (int i = 0; i < Tile::kRowFragments; ++i) fragments.rows[slice][i] = read(rows, slice, i);
#pragma unroll
    for (int i = 0; i < Tile::kColumnFragments; ++i) fragments.columns[slice][i] = read(columns, slice, i);
  }
}

/// [warp] Adds half of a stage's products, half = 0 or 1. w is the instruction's left operand, so that a lane's 4 sums
/// of one product are neighbours in a row of y. They begin at sums[(row fragment * kColumnFragments + column fragment)
/// * 4].
template <class Tile>
FARWARP_DEVICE void multiply_half(int half, const Fragments<Tile>& fragments, float (&sums)[Tile::kSums]) {
#pragma unroll
  for (int quarter = half * Tile::kSlices; quarter < (half + 1) * Tile::kSlices; ++quarter) {
    const auto part = [&](Vec16 chunk) { return quarter % 2 == 0 ? chunk.lo : chunk.hi; };
#pragma unroll
    for (int i = 0; i < Tile::kRowFragments; ++i) {
#pragma unroll
      for (int j = 0; j < Tile::kColumnFragments; ++j) {
        float* const sum = &sums[(i * Tile::kColumnFragments + j) * 4];
        float four[4] = {sum[0], sum[1], sum[2], sum[3]};
        mfma<typename Tile::Element>(four, part(fragments.columns[quarter / 2][j]),
                                     part(fragments.rows[quarter / 2][i]));
#pragma unroll
        for (int index = 0; index < 4; ++index) sum[index] = four[index];
      }
    }
  }
}

/// The operands between memory and the matrix units.
template <class Tile>
struct MfmaPipeline {
  Tile tile;
  Transit<Tile> transit[2];
  Fragments<Tile> fragments[2];

  /// [block] Fetches the first two steps. `feed.next()` moves to the next step, `feed.load(stage, transit)` loads one
  /// of its stages.
  template <class Feed>
  FARWARP_DEVICE void start(Feed& feed) {
    load_step(feed);
#pragma unroll
    for (int stage = 0; stage < 2; ++stage) put_stage(tile, stage, transit[stage]);
    load_step(feed);
    block_sync();
    read_fragments(tile, 0, fragments[0]);
  }

  /// [block] Adds the products of the oldest step fetched, and fetches one more.
  template <class Feed>
  FARWARP_DEVICE void step(Feed& feed, float (&sums)[Tile::kSums]) {
    feed.next();
    stage<0>(feed, sums);
    stage<1>(feed, sums);
  }

 private:
  template <class Feed>
  FARWARP_DEVICE void load_step(Feed& feed) {
    feed.next();
#pragma unroll
    for (int stage = 0; stage < 2; ++stage) {
      feed.load(stage, transit[stage]);
      // keeps loads in the order of the loop in stage(), which otherwise waits for more loads than it needs
      schedule_fence();
    }
  }

  template <int current, class Feed>
  FARWARP_DEVICE void stage(Feed& feed, float (&sums)[Tile::kSums]) {
    block_sync();
    schedule_fence();
    read_fragments(tile, 1 - current, fragments[1 - current]);
    multiply_half(0, fragments[current], sums);
    schedule_fence();
    put_stage(tile, current, transit[current]);
    if constexpr (Tile::kWholeLines) {
      feed.load(current, transit[current]);
    } else if constexpr (current == 1) {
      feed.load(0, transit[0]);
      schedule_fence();  // as in load_step()
      feed.load(1, transit[1]);
    }
    multiply_half(1, fragments[current], sums);
    schedule_fence();
  }
};

}  // namespace farwarp::FARWARP_TARGET::tile
