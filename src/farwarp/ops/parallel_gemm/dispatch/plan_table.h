// The table of plans: which path is faster for which shape on one kind of machine. `farwarp tune` measures it. All but
// the last three functions are pure.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "farwarp/base/status.h"
#include "farwarp/ops/parallel_gemm/desc.h"

namespace farwarp::parallel_gemm {

/// One measured shape, for calls with and without bias: a bias is one row, added to sums in registers.
struct PlanEntry {
  Kind kind = Kind::kAllGather;
  int m = 0, n = 0, k = 0;
  DType dtype = DType::kBf16;
  Path path = Path::kOwn;  ///< kOwn or kUnfused
  int tile_columns = 0;    ///< for our own plan, if another width than its choice was faster; 0: its choice
  int algorithm = 0;       ///< cuBLASLt's, from 0, in the order of its heuristic
  double own_us = 0, unfused_us = 0;
  std::string measured;  ///< the date: "2026-11-22"
};

struct PlanTable {
  std::string device;  ///< Device::model(): "NVIDIA H200"
  int ranks = 0;
  std::vector<PlanEntry> entries;
};

/// kInvalidArgument names what is wrong with the text.
Result<PlanTable> parse_plans(std::string_view text);
std::string to_json(const PlanTable& table);
/// Adds the entry, or replaces the one of the same operator, shape and dtype.
void put(PlanTable& table, PlanEntry entry);

/// The greatest distance at which a nearest shape counts. The distance is the root of the sum of log2(f)^2, where f is
/// the ratio of the m, n and k. 1 is a factor of 2 in one size, or of 1.5 in all three.
inline constexpr double kFarthest = 1.0;

struct Choice {
  Path path = Path::kOwn;  ///< kOwn or kUnfused
  int tile_columns = 0;    ///< for our own plan
  int algorithm = 0;
  std::string why;
};
/// For Path::kBest: the entry of exactly this shape; else the path of the nearest shape of the same operator and dtype,
/// if it is within kFarthest; else our own. Tile widths and algorithms are used only for the shape that they were
/// measured with. With ParallelGemmDesc::max_sms always our own, since nothing bounds the blocks of the unfused path.
Choice choose(const PlanTable& table, Kind kind, const ParallelGemmDesc& desc);

/// The tables that are compiled in: the files of dispatch/plans.
std::vector<std::string_view> built_in_plans();
/// The table that was kept on this machine, else the compiled one, else one without entries. A file that cannot be used
/// is ignored, with a line on stderr.
PlanTable plans_of(const std::string& device, int ranks);
/// farwarp/plans-<device>-x<ranks>.json, in the same folder as the ceilings: machine/kept_file.h.
Result<std::filesystem::path> plans_file(const std::string& device, int ranks);

}  // namespace farwarp::parallel_gemm
