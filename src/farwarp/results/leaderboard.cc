#include "farwarp/results/leaderboard.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>
#include <utility>

#include "farwarp/harness/params.h"
#include "farwarp/results/statistics.h"

namespace farwarp::results {
namespace {

using nlohmann::json;

/// A board that grows by cases, the newest first.
struct Growing {
  Board board;
  std::vector<std::string> params;      ///< of each slot's newest case
  std::map<std::string, Place> places;  ///< by entry
  std::set<std::string> baselines;      ///< entries
};

std::string why_refused(const CaseRecord& record, const std::string& params, double median_us) {
  if (!record.verified) return fmt::format("its outputs are not verified: {}", harness::one_line(record.detail));
  if (record.params != params) return "its parameters are not those of the newest run";
  if (!(median_us > 0)) return "it has no time greater than 0";
  if (median_us < record.floor_us)
    return fmt::format("{:.2f} us is below the floor of {:.2f} us: {}", median_us, record.floor_us,
                       record.floor_bound_by);
  return {};
}

Status add_case(Store& store, const RunRecord& run, CaseRecord& record, std::size_t slot, Growing& growing) {
  std::string& params = growing.params[slot];
  if (params.empty()) params = record.params;
  for (SeriesRecord& series : record.series) {
    if (series.entry.empty()) continue;
    Place& place = growing.places[series.entry];
    place.entry = series.entry;
    place.times.resize(growing.board.slots.size());
    place.newest = std::max(place.newest, run.began);
    if (!series.ours) growing.baselines.insert(series.entry);
    Time& time = place.times[slot];
    if (time.run != 0) continue;  // there is a newer one
    if (Status status = store.read_samples(series); !status.ok()) return status;
    time = {quartiles_of(series.us).median, run.id, {}};
    time.refused = why_refused(record, params, time.median_us);
  }
  return {};
}

/// Where there is a choice of baselines.
void add_fastest_baseline(Growing& growing) {
  if (growing.baselines.size() < 2) return;
  Place best;
  best.entry = kFastestBaseline;
  best.times.resize(growing.board.slots.size());
  for (const std::string& name : growing.baselines) {
    const Place& place = growing.places[name];
    best.newest = std::max(best.newest, place.newest);
    for (std::size_t i = 0; i < best.times.size(); ++i) {
      const Time& time = place.times[i];
      if (time.run == 0 || !time.refused.empty()) continue;
      if (best.times[i].run == 0 || time.median_us < best.times[i].median_us) best.times[i] = time;
    }
  }
  growing.places[best.entry] = std::move(best);
}

Board finished(Growing growing) {
  add_fastest_baseline(growing);
  Board board = std::move(growing.board);
  for (auto& [entry, place] : growing.places) {
    std::vector<double> medians;
    for (const Time& time : place.times) medians.push_back(time.median_us);
    if (place.lacking() == 0 && place.refused() == 0) place.geometric_mean_us = geometric_mean(medians);
    board.places.push_back(std::move(place));
  }
  const auto order = [](const Place& place) {
    return std::tuple(!place.ranked(), place.geometric_mean_us, place.refused() == 0, place.lacking(), place.entry);
  };
  std::sort(board.places.begin(), board.places.end(),
            [&](const Place& one, const Place& other) { return order(one) < order(other); });
  return board;
}

std::string title_of(const Board& board, const std::string& suite) {
  return fmt::format("{}: {} benchmark{}, {} x {}{}{}\n", suite, board.slots.size(), board.slots.size() == 1 ? "" : "s",
                     board.ranks, board.machine, board.settings.empty() ? "" : ", ", board.settings);
}

/// "a, b, c and 5 more".
std::string few_of(const std::vector<std::string>& names) {
  constexpr std::size_t kMost = 6;
  std::string text;
  for (std::size_t i = 0; i < std::min(kMost, names.size()); ++i) harness::append_to_list(text, ", ", names[i]);
  if (names.size() > kMost) text += fmt::format(" and {} more", names.size() - kMost);
  return text;
}

std::string unranked(const Board& board, const Place& place) {
  std::string text = fmt::format("      {}\n", harness::one_line(place.entry));
  std::vector<std::string> lacking;
  for (std::size_t i = 0; i < board.slots.size(); ++i) {
    const Time& time = place.times[i];
    if (time.run == 0) lacking.push_back(board.slots[i].name());
    if (!time.refused.empty())
      text += fmt::format("        refused: {}, run {}: {}\n", board.slots[i].name(), time.run, time.refused);
  }
  if (!lacking.empty())
    text += fmt::format("        lacks {} of {}: {}\n", lacking.size(), board.slots.size(), few_of(lacking));
  return text;
}

json place_json(const Board& board, const Place& place) {
  json times = json::array();
  for (std::size_t i = 0; i < board.slots.size(); ++i) {
    const Time& time = place.times[i];
    json entry = {{"op", board.slots[i].op}, {"label", board.slots[i].label}};
    entry["median_us"] = time.run != 0 ? json(time.median_us) : json();
    entry["run"] = time.run != 0 ? json(time.run) : json();
    entry["refused"] = time.refused.empty() ? json() : json(time.refused);
    times.push_back(std::move(entry));
  }
  return {{"entry", place.entry},
          {"ranked", place.ranked()},
          {"geometric_mean_us", place.ranked() ? json(place.geometric_mean_us) : json()},
          {"newest", place.newest},
          {"lacking", place.lacking()},
          {"refused", place.refused()},
          {"times", times}};
}

}  // namespace

int Place::lacking() const {
  return static_cast<int>(std::count_if(times.begin(), times.end(), [](const Time& time) { return time.run == 0; }));
}

int Place::refused() const {
  return static_cast<int>(
      std::count_if(times.begin(), times.end(), [](const Time& time) { return !time.refused.empty(); }));
}

Result<std::vector<Board>> leaderboard(Store& store, const harness::Suite& suite, const std::string& op) {
  std::vector<Slot> slots;
  for (const harness::SuiteEntry& entry : suite.entries) {
    if (entry.group == harness::SuiteGroup::kBenchmarks && (op.empty() || op == entry.op))
      slots.push_back({entry.op, fmt::format("{}[{}]", name_of(entry.group), entry.index)});
  }
  if (slots.empty())
    return invalid_argument(fmt::format("suite {} has no benchmarks{}{}", suite.name, op.empty() ? "" : " of ", op));
  const auto runs = store.runs();
  if (!runs.ok()) return runs.status();
  std::map<std::int64_t, const RunRecord*> by_id;
  for (const RunRecord& run : *runs) by_id[run.id] = &run;
  auto cases = store.cases_of_suite(suite.name);
  if (!cases.ok()) return cases.status();
  std::map<std::tuple<bool, std::string, int, std::string>, Growing> growing;
  for (auto record = cases->rbegin(); record != cases->rend(); ++record) {
    const auto slot = std::find(slots.begin(), slots.end(), Slot{record->op, record->label});
    const auto run = by_id.find(record->run);
    if (slot == slots.end() || run == by_id.end()) continue;
    const RunRecord& of = *run->second;
    Growing& grows = growing[{of.emulated(), of.machine, of.ranks, record->settings}];
    if (grows.params.empty()) {
      grows.board = {of.machine, of.ranks, record->settings, of.emulated(), slots, {}};
      grows.params.resize(slots.size());
    }
    const auto index = static_cast<std::size_t>(slot - slots.begin());
    if (Status status = add_case(store, of, *record, index, grows); !status.ok()) return status;
  }
  std::vector<Board> boards;
  for (auto& [key, board] : growing) boards.push_back(finished(std::move(board)));
  return boards;
}

std::string to_text(const std::vector<Board>& boards, const std::string& suite) {
  std::string text;
  for (const Board& board : boards) {
    if (!text.empty()) text += "\n";
    text += title_of(board, suite);
    if (board.emulated) text += "times of the emulator: they say nothing about any machine\n";
    text += fmt::format("{:<5} {:<44} {:>10} {:>8}  {}\n", "place", "entry", "geomean us", "x first", "newest run");
    double first = 0;
    int place_number = 0;
    bool listing = false;
    for (const Place& place : board.places) {
      if (place.ranked()) {
        if (first == 0) first = place.geometric_mean_us;
        text += fmt::format("{:<5} {:<44} {:>10.2f} {:>8.3f}  {}\n", ++place_number, harness::one_line(place.entry),
                            place.geometric_mean_us, place.geometric_mean_us / first, place.newest);
        continue;
      }
      if (!std::exchange(listing, true)) text += "not ranked\n";
      text += unranked(board, place);
    }
  }
  return text;
}

std::string to_json(const std::vector<Board>& boards, const std::string& suite) {
  json list = json::array();
  for (const Board& board : boards) {
    json places = json::array();
    for (const Place& place : board.places) places.push_back(place_json(board, place));
    list.push_back({{"machine", board.machine},
                    {"ranks", board.ranks},
                    {"settings", board.settings},
                    {"times_have_meaning", !board.emulated},
                    {"places", places}});
  }
  const json root = {{"suite", suite}, {"boards", list}};
  return root.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace farwarp::results
