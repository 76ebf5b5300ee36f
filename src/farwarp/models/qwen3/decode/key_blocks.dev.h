// Which keys a worker attends to, and in which order: its loader and its other warps agree by this.
//
// A key block is 128 keys, eight pages, of one KV head of one sequence. Of n splits, each has every nth of these. A
// split belongs to one worker, however long the sequence is: so a key is appended and read by the same worker, and sums
// have the same order in every batch.
#pragma once

#include "farwarp/models/qwen3/decode/context.dev.h"

namespace farwarp::FARWARP_TARGET::qwen3 {

/// A worker's place among its key blocks. Only those that have keys are visited. Unit u of the step is of pair u %
/// pairs of a sequence and a KV head: its splits u / pairs, and then every args.sharing-th.
template <int columns>
class KeyBlockCursor {
 public:
  FARWARP_DEVICE KeyBlockCursor(const Context<columns>& context, const Task& task)
      : context_(&context), unit_(task.first), end_(task.first + task.count * context.args.launch.workers) {
    locate();
    find();
  }

  FARWARP_DEVICE bool exists() const { return unit_ < end_; }
  FARWARP_DEVICE int column() const { return column_; }
  FARWARP_DEVICE int kv_head() const { return kv_head_; }
  FARWARP_DEVICE int split() const { return split_; }
  FARWARP_DEVICE int first_key() const { return block_ * kBlockKeys; }
  /// Whether the split has no more blocks.
  FARWARP_DEVICE bool ends_split() const { return (block_ + splits()) * kBlockKeys >= length(); }
  /// Whether both are of one unit: the same queries and new key.
  FARWARP_DEVICE bool same_unit(const KeyBlockCursor& other) const { return unit_ == other.unit_; }
  /// Keys of the sequence, with the token's own.
  FARWARP_DEVICE int length() const { return keys_of(context_->sequence(column())); }
  /// Whether the unit has the split that the token's own key belongs to.
  FARWARP_DEVICE bool shares_new_key() const {
    const int split = (length() - 1) / kBlockKeys % splits();
    return split >= first_split_ && (split - first_split_) % sharing() == 0;
  }

  FARWARP_DEVICE void advance() {
    block_ += splits();
    find();
  }

 private:
  FARWARP_DEVICE int splits() const { return context_->args.splits; }
  FARWARP_DEVICE int sharing() const { return context_->args.sharing; }

  FARWARP_DEVICE void find() {
    while (exists() && first_key() >= length()) {
      split_ += sharing();
      block_ = split_;
      if (split_ < splits()) continue;
      unit_ += context_->args.launch.workers;
      locate();
    }
  }
  /// Divided once for each unit: the number of sequences is no constant.
  FARWARP_DEVICE void locate() {
    const int used = context_->columns_in_use(), pairs = used * context_->args.kv_heads, pair = unit_ % pairs;
    first_split_ = block_ = split_ = unit_ / pairs;
    column_ = pair % used;
    kv_head_ = pair / used;
  }

  const Context<columns>* context_;
  int unit_, end_;
  int first_split_, split_, block_;  ///< first_split_: of the unit
  int column_, kv_head_;
};

/// The numbers of a key block's pages.
struct KeyBlockPages {
  Vec16 numbers[2];

  template <int columns>
  static FARWARP_DEVICE KeyBlockPages load_for(const Args& args, const KeyBlockCursor<columns>& block) {
    const Global<const Vec16> table(reinterpret_cast<const Vec16*>(args.page_table));
    const int first = (block.column() * args.max_pages + block.first_key() / kPageKeys) / 4;
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
  const std::int64_t place = (std::int64_t{layer} * args.pages + page) * args.kv_heads + kv_head;
  return Global<std::byte>(args.cache) + place * page_bytes(args.head_dim);
}

}  // namespace farwarp::FARWARP_TARGET::qwen3
