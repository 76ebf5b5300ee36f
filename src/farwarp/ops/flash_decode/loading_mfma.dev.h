// What a wave on CDNA loads: the 16 keys and values of a stage, from memory to registers, a stage ahead of the
// products. No shared memory is needed: the lanes that load a row of values are those that need its columns as an
// operand.
#pragma once

#include "farwarp/base/fragments.h"
#include "farwarp/ops/flash_decode/layout.h"
#include "farwarp/ops/flash_decode/works.dev.h"

namespace farwarp::FARWARP_TARGET::decode {

/// `count` numbers of the cache, as they lie in memory. fp8: half the bytes.
template <int count, bool fp8>
using Packed = std::conditional_t<count*(fp8 ? 1 : 2) == 16, Vec16,
                                  std::conditional_t<count*(fp8 ? 1 : 2) == 8, std::uint64_t, std::uint32_t>>;

/// What a lane loads of a stage. Its group of 16 lanes is lane / 16, its place in it lane % 16.
template <int dim, bool fp8>
struct StageInTransit {
  static constexpr int kColumns = dim / 16;  ///< of a row of values
  Packed<8, fp8> k[dim / 32];                ///< key number `place`; of each 32 columns the 8 of the lane's group
  Packed<kColumns, fp8> v[4];                ///< keys 4 * group to + 3; of their columns the `place`-th 16th
};

/// [warp] The wave's keys of a work's stages: where they lie. A lane finds key number lane % 16 of each stage. The
/// index of a stage's page is loaded a stage before its keys, so that no load waits for another one of the same stage.
class KeyPlaces {
 public:
  FARWARP_DEVICE KeyPlaces(const Args& args, const Work& work)
      : page_shift_(highest_bit(static_cast<std::uint64_t>(args.page_size))),
        row_(Global<const std::int32_t>(args.block_table) + std::int64_t{work.sequence} * args.max_pages),
        head_(kv_head_of(args, work.item) * args.head_pitch) {
    const int oldest = work.length - args.rule.query_tokens + 1 - args.rule.window;
    first_ = args.rule.window > 0 && oldest > 0 ? oldest : 0;
    end_ = (work.first + work.stages) * kStageKeys;
    if (work.length < end_) end_ = work.length;
    key_ = work.first * kStageKeys + warp_index() * kMfmaKeys;
    next_ = load_page();
  }

  /// The wave's first key of this stage.
  FARWARP_DEVICE int key() const { return key_; }
  /// Some token sees key `key` of the stage.
  FARWARP_DEVICE bool is_seen(int key) const { return key >= first_ && key < end_; }

  /// The page of the lane's key of this stage, and begins to load that of the next stage. A key that no token sees, or
  /// whose page is not allowed, gets page 0, which exists; nothing of it is used.
  FARWARP_DEVICE int take_page(const Args& args) {
    const bool seen = is_seen(key_ + lane_index() % 16);
    const bool allowed = next_ >= 0 && next_ < args.pages;
    if (seen && !allowed) refused_ = next_;
    any_refused_ |= seen && !allowed;
    const int page = seen && allowed ? next_ : 0;
    key_ += kStageKeys;
    next_ = load_page();
    return page;
  }
  /// Elements from the cache's first to the first of key `key`, which lies in page `page`.
  FARWARP_DEVICE std::int64_t element(const Args& args, int page, int key) const {
    return page * args.page_pitch + (key & (args.page_size - 1)) * args.row_pitch + head_;
  }

  FARWARP_DEVICE bool any_refused() const { return any_refused_; }  ///< of this lane
  FARWARP_DEVICE int refused() const { return refused_; }           ///< the last page index that is not allowed

 private:
  /// An entry whose page no token sees is replaced by the first one's load, and not used.
  FARWARP_DEVICE int load_page() const {
    const int key = key_ + lane_index() % 16;
    return load(row_ + (is_seen(key) ? key >> page_shift_ : 0));
  }

  int page_shift_;
  Global<const std::int32_t> row_;
  std::int64_t head_;
  int first_, end_;  ///< keys that some token sees, of this work
  int key_, next_;
  int refused_ = 0;
  bool any_refused_ = false;
};

/// [warp] Begins to load the stage of `places`, and moves on to the next one.
template <class T, int dim, bool fp8>
FARWARP_DEVICE StageInTransit<dim, fp8> load_stage(const Args& args, KeyPlaces& places) {
  using Stage = StageInTransit<dim, fp8>;
  using Number = std::conditional_t<fp8, std::uint8_t, T>;
  const auto load_numbers = [](const void* base, std::int64_t element, auto& numbers) {
    using Numbers = std::remove_reference_t<decltype(numbers)>;
    numbers = load<Cache::streaming>(
        Global<const Numbers>(reinterpret_cast<const Numbers*>(static_cast<const Number*>(base) + element)));
  };
  const int lane = lane_index(), group = lane / 16, place = lane % 16, key = places.key();
  const int page = places.take_page(args);
  Stage stage;
  const std::int64_t k_row = places.element(args, page, key + place);
#pragma unroll
  for (int i = 0; i < dim / 32; ++i) {
    const int column = 32 * i + 8 * group;
    load_numbers(args.k_pages, k_row + (column < args.head_dim ? column : 0), stage.k[i]);
  }
  const int column = Stage::kColumns * place;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int row = 4 * group + i;
    const std::int64_t v_row = places.element(args, shuffle(page, row), key + row);
    load_numbers(args.v_pages, v_row + (column < args.head_dim ? column : 0), stage.v[i]);
  }
  return stage;
}

/// `count` numbers as words of two numbers of T; zeros if they do not exist. fp8: four are in the order of widen_fp8().
template <class T, bool fp8, int count>
FARWARP_DEVICE void widen(Packed<count, fp8> packed, bool exists, std::uint32_t (&words)[count / 2]) {
  struct Raw {
    std::uint32_t word[sizeof(packed) / 4];
  };
  const auto raw = std::bit_cast<Raw>(packed);
#pragma unroll
  for (int i = 0; i < count / 2; ++i) {
    if constexpr (fp8) {
      if (i % 2 == 0) widen_fp8<T>(exists ? raw.word[i / 2] : 0u, words[i], words[i + 1]);
    } else {
      words[i] = exists ? raw.word[i] : 0u;
    }
  }
}

FARWARP_DEVICE std::uint64_t pair_of(std::uint32_t low, std::uint32_t high) { return std::uint64_t{high} << 32 | low; }

}  // namespace farwarp::FARWARP_TARGET::decode
