#include "farwarp/results/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "farwarp/harness/case.h"
#include "farwarp/harness/params.h"

namespace farwarp::results {
namespace {

using nlohmann::json;

SeriesRecord* find_series(CaseRecord& record, const std::string& name) {
  const auto found = std::find_if(record.series.begin(), record.series.end(),
                                  [&](const SeriesRecord& series) { return series.name == name; });
  return found == record.series.end() ? nullptr : &*found;
}

Status read_samples(Store& store, CaseRecord& record) {
  Status status;
  for (SeriesRecord& series : record.series) {
    if (status.ok()) status = store.read_samples(series);
  }
  return status;
}

/// Appends the samples of `older` to those of `pooled`.
void pool(const CaseRecord& older, CaseRecord& pooled) {
  if (!older.verified && pooled.verified) {
    pooled.verified = false;
    pooled.detail = older.detail;
  }
  for (const SeriesRecord& series : older.series) {
    SeriesRecord* const into = find_series(pooled, series.name);
    if (into != nullptr) {
      const bool known = !into->cycles.empty() && !series.cycles.empty();
      into->us.insert(into->us.end(), series.us.begin(), series.us.end());
      into->cycles.insert(into->cycles.end(), series.cycles.begin(), series.cycles.end());
      if (!known) into->cycles.clear();
    } else {
      pooled.series.push_back(series);
    }
  }
}

/// Takes the cases of `runs` (the newest first) into the side. Of a case that there is twice the older one is pooled or
/// left.
Status take(Store& store, const std::vector<RunRecord>& runs, bool pooled, Side& side) {
  std::map<std::string, std::size_t> places;
  for (const RunRecord& run : runs) {
    auto cases = store.cases_of_run(run.id);
    if (!cases.ok()) return cases.status();
    bool used = false;
    for (CaseRecord& record : *cases) {
      SideCase taken{std::move(record), run.machine, run.target, run.ranks};
      const auto [place, is_new] = places.try_emplace(taken.key(), side.cases.size());
      if (!is_new && !pooled) continue;
      used = true;
      if (Status status = read_samples(store, taken.record); !status.ok()) return status;
      if (is_new) {
        side.cases.push_back(std::move(taken));
      } else {
        pool(taken.record, side.cases[place->second].record);
      }
    }
    if (used) side.runs.push_back(run);
  }
  return {};
}

std::string known_runs(const std::vector<RunRecord>& runs) {
  if (runs.empty()) return "none, the database is empty";
  std::set<std::string> labels;
  for (const RunRecord& run : runs) {
    if (!run.label.empty()) labels.insert(run.label);
  }
  std::string text = fmt::format("runs {}..{}", runs.front().id, runs.back().id);
  if (labels.size() > 20) return text + fmt::format(" and {} labels", labels.size());
  for (const std::string& label : labels) harness::append_to_list(text, ", ", label);
  return text;
}

void compare_series(CaseRecord& a, CaseRecord& b, const std::string& title, CaseComparison& compared,
                    Comparison& comparison) {
  bool first = true;
  for (const SeriesRecord& series : a.series) {
    const SeriesRecord* const other = find_series(b, series.name);
    if (other == nullptr) {
      comparison.only_a.push_back(title + ": " + series.name);
      continue;
    }
    const bool main = series.ours && first;
    first = first && !series.ours;
    SeriesComparison made{series.name, series.ours, main, judge(series.us, other->us), false, {}};
    made.has_cycles = !series.cycles.empty() && !other->cycles.empty();
    if (made.has_cycles) {
      made.cycles = judge(series.cycles, other->cycles);
      made.judgement = confirmed(std::move(made.judgement), made.cycles);
    }
    compared.series.push_back(std::move(made));
  }
  for (const SeriesRecord& series : b.series) {
    if (find_series(a, series.name) == nullptr) comparison.only_b.push_back(title + ": " + series.name);
  }
}

std::string shown(const Quartiles& quartiles) {
  return fmt::format("{:>9.2f} [{:.2f}, {:.2f}] {}", quartiles.median, quartiles.q1, quartiles.q3, quartiles.n);
}

std::string line_of(const char* letter, const Side& side) {
  std::string runs, commits, machines;
  std::set<std::string> seen_commits, seen_machines;
  for (const RunRecord& run : side.runs) {
    harness::append_to_list(runs, ",", std::to_string(run.id));
    if (seen_commits.insert(run.commit).second) harness::append_to_list(commits, ", ", run.commit);
    const std::string machine = fmt::format("{} x {}", run.ranks, run.machine);
    if (seen_machines.insert(machine).second) harness::append_to_list(machines, ", ", machine);
  }
  return fmt::format("{}: {} (run {}), farwarp {}, {}\n", letter, side.name, runs, commits, machines);
}

json side_json(const Side& side) {
  json runs = json::array();
  for (const RunRecord& run : side.runs) {
    runs.push_back({{"id", run.id},
                    {"label", run.label},
                    {"began", run.began},
                    {"machine", run.machine},
                    {"target", run.target},
                    {"driver", run.driver},
                    {"clocks", run.clocks},
                    {"ranks", run.ranks},
                    {"version", run.version},
                    {"commit", run.commit},
                    {"command", run.command},
                    {"complete", run.complete}});
  }
  return {{"name", side.name}, {"runs", runs}};
}

json quartiles_json(const Quartiles& quartiles) {
  return {{"median", quartiles.median}, {"q1", quartiles.q1}, {"q3", quartiles.q3}, {"n", quartiles.n}};
}

json judgement_json(const Judgement& judgement) {
  return {{"verdict", name_of(judgement.verdict)},
          {"reason", judgement.reason},
          {"ratio", judgement.ratio},
          {"a", quartiles_json(judgement.a)},
          {"b", quartiles_json(judgement.b)}};
}

json case_json(const CaseComparison& compared) {
  const CaseRecord& record = compared.of.record;
  json all = json::array();
  for (const SeriesComparison& series : compared.series) {
    all.push_back({{"name", series.name},
                   {"ours", series.ours},
                   {"main", series.main},
                   {"us", judgement_json(series.judgement)},
                   {"cycles", series.has_cycles ? judgement_json(series.cycles) : json()}});
  }
  return {{"op", record.op},
          {"suite", record.suite},
          {"label", record.label},
          {"params", json::parse(record.params, nullptr, false)},
          {"seed", record.seed},
          {"machine", compared.of.machine},
          {"ranks", compared.of.ranks},
          {"failed", compared.failed},
          {"series", all}};
}

}  // namespace

std::string SideCase::key() const {
  return fmt::format("{}|{}|{}|{}|{}|{}", machine, target, ranks, record.op, record.params, record.seed);
}

std::string SideCase::title() const {
  if (!record.label.empty()) return record.op + " " + record.label;
  std::string title = record.op;
  const harness::OperatorInfo* const op = harness::find_operator(record.op);
  const json params = json::parse(record.params, nullptr, false);
  if (op == nullptr || !params.is_object()) return title;
  for (const harness::ParamInfo& info : op->params) {
    const json value = params.value(info.name, json());
    if (value.is_string() && value.get<std::string>() != info.default_value)
      title += fmt::format(" {}={}", info.name, value.get<std::string>());
  }
  return title;
}

Result<Side> side_of_runs(Store& store, const std::string& name, const std::vector<std::int64_t>& ids) {
  const auto all = store.runs();
  if (!all.ok()) return all.status();
  std::vector<RunRecord> chosen;
  for (const std::int64_t id : ids) {
    const auto found = std::find_if(all->begin(), all->end(), [&](const RunRecord& run) { return run.id == id; });
    if (found == all->end())
      return invalid_argument(fmt::format("there is no run {}; allowed: {}", id, known_runs(*all)));
    const RunRecord& first = chosen.empty() ? *found : chosen.front();
    if (first.machine != found->machine || first.ranks != found->ranks || first.commit != found->commit)
      return invalid_argument(fmt::format(
          "run {} is of {} x {}, commit {}, and run {} of {} x {}, commit {}; allowed: runs of one machine "
          "and commit",
          first.id, first.ranks, first.machine, first.commit, found->id, found->ranks, found->machine, found->commit));
    chosen.push_back(*found);
  }
  Side side{name, {}, {}};
  if (Status status = take(store, chosen, true, side); !status.ok()) return status;
  return side;
}

Result<Side> newest_side(Store& store, const std::string& name, const std::string& label) {
  const auto all = store.runs();
  if (!all.ok()) return all.status();
  std::vector<RunRecord> chosen;
  std::copy_if(all->rbegin(), all->rend(), std::back_inserter(chosen),
               [&](const RunRecord& run) { return label.empty() || run.label == label; });
  if (chosen.empty())
    return invalid_argument(label.empty() ? "there is no run in it"
                                          : fmt::format("no run has this label; allowed: {}", known_runs(*all)));
  Side side{name, {}, {}};
  if (Status status = take(store, chosen, false, side); !status.ok()) return status;
  return side;
}

int Comparison::count(Verdict verdict) const {
  int found = 0;
  for (const CaseComparison& compared : cases) {
    for (const SeriesComparison& series : compared.series) found += series.ours && series.judgement.verdict == verdict;
  }
  return found;
}

int Comparison::failed() const {
  return static_cast<int>(std::count_if(cases.begin(), cases.end(),
                                        [](const CaseComparison& compared) { return !compared.failed.empty(); }));
}

bool Comparison::emulated() const {
  return std::any_of(cases.begin(), cases.end(),
                     [](const CaseComparison& compared) { return compared.of.target.starts_with("emu_"); });
}

Result<Comparison> compare(Side a, Side b) {
  Comparison comparison;
  std::map<std::string, SideCase*> others;
  for (SideCase& of_b : b.cases) others[of_b.key()] = &of_b;
  std::vector<double> ratios;
  for (SideCase& of_a : a.cases) {
    const auto found = others.find(of_a.key());
    if (found == others.end()) {
      comparison.only_a.push_back(of_a.title());
      continue;
    }
    SideCase& of_b = *found->second;
    CaseComparison compared{of_a, {}, {}};
    for (const auto& [letter, side] : {std::pair("A", &of_a), std::pair("B", &of_b)}) {
      if (!side->record.verified && compared.failed.empty())
        compared.failed = fmt::format("{}: {}", letter, harness::one_line(side->record.detail));
    }
    if (compared.failed.empty()) compare_series(of_a.record, of_b.record, of_a.title(), compared, comparison);
    for (const SeriesComparison& series : compared.series) {
      if (series.main) ratios.push_back(series.judgement.ratio);
    }
    comparison.cases.push_back(std::move(compared));
    others.erase(found);
  }
  for (const SideCase& of_b : b.cases) {
    if (others.contains(of_b.key())) comparison.only_b.push_back(of_b.title());
  }
  if (comparison.cases.empty())
    return invalid_argument(
        "A and B have no case in common; allowed: results of the same shapes, seeds, machine and ranks");
  comparison.ratio = geometric_mean(ratios);
  comparison.a = std::move(a);
  comparison.b = std::move(b);
  return comparison;
}

std::string to_text(const Comparison& comparison) {
  std::string text = line_of("A", comparison.a) + line_of("B", comparison.b);
  if (comparison.emulated()) text += "times of the emulator: they say nothing about any machine\n";
  text += fmt::format("{:<9} {:>6}  {:<36} {:<36} {}\n", "B is", "B/A", "A: us, quartiles, samples",
                      "B: us, quartiles, samples", "case");
  for (const CaseComparison& compared : comparison.cases) {
    const std::string title = compared.of.title();
    if (!compared.failed.empty()) text += fmt::format("{:<9} {}: {}\n", "FAILED", title, compared.failed);
    for (const SeriesComparison& series : compared.series) {
      const Judgement& judgement = series.judgement;
      text += fmt::format("{:<9} {:>6.3f}  {:<36} {:<36} {}: {}{}\n", name_of(judgement.verdict), judgement.ratio,
                          shown(judgement.a), shown(judgement.b), title, series.name,
                          series.ours ? "" : " (baseline: decides nothing)");
      if (!judgement.reason.empty()) text += fmt::format("          {}\n", judgement.reason);
    }
  }
  for (const auto& [letter, names] : {std::pair("A", &comparison.only_a), std::pair("B", &comparison.only_b)}) {
    for (const std::string& name : *names) text += fmt::format("only {}: {}\n", letter, name);
  }
  if (comparison.ratio > 0) text += fmt::format("geometric mean of B/A: {:.3f}\n", comparison.ratio);
  std::string counts;
  for (const Verdict verdict : {Verdict::kFaster, Verdict::kSlower, Verdict::kSame, Verdict::kUndecided})
    harness::append_to_list(counts, ", ", fmt::format("{} {}", comparison.count(verdict), name_of(verdict)));
  if (comparison.failed() > 0) counts += fmt::format(", {} FAILED", comparison.failed());
  return text + fmt::format("{} (SAME: medians within {:g}%; FASTER, SLOWER: quartiles apart by at least {:g}%)\n",
                            counts, 100 * kTolerance, 100 * kClearGap);
}

std::string to_json(const Comparison& comparison) {
  json cases = json::array(), counts = json::object();
  for (const CaseComparison& compared : comparison.cases) cases.push_back(case_json(compared));
  for (const Verdict verdict : {Verdict::kFaster, Verdict::kSlower, Verdict::kSame, Verdict::kUndecided})
    counts[std::string(name_of(verdict))] = comparison.count(verdict);
  counts["FAILED"] = comparison.failed();
  const json root = {{"a", side_json(comparison.a)},
                     {"b", side_json(comparison.b)},
                     {"tolerance", kTolerance},
                     {"clear_gap", kClearGap},
                     {"times_have_meaning", !comparison.emulated()},
                     {"counts", counts},
                     {"geometric_mean_ratio", comparison.ratio > 0 ? json(comparison.ratio) : json()},
                     {"cases", cases},
                     {"only_a", comparison.only_a},
                     {"only_b", comparison.only_b}};
  return root.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace farwarp::results
