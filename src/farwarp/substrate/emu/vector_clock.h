// Vector clocks of the memory model: which writes a thread knows. Sparse, hierarchical, immutable and shared.
//
// Time is one step counter for the whole machine, so one number stands for all writes of a thread up to a time. An
// entry is for a thread, all threads of a warp, all threads of a block, or a thread's async proxy. An entry is dropped
// if a wider entry with a later time covers it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace farwarp::emu {

using Time = std::uint64_t;
/// Identifies a thread of a launch: warp number << 6 | lane. Each launch gets new warp numbers; old ones are reused in
/// turn.
using Uid = std::uint32_t;

inline constexpr int kUidBits = 22;
inline constexpr Uid kMaxWarps = Uid{1} << (kUidBits - 6);
inline constexpr Time kForever = ~Time{0};

/// The first uid of the block that `uid` belongs to (streams.cc numbers the threads).
Uid block_uid(Uid uid);

/// Sorts a block's entries together: block, then each warp, its threads and their async proxies.
enum class EntryKind : std::uint32_t { block, warp, thread, async };
using Key = std::uint32_t;
constexpr Key block_key(Uid first) { return first << 2; }
constexpr Key warp_key(Uid uid) { return (uid & ~Uid{63}) << 2 | 1; }
constexpr Key thread_key(Uid uid) { return uid << 2 | 2; }
constexpr Key async_key(Uid uid) { return uid << 2 | 3; }
constexpr EntryKind kind_of(Key key) { return static_cast<EntryKind>(key & 3); }
constexpr Uid uid_of(Key key) { return key >> 2; }

struct ClockEntry {
  Key key;
  Time time;
};

/// A reference-counting pointer. The count is in the object and is not atomic, because only the engine's thread uses
/// clocks.
template <class T>
class Ref {
 public:
  Ref() = default;
  explicit Ref(T* object) : object_(object) {
    if (object_) ++object_->references;
  }
  Ref(const Ref& other) : Ref(other.object_) {}
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Ref& operator=(Ref other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() {
    if (object_ && --object_->references == 0) delete object_;
  }
  T* get() const { return object_; }
  T* operator->() const { return object_; }
  T& operator*() const { return *object_; }
  explicit operator bool() const { return object_ != nullptr; }
  friend bool operator==(const Ref& a, const Ref& b) { return a.object_ == b.object_; }

 private:
  T* object_ = nullptr;
};

struct Clock {
  std::vector<ClockEntry> entries;  ///< sorted by key
  mutable int references = 0;
};
using ClockRef = Ref<const Clock>;  ///< null: the empty clock

/// The time of the entry `key`; 0 if there is none.
Time time_of(const ClockRef& clock, Key key);
/// The union of both. Returns `a` itself if `b` adds nothing.
ClockRef join(const ClockRef& a, const ClockRef& b);
/// `clock` with these entries added. They may be in any order; entries with time 0 are ignored.
ClockRef with(const ClockRef& clock, std::vector<ClockEntry> entries);
/// `clock` without the entries for which `drop(key)` holds.
template <class Predicate>
ClockRef without(const ClockRef& clock, Predicate drop) {
  if (!clock) return clock;
  std::vector<ClockEntry> kept;
  for (const ClockEntry& entry : clock->entries) {
    if (!drop(entry.key)) kept.push_back(entry);
  }
  if (kept.size() == clock->entries.size()) return clock;
  return kept.empty() ? ClockRef() : ClockRef(new Clock{std::move(kept)});
}

}  // namespace farwarp::emu
