// The way of keys and values from memory to LDS: through registers, by all threads of the block. The steps of a work
// run from its last keys to its first, so that the only step with keys after the sequence's end comes first.
#pragma once

#include "farwarp/ops/attention/sequence.dev.h"
#include "farwarp/ops/attention/shape_mfma.h"

namespace farwarp::FARWARP_TARGET::attention {

using namespace farwarp::attention;

/// Constants of a block's tiles. T = Half or Bf16. `head_dim`: 64 or 128. `keys`: of a step.
template <class T, int head_dim, int keys>
struct MfmaBlock {
  using Element = T;
  static constexpr MfmaShared kShared{head_dim, keys};
  static constexpr int kHeadDim = head_dim;
  static constexpr int kKeys = keys;
  static constexpr int kKeyChunks = head_dim / 8;             ///< of a row of keys
  static constexpr int kKeyRows = kMfmaThreads / kKeyChunks;  ///< that the block copies at once
  static constexpr int kKeyLoads = keys / kKeyRows;
  static constexpr int kValueChunks = keys / 8;  ///< of a row of transposed values
  static constexpr int kPairs = head_dim / 2;    ///< of columns
  static constexpr int kValuesOffset = kShared.v_tile();
  static_assert(kPairs * kValueChunks == kMfmaThreads, "a thread carries eight keys of two columns");
  // A wave's rows of keys, and its keys of the values, lie in one group of 16 keys. A page has whole groups.
  static_assert(kKeyRows % 32 == 0 && 64 / kKeyChunks <= 8 && 64 / kPairs <= 2);

  Shared<std::byte> memory;  ///< a step's keys, then a step's values
};

FARWARP_DEVICE int wave() { return uniform(warp_index()); }

/// What a thread carries from memory to LDS of a step.
template <class Block>
struct KeysInTransit {
  Vec16 chunk[Block::kKeyLoads];
};
struct ValuesInTransit {
  std::uint32_t pair[8];  ///< of two columns, for eight keys
};

/// [thread] Writes a step's keys into LDS.
template <class Block>
FARWARP_DEVICE void put_keys(const Block& block, const KeysInTransit<Block>& transit) {
  const int row = thread_index() / Block::kKeyChunks;
  const Shared<std::byte> at =
      block.memory + key_chunk_offset(row, thread_index() % Block::kKeyChunks, Block::kKeyChunks);
#pragma unroll
  for (int i = 0; i < Block::kKeyLoads; ++i)  // kKeyRows is a multiple of 8: the permutation repeats
    store(Shared<Vec16>(reinterpret_cast<Vec16*>((at + i * Block::kKeyRows * Block::kHeadDim * 2).raw)),
          transit.chunk[i]);
}

/// [thread] Transposes a step's values into LDS.
template <class Block>
FARWARP_DEVICE void put_values(const Block& block, const ValuesInTransit& transit) {
  const int row = row_of_column(2 * (thread_index() % Block::kPairs));  // the second column's row is the next one
  const int chunk = thread_index() / Block::kPairs;
#pragma unroll
  for (int odd = 0; odd < 2; ++odd) {
    std::uint64_t words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i)
      words[i] = odd == 0 ? lower_halves(transit.pair[2 * i], transit.pair[2 * i + 1])
                          : upper_halves(transit.pair[2 * i], transit.pair[2 * i + 1]);
    const int offset = Block::kValuesOffset + value_chunk_offset(row + odd, chunk, Block::kValueChunks);
    store(Shared<Vec16>(reinterpret_cast<Vec16*>((block.memory + offset).raw)),
          Vec16{words[1] << 32 | words[0], words[3] << 32 | words[2]});
  }
}

