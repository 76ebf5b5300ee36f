// Which keys a worker attends to, and in which order: its loader and its other warps agree by this.
//
// A tile is 128 keys, eight pages, of one KV head of one sequence. Of n splits, each has every nth tile of them. It belongs to one worker,
// however long the sequence is: so a key is appended and read by the same worker, and sums have the same order in every batch.
#pragma once

#include "farwarp/models/qwen3/context.dev.h"

namespace farwarp::FARWARP_TARGET::qwen3 {

/// A worker's place among its tiles. Only tiles that have keys are visited.
template <int columns>
class TileCursor {
 public:
  FARWARP_DEVICE explicit TileCursor(const Context<columns>& context)
      : context_(&context),
        pairs_(context.columns_in_use() * context.args.kv_heads),
        splits_(context.args.splits),
        sharing_(clamp(num_blocks() / pairs_)),
        pair_(context.worker.number() % pairs_),
        split_(context.worker.number() / pairs_) {
    if (context.worker.number() >= sharing_ * pairs_ && num_blocks() >= pairs_) pair_ = pairs_;  // no work
    tile_ = split_;
    locate();
    find();
  }

  FARWARP_DEVICE bool exists() const { return pair_ < pairs_; }
  FARWARP_DEVICE int column() const {
    if constexpr (streams(columns)) return column_;
    return pair_ % columns;
  }
  FARWARP_DEVICE int kv_head() const {
    if constexpr (streams(columns)) return kv_head_;
    return pair_ / columns;
  }
  FARWARP_DEVICE int split() const { return split_; }
  FARWARP_DEVICE int first_key() const { return tile_ * kTileKeys; }
  /// Whether the split has no more tiles.
  FARWARP_DEVICE bool ends_split() const { return (tile_ + splits_) * kTileKeys >= length(); }
  /// Whether this and `other` are of the same KV head and sequence.
  FARWARP_DEVICE bool same_keys(const TileCursor& other) const { return pair_ == other.pair_; }
  /// Keys of the sequence, with the token's own.
  FARWARP_DEVICE int length() const { return keys_of(context_->sequence(column())); }
  /// Whether this worker has the split that the token's own key belongs to.
  FARWARP_DEVICE bool shares_new_key() const {
    const int split = (length() - 1) / kTileKeys % splits_;
    return split >= context_->worker.number() / pairs_ && (split - context_->worker.number() / pairs_) % sharing_ == 0;
  }

  FARWARP_DEVICE void advance() {
    tile_ += splits_;
    find();
  }

 private:
  FARWARP_DEVICE int clamp(int workers) const { return workers < 1 ? 1 : workers > splits_ ? splits_ : workers; }

  FARWARP_DEVICE void find() {
    while (exists() && first_key() >= length()) {
      split_ += sharing_;
      if (split_ >= splits_) next_pair();
      tile_ = split_;
    }
  }
  FARWARP_DEVICE void next_pair() {
    split_ = context_->worker.number() / pairs_;
    pair_ += num_blocks();
    locate();
  }
  /// Divided once for each pair: the number of sequences is no constant.
  FARWARP_DEVICE void locate() {
    if constexpr (streams(columns)) {
      column_ = pair_ % context_->columns_in_use();
      kv_head_ = pair_ / context_->columns_in_use();
    }
  }

  const Context<columns>* context_;
  int pairs_;  ///< of a sequence and a KV head
  int splits_;
  int sharing_;  ///< workers that share a pair
  int pair_, split_, tile_ = 0;
  int column_ = 0, kv_head_ = 0;  ///< of streamed vectors
};

/// The numbers of a tile's pages.
struct TilePages {
  Vec16 numbers[2];

  template <int columns>
  static FARWARP_DEVICE TilePages load_for(const Args& args, const TileCursor<columns>& tile) {
    const Global<const Vec16> table(reinterpret_cast<const Vec16*>(args.page_table));
    const int first = (tile.column() * args.max_pages + tile.first_key() / kPageKeys) / 4;
    return {{load(table + first), load(table + (first + 1))}};
  }
  FARWARP_DEVICE int operator[](int i) const {
    const Vec16 four = i < 4 ? numbers[0] : numbers[1];
    const std::uint64_t two = i % 4 < 2 ? four.lo : four.hi;
    return static_cast<int>(i % 2 == 0 ? two : two >> 32);
  }
};

/// A page of one KV head: its keys as fragments [head_dim / 16], then its values.
FARWARP_DEVICE Global<std::byte> page_at(const Args& args, int layer, int page, int kv_head) {
  const std::int64_t number = (std::int64_t{layer} * args.pages + page) * args.kv_heads + kv_head;
  return Global<std::byte>(args.cache) + number * page_bytes(args.head_dim);
}

}  // namespace farwarp::FARWARP_TARGET::qwen3
