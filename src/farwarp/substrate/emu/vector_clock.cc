#include "farwarp/substrate/emu/vector_clock.h"

#include <algorithm>
#include <array>
#include <cstdint>

namespace farwarp::emu {
namespace {

/// Appends entries in key order and drops those that the block's or the warp's entry covers.
class Builder {
 public:
  explicit Builder(std::size_t most) { entries_.reserve(most); }

  void add(ClockEntry entry) {
    if (entry.time == 0) return;
    switch (kind_of(entry.key)) {
      case EntryKind::block: block_ = entry; break;
      case EntryKind::warp:
        if (in_block(entry)) return;
        warp_ = entry;
        break;
      case EntryKind::thread:
        if (in_block(entry) || (warp_key(uid_of(entry.key)) == warp_.key && entry.time <= warp_.time)) return;
        break;
      case EntryKind::async: break;  // no entry covers it: who knows a thread's writes need not know its copies
    }
    entries_.push_back(entry);
  }

  ClockRef take() { return entries_.empty() ? ClockRef() : ClockRef(new Clock{std::move(entries_)}); }

 private:
  bool in_block(ClockEntry entry) const {
    return block_.time >= entry.time && block_key(block_uid(uid_of(entry.key))) == block_.key;
  }

  std::vector<ClockEntry> entries_;
  ClockEntry block_{~Key{0}, 0};
  ClockEntry warp_{~Key{0}, 0};
};

/// True if `clock` has, for each of `entries`, an entry of the same key that is at least as late.
bool contains(const std::vector<ClockEntry>& clock, const std::vector<ClockEntry>& entries) {
  auto at = clock.begin();
  for (const ClockEntry& entry : entries) {
    while (at != clock.end() && at->key < entry.key) ++at;
    if (at == clock.end() || at->key != entry.key || at->time < entry.time) return false;
  }
  return true;
}

ClockRef merge(const std::vector<ClockEntry>& a, const std::vector<ClockEntry>& b) {
  Builder result(a.size() + b.size());
  auto i = a.begin();
  auto j = b.begin();
  while (i != a.end() || j != b.end()) {
    if (j == b.end() || (i != a.end() && i->key < j->key)) {
      result.add(*i++);
    } else if (i == a.end() || j->key < i->key) {
      result.add(*j++);
    } else {
      result.add({i->key, std::max(i->time, j->time)});
      ++i, ++j;
    }
  }
  return result.take();
}

ClockRef join_entries(const ClockRef& a, const ClockRef& b) {
  if (contains(a->entries, b->entries)) return a;
  if (contains(b->entries, a->entries)) return b;
  return merge(a->entries, b->entries);
}

/// A join that was asked for lately. Clocks do not change, and one that is kept here is not freed, so equal pointers
/// mean equal clocks.
struct Joined {
  ClockRef a, b, both;
};
/// The lanes of a warp mostly have the same clock and acquire the same one, so most joins are repetitions.
std::array<Joined, 256> joined;

Joined& place_of(const ClockRef& a, const ClockRef& b) {
  const std::uint64_t mixed = reinterpret_cast<std::uintptr_t>(a.get()) * 0x9e3779b97f4a7c15u ^
                              reinterpret_cast<std::uintptr_t>(b.get()) * 0xc2b2ae3d27d4eb4fu;
  return joined[mixed >> 40 & (joined.size() - 1)];
}

}  // namespace

Time time_of(const ClockRef& clock, Key key) {
  if (!clock) return 0;
  const auto& entries = clock->entries;
  const auto at = std::lower_bound(entries.begin(), entries.end(), key,
                                   [](const ClockEntry& entry, Key wanted) { return entry.key < wanted; });
  return at != entries.end() && at->key == key ? at->time : 0;
}

ClockRef join(const ClockRef& a, const ClockRef& b) {
  if (!b || a == b) return a;
  if (!a) return b;
  Joined& known = place_of(a, b);
  if (!(known.a == a && known.b == b)) known = {a, b, join_entries(a, b)};
  return known.both;
}

ClockRef with(const ClockRef& clock, std::vector<ClockEntry> entries) {
  std::erase_if(entries, [](const ClockEntry& entry) { return entry.time == 0; });
  std::sort(entries.begin(), entries.end(),
            [](const ClockEntry& x, const ClockEntry& y) { return x.key != y.key ? x.key < y.key : x.time > y.time; });
  entries.erase(std::unique(entries.begin(), entries.end(), [](auto& x, auto& y) { return x.key == y.key; }),
                entries.end());
  static const std::vector<ClockEntry> kNone;
  const auto& existing = clock ? clock->entries : kNone;
  if (contains(existing, entries)) return clock;
  return merge(existing, entries);
}

}  // namespace farwarp::emu
