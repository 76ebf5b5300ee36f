// The inputs of moe-a2a's check: token counts, routings, rows and experts, all functions of the seed.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "farwarp/harness/inputs.h"
#include "farwarp/ops/moe_a2a/reference.h"

namespace farwarp::moe {

enum class RoutingKind : std::uint8_t {
  kUniform,    ///< distinct experts, each as likely as any other
  kZipf,       ///< distinct experts, the n-th most popular n times rarer than the first
  kRepeated,   ///< independent draws: a token may choose an expert twice
  kOneExpert,  ///< every token chooses the same expert, in one k-slot; the others are skipped
  kOneRank,    ///< every token chooses experts of one rank only
  kSkipped,    ///< every entry
  kPartial,    ///< uniform with a quarter of the entries skipped, and every fifth token entirely
};

enum class TokenCounts : std::uint8_t {
  kAuto,        ///< kUniform in a check, kFull in a bench
  kUniform,     ///< 1 to max_tokens - 1, as the challenge draws them
  kFull,        ///< max_tokens
  kEmptyRanks,  ///< every second rank has none
};

struct InputOptions {
  RoutingKind routing = RoutingKind::kUniform;
  TokenCounts tokens = TokenCounts::kUniform;
  MoeExpert expert = MoeExpert::kRankScale;
  harness::InputKind kind = harness::InputKind::kNormal;
  std::uint64_t seed = 0;
};

/// The random kind is the challenge's.
constexpr harness::InputKind kind_in_call(const InputOptions& options, int call) {
  return harness::kind_in_call(options.kind, call, harness::InputKind::kNormal);
}

/// The routings of all ranks in one call. Popular experts and empty ranks change from call to call. Weights are uniform
/// in [0, 1); for exact inputs 1 or 1/2.
std::vector<Routing> make_routings(const MoeAllToAllDesc& desc, int ranks, const InputOptions& options, int call);

/// Row `token` of `rank`'s x. Exact inputs: 0 and powers of two of either sign.
void fill_row(const MoeAllToAllDesc& desc, int ranks, const InputOptions& options, int call, int rank, int token,
              std::span<std::uint16_t> row);

/// What each expert computes in `call`. With MoeExpert::kTable only the owner is given its part of the table.
std::vector<ExpertFunction> make_experts(const MoeAllToAllDesc& desc, int ranks, const InputOptions& options, int call);

/// How long `rank` waits before `call`: up to `longest`.
std::uint64_t delay_before(const InputOptions& options, int call, int rank, std::uint64_t longest);

}  // namespace farwarp::moe