/// Which row of a group a lane reads, or the first of those that it reads, and from which column on.
template <class Block>
struct KeyLanes {
  static constexpr int kGroups = Block::kKeyLoads, kDistance = Block::kKeyRows;
  static constexpr bool kEndsEarly = true;  ///< a work's last steps load no more keys
  using Value = Vec16;
  FARWARP_DEVICE static int first_row() { return key_in_row(wave() * (64 / Block::kKeyChunks)); }
  FARWARP_DEVICE static int row(int lane) { return key_in_row(lane / Block::kKeyChunks); }
  FARWARP_DEVICE static int column(int lane) { return lane % Block::kKeyChunks * 8; }
};
template <class Block>
struct ValueLanes {
  static constexpr int kGroups = 1, kDistance = 0;
  static constexpr bool kEndsEarly = false;
  using Value = std::uint32_t;
  FARWARP_DEVICE static int first_row() { return wave() * (64 / Block::kPairs * 8); }
  FARWARP_DEVICE static int row(int lane) { return lane / Block::kPairs * 8; }
  FARWARP_DEVICE static int column(int lane) { return lane % Block::kPairs * 2; }
};

/// Where a thread reads the keys, or the values, of a work. A wave reads kGroups groups of rows of a step, kDistance
/// rows apart. All rows that it reads of a group are in one page.
template <class Block, class Lanes>
class RowSource {
 public:
  using Value = typename Lanes::Value;
  struct Tensor {
    const void* base;
    Rows rows;
  };

  FARWARP_DEVICE RowSource(const Args& args, const Tensor& tensor)
      : args_(args),
        tensor_(tensor),
        first_row_(Lanes::first_row()),
        offset_(offset_of(lane_index(), Lanes::row(lane_index()))) {}

  /// [warp] Points this source at step `step` of a work. Steps before that of the first key that the work sees are not
  /// read.
  FARWARP_DEVICE void open(const BlockWork& work, int step) {
    step_ = step;
    first_key_ = work.keys.first;
    keys_ = work.sequence.keys;
    head_ = static_cast<const std::byte*>(tensor_.base) + std::int64_t{work.kv_head} * args_.head_dim * 2;
    if (uniform(recomputed(args_.page_size)) == 0) {  // kept from work to work, the comparison would take a register
      head_ +=
          (work.sequence.key_batch * tensor_.rows.batch_pitch + work.sequence.first_key * tensor_.rows.row_pitch) * 2;
      at_ = head_ + std::int64_t{step * Block::kKeys + first_row_} * tensor_.rows.row_pitch * 2;
    } else {
      table_ = args_.block_table + std::int64_t{work.place.batch} * args_.table_pitch;
      look_up();
    }
  }

  /// [thread] Loads this step's `rows` rows of the lane in each group: `take(group, i, value of the i-th)`. Then moves
  /// to the step before. Rows after the sequence's end, which only a work's last step has (`ends`), repeat the last
  /// row.
  template <int rows, bool plain, bool ends, class Take>
  FARWARP_DEVICE void load(const Take& take) {
    const std::int64_t pitch = tensor_.rows.row_pitch * 2;  // in bytes
    const bool paged = !plain && args_.page_size > 0;
#pragma unroll
    for (int group = 0; group < Lanes::kGroups; ++group) {
      int row = step_ * Block::kKeys + first_row_ + group * Lanes::kDistance;
      int last = 16;
      if constexpr (ends) {
        row = row < keys_ ? row : keys_ - 1;
        last = keys_ - 1 - row;
      }
      const std::byte* base = ends ? head_ + row * pitch : at_ + group * Lanes::kDistance * pitch;
      if (paged) {
        const int page = uniform(pages_[group]);
        const bool allowed = page >= 0 && page < args_.pages;
        if (!allowed) bad_page = page;
        const int in_page = row - args_.by_page.quotient(row) * args_.page_size;
        base = head_ + ((allowed ? page : 0) * tensor_.rows.batch_pitch + in_page * tensor_.rows.row_pitch) * 2;
      }
#pragma unroll
      for (int i = 0; i < rows; ++i) {
        const Global<const std::byte> from(base);
        if constexpr (ends) {
          const int lane = recomputed(lane_index());
          const int lane_row = Lanes::row(lane) + i;
          take(group, i, load_from<Value>(from, 0, offset_of(lane, lane_row < last ? lane_row : last)));
        } else {
          take(group, i,
               load_from<Value>(from, static_cast<std::uint32_t>(i) * static_cast<std::uint32_t>(pitch), offset_));
        }
      }
    }
    if ((plain && !Lanes::kEndsEarly) || step_ > first_key_ / Block::kKeys) {
      --step_;
      // Of integers: with pages it is null.
      at_ = reinterpret_cast<const std::byte*>(reinterpret_cast<std::uintptr_t>(at_) - Block::kKeys * pitch);
    }
    if (paged) look_up();
  }

