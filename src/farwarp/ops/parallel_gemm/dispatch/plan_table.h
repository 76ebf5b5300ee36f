// Which path is faster for which shape on one kind of machine: data, measured by `farwarp tune`. Pure but for the last three functions.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "farwarp/base/status.h"
#include "farwarp/ops/parallel_gemm/desc.h"

namespace farwarp::parallel_gemm {

/// One measured shape. A bias is not told apart: it is one row, added where sums are at hand.
struct PlanEntry {
  Kind kind = Kind::kAllGather;
  int m = 0, n = 0, k = 0;
  DType dtype = DType::kBf16;
  Path path = Path::kOwn;  ///< kOwn or kUnfused
  int tile_columns = 0;    ///< of our own plan, where another width than its choice was faster; 0: its choice
  int algorithm = 0;       ///< of cuBLASLt, from 0, in the order of its heuristic
  double own_us = 0, unfused_us = 0;
  std::string measured;  ///< the day: "2026-11-22"
};

struct PlanTable {
  std::string device;  ///< its name, as Device::model() has it: "NVIDIA H200"
  int ranks = 0;
  std::vector<PlanEntry> entries;
};

/// kInvalidArgument names what is wrong with the text.
Result<PlanTable> parse_plans(std::string_view text);
std::string to_json(const PlanTable& table);
/// In the place of the entry of the same operator, shape and dtype, if there is one.
void put(PlanTable& table, PlanEntry entry);

/// Sizes that are off by a factor f each count log2(f)^2; the root of the sum of a nearest shape is at most this: a factor of 2 in one
/// size, or of 1.5 in three.
inline constexpr double kFarthest = 1.0;

struct Choice {
  Path path = Path::kOwn;  ///< kOwn or kUnfused
  int tile_columns = 0;    ///< for our own plan
  int algorithm = 0;
  std::string why;
};
/// For Path::kBest: as measured for this very shape; else the path of the nearest shape of the same operator and dtype, if there is one
/// within kFarthest; else our own. Widths and algorithms are not carried over to other shapes. With ParallelGemmDesc::max_sms, which
/// the unfused path would not keep to, always our own.
Choice choose(const PlanTable& table, Kind kind, const ParallelGemmDesc& desc);

/// The tables that this build brings: the files of dispatch/plans.
std::vector<std::string_view> built_in_plans();
/// What was kept on this machine, else what the build brings, else without entries. A file that cannot be used is ignored, with a line
/// on stderr.
PlanTable plans_of(const std::string& device, int ranks);
/// farwarp/plans-<device>-x<ranks>.json, where ceilings lie: machine/kept_file.h.
Result<std::filesystem::path> plans_file(const std::string& device, int ranks);

}  // namespace farwarp::parallel_gemm
