// What the check of moe-a2a feeds the operator: token counts, routings, rows and experts, all functions of the seed.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "farwarp/ops/moe_a2a/reference.h"

namespace farwarp::moe {

enum class RoutingKind : std::uint8_t {
  kUniform,    ///< distinct experts, each as likely as any other
  kZipf,       ///< distinct experts, the n-th most popular n times rarer than the first
  kRepeated,   ///< independent draws: a token may choose an expert twice
  kOneExpert,  ///< every token chooses the same expert, in one slot; the others are masked
  kOneRank,    ///< every token chooses experts of one rank only
  kMasked,     ///< every entry is -1
  kPartial,    ///< uniform with a quarter of the entries masked, and every fifth token entirely
};

enum class TokenCounts : std::uint8_t {
  kAuto,        ///< kUniform in a check, kFull in a bench
  kUniform,     ///< 1 to max_tokens - 1, as the challenge draws them
  kFull,        ///< max_tokens
  kEmptyRanks,  ///< none on every other rank
};

struct InputOptions {
  RoutingKind routing = RoutingKind::kUniform;
  TokenCounts tokens = TokenCounts::kUniform;
  MoeExpert expert = MoeExpert::kRankScale;
  std::uint64_t seed = 0;
};

/// Where the tokens of every rank go in one call. Popular experts and empty ranks change from call to call.
std::vector<Routing> make_routings(const MoeAllToAllDesc& desc, int ranks, const InputOptions& options, int call);

/// Row `token` of `rank`'s x: N(0, 1).
void fill_row(const MoeAllToAllDesc& desc, const InputOptions& options, int call, int rank, int token,
              std::span<std::uint16_t> row);

/// What each expert computes. Of MoeExpert::kTable the owner alone is given its part.
std::vector<ExpertFunction> make_experts(const MoeAllToAllDesc& desc, int ranks, const InputOptions& options);

/// How long `rank` waits before `call`: up to `longest`.
std::uint64_t delay_before(const InputOptions& options, int call, int rank, std::uint64_t longest);

}  // namespace farwarp::moe
