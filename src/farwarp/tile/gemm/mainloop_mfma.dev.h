// The main loop on CDNA. All waves of a block copy x through registers into LDS. The large tile's w goes the same way;
// the small tile's w goes from memory to the fragments of the one wave that needs it.
//
// A step of K is two stages, or four. LDS has room for two stages. Registers between memory and LDS, and fragments,
// exist twice, too, and fragments from memory four times; every index is a constant. While stage s is multiplied, s + 1
// goes from LDS into fragments, s + 2 goes from registers into LDS, and s + 3 and s + 4 are loaded from memory:
//
//   barrier            s + 1 is in LDS, and all waves have read the fragments of s
//   read fragments of s + 1
//   multiply s, first half
//   write s + 2 over s, load s + 4 into the registers that this frees
//   multiply s, second half; load the fragments of w of s + 4, if they come from memory
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

/// Constants of a tile and its place in LDS. T = Half or Bf16. Fragments are of 32 rows.
template <class T, MfmaShape shape>
struct MfmaTile {
  using Element = T;
  static constexpr MfmaShape kShape = shape;
  static constexpr int kRows = shape.rows;
  static constexpr int kColumns = shape.columns;
  static constexpr int kStages = shape.stages();
  static constexpr int kStepDepth = shape.step_depth();
  static constexpr int kThreads = shape.threads();
  static constexpr int kChunks = shape.chunks();
  static constexpr int kRowsAtOnce = kThreads / kChunks;  ///< rows that the block's threads copy with one chunk each
  static constexpr int kRowLoads = kRows / kRowsAtOnce;
  static constexpr int kColumnLoads = shape.w_in_lds() ? kColumns / kRowsAtOnce : 0;
  static constexpr int kMultipliedFragments = kRows / shape.row_waves / 32;   ///< rows of x that a wave multiplies
  static constexpr int kRowFragments = kMultipliedFragments / shape.k_waves;  ///< of which it stores these
  static constexpr int kColumnFragments = kColumns / shape.column_waves / 32;
  static constexpr int kSlices = shape.depth / shape.k_waves / 16;  ///< of a wave: 16 elements of K each
  static constexpr int kSums = kRowFragments * kColumnFragments * 16;
  static constexpr int kColumnsOffset = kRows * shape.row_bytes();  ///< byte offset of w's part of a stage
  static constexpr bool kWholeLines = shape.row_bytes() >= 128;
  static_assert(kRows % kRowsAtOnce == 0 && (!shape.w_in_lds() || kColumns % kRowsAtOnce == 0) && kSlices == 2);
  static_assert(shape.k_waves == 1 || (shape.k_waves == 2 && shape.row_waves == 1));

  Shared<std::byte> memory;  ///< two stages, then the sums that waves exchange

  FARWARP_DEVICE Shared<std::byte> stage(int number) const { return memory + number * shape.stage_bytes(); }
  /// [thread] Which part of a stage's K the thread's wave multiplies.
  FARWARP_DEVICE static int k_wave() { return warp_index() / (shape.row_waves * shape.column_waves); }
  /// [thread] First row and column of the tile that the thread's wave stores.
  FARWARP_DEVICE static int wave_row() { return warp_index() / shape.column_waves * kRowFragments * 32; }
  FARWARP_DEVICE static int wave_column() { return warp_index() % shape.column_waves * kColumnFragments * 32; }
};

/// The chunks of one stage that a thread carries from memory to LDS: x's, then w's.
template <class Tile>
struct Transit {
  Vec16 chunks[Tile::kRowLoads + Tile::kColumnLoads];
};

