// Which lines or tiles a cache holds: replacement only, no time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace farwarp {

/// A key is an object's number shifted by this, plus the number of a line or tile of the object.
inline constexpr int kObjectShift = 36;

/// When the data of a line or tile is in the cache.
using ReadyTime = double;

/// Lines in sets, the least recently used of a set is replaced. Consecutive lines of an object are in consecutive sets;
/// objects begin at any set.
class LineStore {
 public:
  LineStore(std::int64_t bytes, int ways, int line)
      : sets_(static_cast<std::uint64_t>(std::max<std::int64_t>(bytes / line / ways, 1))),
        ways_(static_cast<std::size_t>(ways)),
        slots_(sets_ * ways_) {}

  /// nullptr if it is not there. The pointer is valid until the next call.
  ReadyTime* find(std::uint64_t key) {
    Slot* const set = set_of(key);
    for (std::size_t way = 0; way < ways_; ++way) {
      if (set[way].key != key + 1) continue;
      set[way].used = ++clock_;
      return &set[way].ready;
    }
    return nullptr;
  }

  /// Adds a key that is not there.
  void insert(std::uint64_t key, ReadyTime ready, std::int64_t /*bytes*/) {
    Slot* const set = set_of(key);
    std::size_t oldest = 0;
    for (std::size_t way = 1; way < ways_; ++way) {
      if (set[way].used < set[oldest].used) oldest = way;
    }
    set[oldest] = {key + 1, ++clock_, ready};
  }

 private:
  struct Slot {
    std::uint64_t key = 0;  ///< plus 1; 0: empty
    std::uint64_t used = 0;
    ReadyTime ready = 0;
  };
  Slot* set_of(std::uint64_t key) { return &slots_[(key + (key >> kObjectShift) * 0x9e3779b1) % sets_ * ways_]; }

  std::uint64_t sets_;
  std::size_t ways_;
  std::vector<Slot> slots_;
  std::uint64_t clock_ = 0;
};

/// Tiles, the least recently used of all are replaced: the lines of a tile are spread over the sets evenly, so sets do
/// not matter.
class TileStore {
 public:
  explicit TileStore(std::int64_t bytes) : room_(bytes), table_(16, kNone), mask_(15) {}

  ReadyTime* find(std::uint64_t key) {
    for (std::size_t at = home(key); table_[at] != kNone; at = (at + 1) & mask_) {
      const std::uint32_t node = table_[at];
      if (nodes_[node].key != key) continue;
      if (first_ != node) {
        unlink(node);
        link_first(node);
      }
      return &nodes_[node].ready;
    }
    return nullptr;
  }
  /// Adds a key that is not there, if the cache has room for its bytes at all.
  void insert(std::uint64_t key, ReadyTime ready, std::int64_t bytes);

 private:
  static constexpr std::uint32_t kNone = 0xffffffff;
  struct Node {
    std::uint64_t key = 0;
    ReadyTime ready = 0;
    std::int64_t bytes = 0;
    std::uint32_t before = kNone, after = kNone;  ///< in the order of use, the most recent first
  };

  std::size_t home(std::uint64_t key) const {
    key *= 0x9e3779b97f4a7c15;
    return static_cast<std::size_t>(key ^ key >> 29) & mask_;
  }
  void unlink(std::uint32_t node) {
    const Node& at = nodes_[node];
    (at.before == kNone ? first_ : nodes_[at.before].after) = at.after;
    (at.after == kNone ? last_ : nodes_[at.after].before) = at.before;
  }
  void link_first(std::uint32_t node) {
    nodes_[node].before = kNone;
    nodes_[node].after = first_;
    (first_ == kNone ? last_ : nodes_[first_].before) = node;
    first_ = node;
  }
  void add_to_table(std::uint32_t node);
  void erase_from_table(std::uint64_t key);
  void remove_last();

  std::int64_t room_;  ///< bytes that are free
  std::vector<Node> nodes_;
  std::vector<std::uint32_t> free_;   ///< of the nodes
  std::vector<std::uint32_t> table_;  ///< open addressing: numbers of nodes
  std::size_t mask_;
  std::uint32_t first_ = kNone, last_ = kNone;
};

}  // namespace farwarp