  int bad_page = 0;  ///< the last that was found in the block table, or 0, which is allowed

 private:
  /// [thread] Of a lane's column in row `row` of a group, in bytes. A group has 16 rows and a pitch is at most 2^24
  /// elements. Columns beyond the head's are zeros.
  FARWARP_DEVICE std::uint32_t offset_of(int lane, int row) const {
    const int column = Lanes::column(lane);
    const std::uint32_t offset =
        static_cast<std::uint32_t>(row) * static_cast<std::uint32_t>(tensor_.rows.row_pitch * 2) +
        static_cast<std::uint32_t>(column) * 2;
    return column < args_.head_dim ? offset : kNoAddress;
  }
  /// [warp] Loads the page numbers of the current step; the load of the step uses them, so that nothing waits for them.
  FARWARP_DEVICE void look_up() {
#pragma unroll
    for (int group = 0; group < Lanes::kGroups; ++group) {
      int row = step_ * Block::kKeys + first_row_ + group * Lanes::kDistance;
      row = row < keys_ ? row : keys_ - 1;
      // No page before the first key that is seen is looked up. What is loaded in its place is not used.
      row = row < first_key_ ? first_key_ : row;
      pages_[group] = farwarp::FARWARP_TARGET::load(Global<const std::int32_t>(table_ + args_.by_page.quotient(row)));
    }
  }

  const Args& args_;
  const Tensor tensor_;
  int first_row_;         // of the wave's first group in a step
  std::uint32_t offset_;  // of the lane in a group
  int step_ = 0;
  int first_key_ = 0, keys_ = 0;  // that the work sees; of its sequence
  const std::byte* head_ = nullptr;
  const std::byte* at_ = nullptr;  // the wave's first row of the step, if there are no pages
  const std::int32_t* table_ = nullptr;
  std::int32_t pages_[Lanes::kGroups] = {};
};

/// The copies of a block's works.
template <class Block>
class Loader {
 public:
  FARWARP_DEVICE Loader(const Args& args, const Block& block)
      : block_(block), keys_(args, {args.k_base, args.k_rows}), values_(args, {args.v_base, args.v_rows}) {}

  FARWARP_DEVICE void open(const BlockWork& work, int step) {
    keys_.open(work, step);
    values_.open(work, step);
  }

  template <bool plain, bool ends = false>
  FARWARP_DEVICE void load_keys() {
    keys_.template load<1, plain, ends>([&](int group, int, Vec16 chunk) { in_keys_.chunk[group] = chunk; });
  }
  template <bool plain, bool ends = false>
  FARWARP_DEVICE void load_values() {
    values_.template load<8, plain, ends>([&](int, int i, std::uint32_t pair) { in_values_.pair[i] = pair; });
  }
  FARWARP_DEVICE void put_keys() const { attention::put_keys(block_, in_keys_); }
  /// [thread] Values of the first `unseen` keys of a step may be anything, and a NaN times the probability 0 is a NaN:
  /// they become zeros.
  FARWARP_DEVICE void clear_values(int unseen) {
    const int row = ValueLanes<Block>::first_row() + ValueLanes<Block>::row(recomputed(lane_index()));
#pragma unroll
    for (int i = 0; i < 8; ++i) in_values_.pair[i] = row + i < unseen ? 0 : in_values_.pair[i];
  }
  FARWARP_DEVICE void put_values() const { attention::put_values(block_, in_values_); }
  /// 0, or a page number that is not allowed.
  FARWARP_DEVICE int bad_page() const { return keys_.bad_page != 0 ? keys_.bad_page : values_.bad_page; }

 private:
  const Block& block_;
  RowSource<Block, KeyLanes<Block>> keys_;
  RowSource<Block, ValueLanes<Block>> values_;
  KeysInTransit<Block> in_keys_;
  ValuesInTransit in_values_;
};

}  // namespace farwarp::FARWARP_TARGET::attention
