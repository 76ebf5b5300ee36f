// What the tests of the mutants share: the table that mutants.py writes.
#pragma once

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "farwarp/base/machine_shape.h"
#include "farwarp/harness/case.h"

namespace farwarp {

inline nlohmann::json mutants() { return nlohmann::json::parse(std::ifstream(FARWARP_MUTANTS_JSON)); }

inline harness::Params params_of(const nlohmann::json& mutant) {
  harness::Params params;
  for (const auto& [name, value] : mutant["set"].items()) params[name] = value.get<std::string>();
  return params;
}

/// nullptr if there is no such operator.
inline const harness::OperatorInfo* operator_of(const nlohmann::json& mutant) {
  return harness::find_operator(mutant["op"].get<std::string>());
}

inline std::vector<TargetKind> targets_of(const nlohmann::json& mutant) {
  std::vector<TargetKind> targets;
  for (const TargetKind target : {TargetKind::kEmuSm90, TargetKind::kEmuGfx942}) {
    if (mutant.value("only", name_of(target)) == name_of(target)) targets.push_back(target);
  }
  return targets;
}

}  // namespace farwarp
