// The places of a simulation in the order of their next event.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace farwarp {

/// A binary heap. Of equal times the lower place is first.
class EventQueue {
 public:
  explicit EventQueue(int places) { heap_.reserve(static_cast<std::size_t>(places)); }

  bool empty() const { return heap_.empty(); }
  int first() const { return heap_.front().place; }
  double first_time() const { return heap_.front().time; }

  void push(int place, double time) {
    heap_.push_back({time, place});
    for (std::size_t at = heap_.size() - 1; at > 0 && before(heap_[at], heap_[(at - 1) / 2]); at = (at - 1) / 2)
      std::swap(heap_[at], heap_[(at - 1) / 2]);
  }
  /// The first place's next event is at `time`.
  void replace_first(double time) {
    heap_.front().time = time;
    sink();
  }
  void pop_first() {
    heap_.front() = heap_.back();
    heap_.pop_back();
    if (!heap_.empty()) sink();
  }

 private:
  struct Event {
    double time;
    int place;
  };
  static bool before(const Event& a, const Event& b) {
    return a.time < b.time || (a.time == b.time && a.place < b.place);
  }

  void sink() {
    const Event moved = heap_.front();
    std::size_t at = 0;
    for (std::size_t child = 1; child < heap_.size(); child = 2 * at + 1) {
      if (child + 1 < heap_.size() && before(heap_[child + 1], heap_[child])) ++child;
      if (!before(heap_[child], moved)) break;
      heap_[at] = heap_[child];
      at = child;
    }
    heap_[at] = moved;
  }

  std::vector<Event> heap_;
};

}  // namespace farwarp
