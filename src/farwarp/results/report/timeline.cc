#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "farwarp/results/report/parts.h"
#include "farwarp/results/report/values.h"

namespace farwarp::results {
namespace {

using nlohmann::json;

constexpr std::size_t kMostThreads = 40;  ///< of all ranks together
constexpr int kMostArrows = 300;
constexpr int kLane = 27, kBar = 10, kHead = 46;  ///< heights in pixels

constexpr std::array kKinds = {"launch",  "load",  "multiply", "attend", "reduce", "send",
                               "receive", "store", "task",     "wait",   "put"};

using ThreadKey = std::pair<double, double>;  // process and thread
struct Span {
  double begin = 0, length = 0;
  std::string kind, name;
};
struct Thread {
  std::string name;
  std::vector<Span> spans;
  int top = -1;  ///< where it is drawn; below 0: it is not
};
struct ArrowEnd {
  ThreadKey thread;
  double at = 0;
};
struct Traced {
  std::string description;
  std::map<double, std::string> processes;
  std::map<ThreadKey, Thread> threads;
  std::map<double, ArrowEnd> starts;  ///< by number
  std::vector<std::pair<double, ArrowEnd>> ends;
  double first = INFINITY, last = -INFINITY;

  double place(double at) const { return 100 * (at - first) / (last - first); }
};

void add_event(const json& event, Traced& traced) {
  const std::string phase = text(event, "ph"), name = text(event, "name");
  const ThreadKey key = {number(event, "pid").value_or(0), number(event, "tid").value_or(0)};
  const auto at = number(event, "ts");
  if (phase == "M" && name == "process_name") traced.processes[key.first] = text(member(event, "args"), "name");
  if (phase == "M" && name == "thread_name") traced.threads[key].name = text(member(event, "args"), "name");
  if (!at) return;
  if (phase == "X") {
    const double length = std::max(0.0, number(event, "dur").value_or(0));
    traced.threads[key].spans.push_back({*at, length, text(event, "cat"), name});
    traced.first = std::min(traced.first, *at);
    traced.last = std::max(traced.last, *at + length);
  }
  if (phase == "s") traced.starts[number(event, "id").value_or(-1)] = {key, *at};
  if (phase == "f") traced.ends.emplace_back(number(event, "id").value_or(-1), ArrowEnd{key, *at});
}

/// Each rank's first threads. The height of all.
int lay_out(Traced& traced) {
  std::map<double, std::size_t> drawn;
  for (auto& [key, thread] : traced.threads) {
    if (!thread.spans.empty()) drawn.try_emplace(key.first, 0);
  }
  const std::size_t most = std::max<std::size_t>(3, kMostThreads / std::max<std::size_t>(1, drawn.size()));
  int top = 0;
  for (auto& [process, count] : drawn) {
    top += kHead;
    for (auto& [key, thread] : traced.threads) {
      if (key.first != process || thread.spans.empty() || count == most) continue;
      thread.top = top;
      top += kLane;
      ++count;
    }
  }
  return top;
}

std::string heading(const Traced& traced, double process, int top) {
  const auto found = traced.processes.find(process);
  const std::string name = found == traced.processes.end() ? fmt::format("process {:g}", process) : found->second;
  std::size_t shown_threads = 0, all = 0;
  for (const auto& [key, thread] : traced.threads) {
    if (key.first != process || thread.spans.empty()) continue;
    ++all;
    if (thread.top >= 0) ++shown_threads;
  }
  return fmt::format("<text class=\"rank\" x=\"0\" y=\"{}\">{}</text><text class=\"lane\" x=\"0\" y=\"{}\">{}</text>",
                     top - 18, escaped(name), top - 3,
                     all == shown_threads ? fmt::format("{} threads", all)
                                          : fmt::format("the first {} of {} threads", shown_threads, all));
}

/// The longest are drawn first, below the shorter ones. Of those that would cover each other one is drawn.
std::string lane_of(const Traced& traced, Thread& thread, std::set<std::string>& kinds) {
  std::sort(thread.spans.begin(), thread.spans.end(), [](const Span& one, const Span& other) {
    return std::pair(-one.length, one.begin) < std::pair(-other.length, other.begin);
  });
  const int bar = thread.top + kLane - kBar - 2;
  std::string lane = fmt::format("<text class=\"lane\" x=\"0\" y=\"{}\">{}</text>", bar - 3, escaped(thread.name));
  lane += fmt::format("<line class=\"grid\" x1=\"0\" x2=\"100%\" y1=\"{0}\" y2=\"{0}\"/>", bar + kBar);
  std::set<std::pair<std::string, std::string>> there;
  for (const Span& span : thread.spans) {
    const bool known = std::find(kKinds.begin(), kKinds.end(), span.kind) != kKinds.end();
    const std::string kind = known ? span.kind : "other";
    kinds.insert(kind);
    const std::string place = fmt::format("x=\"{:.1f}%\" width=\"{:.1f}%\"", traced.place(span.begin),
                                          std::max(0.1, 100 * span.length / (traced.last - traced.first)));
    if (!there.emplace(kind, place).second) continue;
    const bool low = kind == "wait";
    lane += fmt::format("<rect class=\"t-{}\" {} y=\"{}\" height=\"{}\"><title>{}: {} us at {}</title></rect>", kind,
                        place, low ? bar + kBar / 2 : bar, low ? kBar / 2 : kBar, escaped(span.name),
                        shown(span.length), shown(span.begin));
  }
  return lane + "\n";
}

std::string arrows_of(const Traced& traced, int& count) {
  std::string arrows;
  const auto middle = [&](const ArrowEnd& end) {
    const auto found = traced.threads.find(end.thread);
    return found == traced.threads.end() || found->second.top < 0 ? -1 : found->second.top + kLane - kBar / 2 - 2;
  };
  for (const auto& [id, end] : traced.ends) {
    const auto start = traced.starts.find(id);
    if (start == traced.starts.end() || count == kMostArrows) continue;
    const int from = middle(start->second), to = middle(end);
    if (from < 0 || to < 0) continue;
    ++count;
    arrows += fmt::format(
        "<line class=\"arrow\" x1=\"{:.2f}%\" y1=\"{}\" x2=\"{:.2f}%\" y2=\"{}\"/><circle class=\"arrow\" "
        "cx=\"{:.2f}%\" "
        "cy=\"{}\" r=\"2\"/>",
        traced.place(start->second.at), from, traced.place(end.at), to, traced.place(end.at), to);
  }
  return arrows;
}

std::string axis_of(const Traced& traced, int height) {
  std::string axis;
  for (int part = 0; part <= 4; ++part) {
    const char* const anchor = part == 0 ? "start" : part == 4 ? "end" : "middle";
    axis += fmt::format(
        "<line class=\"grid\" x1=\"{0}%\" x2=\"{0}%\" y1=\"0\" y2=\"{1}\"/><text class=\"lane\" x=\"{0}%\" y=\"{2}\" "
        "text-anchor=\"{3}\">{4}{5}</text>",
        25 * part, height, height + 14, anchor, shown((traced.last - traced.first) * part / 4), part == 4 ? " us" : "");
  }
  return axis;
}

}  // namespace

Result<std::string> timeline_of(const std::string& trace) {
  const json file = json::parse(trace, nullptr, false);
  if (!member(file, "traceEvents").is_array()) return invalid_argument("is no JSON that `farwarp trace` wrote");
  Traced traced;
  traced.description = text(member(file, "otherData"), "description");
  for (const json& event : list(file, "traceEvents")) add_event(event, traced);
  if (!(traced.last > traced.first)) return invalid_argument("has no events; allowed: a trace with some");
  const int height = lay_out(traced);
  std::string lanes;
  std::set<double> headed;
  std::set<std::string> kinds;
  for (auto& [key, thread] : traced.threads) {
    if (thread.top < 0) continue;
    if (headed.insert(key.first).second) lanes += heading(traced, key.first, thread.top);
    lanes += lane_of(traced, thread, kinds);
  }
  int arrows = 0;
  const std::string lines = arrows_of(traced, arrows);
  std::string legend;
  for (const std::string& kind : kinds) legend += fmt::format("<i class=\"t-{0}\"></i>{0} ", kind);
  if (arrows > 0) legend += "<i class=\"arrow\"></i>from a put to the wait that it ends";
  return fmt::format(
      "<p>{}</p>\n<p class=\"legend\">{}</p>\n<svg class=\"timeline\" height=\"{}\" role=\"img\" "
      "aria-label=\"timeline\">\n{}{}{}</svg>\n",
      escaped(traced.description), legend, height + 20, axis_of(traced, height), lanes, lines);
}

}  // namespace farwarp::results
