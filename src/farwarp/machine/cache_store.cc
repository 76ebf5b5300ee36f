#include "farwarp/machine/cache_store.h"

namespace farwarp {

void TileStore::insert(std::uint64_t key, ReadyTime ready, std::int64_t bytes) {
  while (room_ < bytes && last_ != kNone) remove_last();
  if (room_ < bytes) return;
  room_ -= bytes;
  std::uint32_t node = 0;
  if (free_.empty()) {
    node = static_cast<std::uint32_t>(nodes_.size());
    nodes_.emplace_back();
    if (table_.size() < 4 * nodes_.size()) {
      table_.assign(2 * table_.size(), kNone);
      mask_ = table_.size() - 1;
      for (std::uint32_t other = 0; other < node; ++other) add_to_table(other);
    }
  } else {
    node = free_.back();
    free_.pop_back();
  }
  nodes_[node].key = key;
  nodes_[node].ready = ready;
  nodes_[node].bytes = bytes;
  add_to_table(node);
  link_first(node);
}

void TileStore::remove_last() {
  const std::uint32_t node = last_;
  room_ += nodes_[node].bytes;
  unlink(node);
  erase_from_table(nodes_[node].key);
  free_.push_back(node);
}

void TileStore::add_to_table(std::uint32_t node) {
  std::size_t at = home(nodes_[node].key);
  while (table_[at] != kNone) at = (at + 1) & mask_;
  table_[at] = node;
}

/// Moves later entries of the run up, so that no search ends before them.
void TileStore::erase_from_table(std::uint64_t key) {
  std::size_t hole = home(key);
  while (nodes_[table_[hole]].key != key) hole = (hole + 1) & mask_;
  for (std::size_t at = (hole + 1) & mask_; table_[at] != kNone; at = (at + 1) & mask_) {
    const std::size_t distance = (at - home(nodes_[table_[at]].key)) & mask_;
    if (distance < ((at - hole) & mask_)) continue;
    table_[hole] = table_[at];
    hole = at;
  }
  table_[hole] = kNone;
}

}  // namespace farwarp
