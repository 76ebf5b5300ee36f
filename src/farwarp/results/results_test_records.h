// Records for the tests of the store and of what reads it.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "farwarp/results/store.h"

namespace farwarp::results {

/// A new, empty store.
inline Store open_new(const std::string& path) {
  auto store = Store::open(path, Database::Access::kCreate);
  return std::move(store.value());
}

inline RunRecord a_run(const std::string& commit = "aaaa", int ranks = 2) {
  RunRecord run;
  run.began = "2026-11-28T01:02:03Z";
  run.machine = "NVIDIA H200";
  run.target = "cuda";
  run.driver = "580.95.05";
  run.clocks = "SM 1980 MHz, memory 3201 MHz";
  run.ranks = ranks;
  run.version = "0.1.0";
  run.commit = commit;
  run.command = "farwarp bench --suite mine";
  return run;
}

/// A verified case of all-reduce, whose own samples are all `us`.
inline CaseRecord a_case(const std::string& label, double us, const std::string& commit = "aaaa", int samples = 8) {
  CaseRecord made;
  made.op = "all-reduce";
  made.suite = "mine";
  made.label = label;
  made.params = R"({"elements":")" + label + "\"}";
  made.seed = 7;
  made.floor_us = 2;
  made.floor_bound_by = "links";
  made.verified = true;
  made.plan = "one-shot";
  made.series.push_back({.name = "all-reduce",
                         .entry = "farwarp " + commit,
                         .graph_us = us - 1,
                         .us = std::vector<double>(static_cast<std::size_t>(samples), us)});
  return made;
}

inline SeriesRecord a_baseline(const std::string& name, double us) {
  return {.name = name, .entry = name, .ours = false, .us = std::vector<double>(8, us)};
}

inline TaxRecord a_tax(const std::string& of_case) {
  TaxRecord tax;
  tax.suite = "mine";
  tax.of_case = of_case;
  tax.baseline = "NCCL 2.28.9";
  tax.baseline_us = 20;
  tax.launch_us = 5;
  tax.bulk_us = 3;
  tax.locality_us = 2.5;
  tax.rest_us = -0.5;
  tax.fused_us = 10;
  tax.detail = R"({"saved":{"launch_us":4}})";
  return tax;
}

/// Adds the cases to a new run of `store`; its number.
inline std::int64_t keep(Store& store, RunRecord run, const std::vector<CaseRecord>& cases) {
  for (const CaseRecord& made : cases) {
    if (!store.add(run, made).ok()) return 0;
  }
  return run.id;
}

}  // namespace farwarp::results