/// A wave's operands of one stage. A lane has 16 bytes of each slice: mfma32_operand().
template <class Tile>
struct RowFragments {
  Vec16 of[Tile::kSlices][Tile::kMultipliedFragments];
};
template <class Tile>
struct ColumnFragments {
  Vec16 of[Tile::kSlices][Tile::kColumnFragments];
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
    const auto offset = [](const Operand<T>& operand, int first, int index, int element) {
      const int last = operand.count - 1 - first;
      return static_cast<std::uint32_t>(((index < last ? index : last) * operand.pitch + element) * sizeof(T));
    };
    const int mine = thread_index() / Tile::kChunks;
#pragma unroll
    for (int i = 0; i < Tile::kRowLoads; ++i)
      offsets_[i] = offset(x, row, mine + i * Tile::kRowsAtOnce, first_copied());
    if constexpr (Tile::kShape.w_in_lds()) {
#pragma unroll
      for (int i = 0; i < Tile::kColumnLoads; ++i)
        offsets_[Tile::kRowLoads + i] = offset(w, column, column_in_row(mine + i * Tile::kRowsAtOnce), first_copied());
    } else {
#pragma unroll
      for (int i = 0; i < Tile::kColumnFragments; ++i) {
        const int w_row = Tile::wave_column() + 32 * i + column_in_row(mfma32_operand(lane_index(), 0).row);
        fragment_offsets_[i] = offset(w, column, w_row, first_of_fragment());
      }
    }
  }

  /// [thread] Loads this thread's part of the stage that begins at element `k`. `depth`: elements of K in a row; chunks
  /// after them are zeros.
  FARWARP_DEVICE void load(int k, int depth, Transit<Tile>& transit) const {
    const bool exists = first_copied() < depth - k;
#pragma unroll
    for (int i = 0; i < Tile::kRowLoads + Tile::kColumnLoads; ++i)
      transit.chunks[i] =
          load_from<Vec16>(i < Tile::kRowLoads ? rows_ : columns_, k * sizeof(T), exists ? offsets_[i] : kNoAddress);
  }
  /// [thread] Loads the lane's part of w's fragments of that stage.
  FARWARP_DEVICE void load(int k, int depth, ColumnFragments<Tile>& fragments) const {
#pragma unroll
    for (int slice = 0; slice < Tile::kSlices; ++slice) {
      const bool exists = first_of_fragment() < depth - k - 16 * slice;
#pragma unroll
      for (int i = 0; i < Tile::kColumnFragments; ++i)
        fragments.of[slice][i] =
            load_from<Vec16>(columns_, k * sizeof(T), exists ? fragment_offsets_[i] + 32 * slice : kNoAddress);
    }
  }

 private:
  /// Of a stage's elements of K, the first that the thread copies, and the first of its part of a fragment.
  FARWARP_DEVICE static int first_copied() { return thread_index() % Tile::kChunks * 8; }
  FARWARP_DEVICE static int first_of_fragment() {
    return Tile::k_wave() * Tile::kSlices * 16 + mfma32_operand(lane_index(), 0).column;
  }

  Global<const std::byte> rows_, columns_;  // the same for all threads; offsets from there are below 2^31
  std::uint32_t offsets_[Tile::kRowLoads + Tile::kColumnLoads];
  std::uint32_t fragment_offsets_[Tile::kColumnFragments];  // if w does not go through LDS
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
  for (int i = 0; i < Tile::kRowLoads; ++i) put(i * kStride, transit.chunks[i]);
#pragma unroll
  for (int i = 0; i < Tile::kColumnLoads; ++i)
    put(Tile::kColumnsOffset + i * kStride, transit.chunks[Tile::kRowLoads + i]);
}

/// [warp] Reads fragments of the stage whose rows begin at `rows`.
template <class Tile, int slices, int count>
FARWARP_DEVICE void read_fragments(Shared<std::byte> rows, Vec16 (&fragments)[slices][count]) {
  const MatrixIndex lane = mfma32_operand(lane_index(), 0);
#pragma unroll
  for (int slice = 0; slice < slices; ++slice) {
    const int chunk = 2 * (Tile::k_wave() * slices + slice) + lane.column / 8;
    const Shared<std::byte> at = rows + chunk_offset(lane.row, chunk, Tile::kChunks);
#pragma unroll
    for (int i = 0; i < count; ++i)
      fragments[slice][i] =
          load(Shared<const Vec16>(reinterpret_cast<const Vec16*>((at + i * 32 * Tile::kShape.row_bytes()).raw)));
  }
}

/// A wave's sums of a tile. w is the instruction's left operand, so that a lane's sums of one product lie in a row of
/// y.
template <class Tile>
struct WaveSums {
  Mfma32Sums of[Tile::kMultipliedFragments][Tile::kColumnFragments];
};

/// [warp] Adds the products of a slice of a stage.
template <class Tile>
FARWARP_DEVICE void multiply_slice(int slice, const RowFragments<Tile>& rows, const ColumnFragments<Tile>& columns,
                                   WaveSums<Tile>& sums) {
#pragma unroll
  for (int i = 0; i < Tile::kMultipliedFragments; ++i) {
#pragma unroll
    for (int j = 0; j < Tile::kColumnFragments; ++j)
      mfma32<typename Tile::Element>(sums.of[i][j], columns.of[slice][j], rows.of[slice][i]);
  }
}

