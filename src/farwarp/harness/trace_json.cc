#include "farwarp/harness/trace_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

namespace farwarp::harness {
namespace {

using json = nlohmann::json;

/// Both ends of an arrow compute it from what they know alone: 53 bits, which a JSON number holds exactly.
std::uint64_t arrow_of(HeapPlace place, std::uint32_t tag) {
  std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const std::uint64_t value : {static_cast<std::uint64_t>(place.rank), place.offset, std::uint64_t{tag}}) {
    for (int byte = 0; byte < 8; ++byte) hash = (hash ^ (value >> 8 * byte & 0xff)) * 0x100000001b3;
  }
  return hash >> 11;
}

bool is_instant(const TraceEvent& event) { return event.record.work == TraceWork::kPut; }

class Writer {
 public:
  explicit Writer(const RankTrace& rank) : rank_(rank) {}

  std::vector<std::string> write() {
    add({{"ph", "M"},
         {"name", "process_name"},
         {"args", {{"name", fmt::format("rank {}: {}", rank_.rank, rank_.device)}}}},
        0);
    name_thread(0, "launches");
    find_arrows();
    for (const TracedLaunch& launch : rank_.trace.launches) write_launch(launch);
    for (const auto& [thread, label] : labels_) {
      std::string works;
      for (const TraceWork work : label.works) works += (works.empty() ? ": " : ", ") + std::string(name_of(work));
      name_thread(thread, label.place + works);
    }
    return std::move(events_);
  }

 private:
  struct Label {
    std::string place;
    std::set<TraceWork> works;
  };

  /// Microseconds since the origin.
  double time(double device) const { return length(device - rank_.origin); }
  double length(double device) const { return rank_.emulated ? device : device * 1e-3; }

  void add(json event, std::int64_t thread) {
    event["pid"] = rank_.rank;
    event["tid"] = thread;
    events_.push_back(event.dump());
  }
  void name_thread(std::int64_t thread, const std::string& name) {
    add({{"ph", "M"}, {"name", "thread_name"}, {"args", {{"name", name}}}}, thread);
    add({{"ph", "M"}, {"name", "thread_sort_index"}, {"args", {{"sort_index", thread}}}}, thread);
  }

  /// Several threads may wait for a cell: the arrow ends at the one that saw it first.
  void find_arrows() {
    for (const TracedLaunch& launch : rank_.trace.launches) {
      for (const TraceEvent& event : launch.events) {
        if (event.record.work != TraceWork::kWait) continue;
        const HeapPlace place = rank_.place_of(event.record.where);
        if (place.rank != rank_.rank) continue;
        const TraceEvent*& first = ends_[arrow_of(place, event.record.tag)];
        if (first == nullptr || event.begin + event.length < first->begin + first->length) first = &event;
      }
    }
  }

  void write_launch(const TracedLaunch& launch) {
    double begin = std::numeric_limits<double>::infinity(), end = -begin;
    for (const TracedBlock& block : launch.blocks) begin = std::min(begin, block.begin), end = std::max(end, block.end);
    for (const TraceEvent& event : launch.events) end = std::max(end, event.begin + event.length);
    json arguments = {{"blocks", launch.blocks.size()}};
    if (launch.dropped > 0) arguments["dropped_records"] = launch.dropped;
    add({{"ph", "X"},
         {"cat", "launch"},
         {"name", launch.kernel},
         {"ts", time(begin)},
         {"dur", length(end - begin)},
         {"args", arguments}},
        0);
    for (const TraceEvent& event : launch.events) write_event(launch, event);
  }

  void write_event(const TracedLaunch& launch, const TraceEvent& event) {
    const TraceRecord& record = event.record;
    // Numbers of threads sort by block, warp and lane; 0 is the launches'.
    const std::int64_t thread = 1 + (std::int64_t{event.block} * 64 + event.warp) * 64 + record.lane;
    Label& label = labels_[thread];
    if (label.place.empty()) {
      label.place = fmt::format("block {} on {}, warp {}", event.block,
                                launch.blocks[static_cast<std::size_t>(event.block)].multiprocessor, event.warp);
      if (record.lane != 0) label.place += fmt::format(", lane {}", record.lane);
    }
    label.works.insert(record.work);
    const HeapPlace place =
        is_instant(event) || record.work == TraceWork::kWait ? rank_.place_of(record.where) : HeapPlace{};
    json arguments = json::object();
    std::string name = name_of(record.work);
    if (record.work == TraceWork::kWait) {
      if (record.slot != 0xff) name += ": " + rank_.site_name(record.slot, record.site);
      if (record.peer >= 0) name += fmt::format(" of rank {}", record.peer);
    } else if (is_instant(event)) {
      if (place.rank >= 0) name += fmt::format(" to rank {}", place.rank);
    } else {
      if (record.slot != 0xff) name += ": " + rank_.step_name(record.slot, record.where);
      arguments["number"] = record.where;
    }
    if (place.rank >= 0) arguments["offset"] = place.offset, arguments["tag"] = record.tag;
    const double begin = time(event.begin), took = length(event.length);
    add({{"ph", "X"}, {"cat", name_of(record.work)}, {"name", name}, {"ts", begin}, {"dur", took}, {"args", arguments}},
        thread);
    if (place.rank < 0) return;
    const std::uint64_t arrow = arrow_of(place, record.tag);
    const json ends = {{"cat", "put"}, {"name", "put"}, {"id", arrow}};
    if (is_instant(event)) {
      json start = ends;
      start.update({{"ph", "s"}, {"ts", begin}});
      add(start, thread);
    } else if (const auto found = ends_.find(arrow); found != ends_.end() && found->second == &event) {
      json finish = ends;
      finish.update({{"ph", "f"}, {"bp", "e"}, {"ts", begin + took}});
      add(finish, thread);
    }
  }

  const RankTrace& rank_;
  std::vector<std::string> events_;
  std::map<std::int64_t, Label> labels_;             // by thread
  std::map<std::uint64_t, const TraceEvent*> ends_;  // by arrow
};

}  // namespace

double first_time(const DeviceTrace& trace) {
  double first = std::numeric_limits<double>::infinity();
  for (const TracedLaunch& launch : trace.launches) {
    for (const TracedBlock& block : launch.blocks) first = std::min(first, block.begin);
  }
  return first;
}

std::vector<std::string> events_of(const RankTrace& rank) { return Writer(rank).write(); }

std::string trace_file(const std::vector<std::string>& events, const std::string& description) {
  std::string text =
      fmt::format("{{\"displayTimeUnit\": \"ns\", \"otherData\": {{\"description\": {}}}, \"traceEvents\": [\n",
                  json(description).dump());
  const char* separator = "";
  for (const std::string& event : events) {
    text += separator + event;
    separator = ",\n";
  }
  return text + "\n]}\n";
}

}  // namespace farwarp::harness