/// [block] The sums that the wave stores. If two waves have summed halves of K, each gives the other one the rows that
/// it does not store. The place in LDS is written again after the barriers of the next tile's stages.
template <class Tile>
FARWARP_DEVICE void stored_sums(const Tile& tile, const WaveSums<Tile>& wave, float (&sums)[Tile::kSums]) {
  if constexpr (Tile::kShape.k_waves == 1) {
#pragma unroll
    for (int i = 0; i < Tile::kSums; ++i)
      sums[i] = wave.of[i / 16 / Tile::kColumnFragments][i / 16 % Tile::kColumnFragments][i % 16];
  } else {
    static_assert(Tile::kRowFragments == 1 && Tile::kColumnFragments == 1);
    struct Four {
      float value[4];
    };
    const bool first = uniform(Tile::k_wave()) == 0;
    const auto at = [&](int of_wave, int i) {
      return Shared<Vec16>(reinterpret_cast<Vec16*>((tile.memory + Tile::kShape.exchange()).raw)) +
             ((of_wave * 4 + i) * 64 + lane_index());
    };
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      Four given;
#pragma unroll
      for (int j = 0; j < 4; ++j) given.value[j] = first ? wave.of[1][0][4 * i + j] : wave.of[0][0][4 * i + j];
      store(at(warp_index(), i), std::bit_cast<Vec16>(given));
    }
    block_sync();
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const auto taken = std::bit_cast<Four>(load(at(warp_index() ^ Tile::kShape.column_waves, i)));
#pragma unroll
      for (int j = 0; j < 4; ++j)
        sums[4 * i + j] = add(first ? wave.of[0][0][4 * i + j] : wave.of[1][0][4 * i + j], taken.value[j]);
    }
  }
}

/// The operands between memory and the matrix units.
template <class Tile>
struct MfmaPipeline {
  Tile tile;
  Transit<Tile> transit[2];
  RowFragments<Tile> rows[2];
  ColumnFragments<Tile> columns[Tile::kShape.w_in_lds() ? 2 : Tile::kStages];

  /// [block] Fetches the first four stages. `feed.next()` moves to the next step, `feed.load(stage, ..)` loads one of
  /// its stages.
  template <class Feed>
  FARWARP_DEVICE void start(Feed& feed) {
    load_first(feed, 0);
#pragma unroll
    for (int half = 0; half < 2; ++half) put_stage(tile, half, transit[half]);
    load_first(feed, 2);
    block_sync();
    read(0);
  }

  /// [block] Adds the products of the oldest step fetched, and fetches one more.
  template <class Feed>
  FARWARP_DEVICE void step(Feed& feed, WaveSums<Tile>& sums) {
    feed.next();
    stage<0>(feed, sums);
    stage<1>(feed, sums);
    if constexpr (Tile::kStages == 4) {
      stage<2>(feed, sums);
      stage<3>(feed, sums);
    }
  }

 private:
  /// [block] Loads stages `first` and `first` + 1 of the first four.
  template <class Feed>
  FARWARP_DEVICE void load_first(Feed& feed, int first) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int number = (first + half) % Tile::kStages;
      if (number == 0) feed.next();
      feed.load(number, transit[half]);
      if constexpr (!Tile::kShape.w_in_lds()) feed.load(number, columns[number]);
      // keeps loads in the order of the loop in stage(), which otherwise waits for more loads than it needs
      schedule_fence();
    }
  }

  /// [warp] From LDS.
  FARWARP_DEVICE void read(int half) {
    const Shared<std::byte> from = tile.stage(half);
    const int first = Tile::kShape.k_waves == 1 ? Tile::wave_row() : 0;
    read_fragments<Tile>(from + first * Tile::kShape.row_bytes(), rows[half].of);
    if constexpr (Tile::kShape.w_in_lds())
      read_fragments<Tile>(from + (Tile::kColumnsOffset + Tile::wave_column() * Tile::kShape.row_bytes()),
                           columns[half].of);
  }

  template <int current, class Feed>
  FARWARP_DEVICE void stage(Feed& feed, WaveSums<Tile>& sums) {
    constexpr int kHalf = current % 2;
    auto& of_w = columns[Tile::kShape.w_in_lds() ? kHalf : current];
    block_sync();
    schedule_fence();
    read(1 - kHalf);
    multiply_slice(0, rows[kHalf], of_w, sums);
    schedule_fence();
    put_stage(tile, kHalf, transit[kHalf]);
    if constexpr (Tile::kWholeLines) {
      feed.load(current, transit[kHalf]);
      schedule_fence();
    } else if constexpr (kHalf == 1) {
      feed.load(current - 1, transit[0]);
      schedule_fence();  // as in load_first()
      feed.load(current, transit[1]);
    }
    multiply_slice(1, rows[kHalf], of_w, sums);
    schedule_fence();
    if constexpr (!Tile::kShape.w_in_lds()) {
      feed.load(current, of_w);
      schedule_fence();
    }
  }
};

}  // namespace farwarp::FARWARP_TARGET::tile
