// The inputs of moe_layer's check: routings, rows and weights, all functions of the seed.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "farwarp/harness/inputs.h"
#include "farwarp/ops/moe_a2a/case/inputs.h"
#include "farwarp/ops/moe_layer/plan.h"

namespace farwarp::moe_layer {

struct InputOptions {
  moe::RoutingKind routing = moe::RoutingKind::kUniform;
  moe::TokenCounts tokens = moe::TokenCounts::kUniform;
  harness::InputKind kind = harness::InputKind::kAuto;
  std::uint64_t seed = 0;
};

/// No number of a clamped activation is exact.
harness::InputKind kind_in_call(const MoeLayerDesc& desc, const InputOptions& options, int call);

/// Exact inputs: each sum, and each rounded number, is a small integer times 64. All gates are 64, at which the
/// activation returns the gate itself; a token's first element is 8 for that. Weights of k-slots are 1 and -1.
/// Normal inputs: gates and results have a deviation of about 1, with a clamped activation of 4.
std::vector<moe::Routing> make_routings(const MoeLayerDesc& desc, int ranks, const InputOptions& options, int call);
/// Row `token` of `rank`'s x.
void fill_row(const MoeLayerDesc& desc, const InputOptions& options, int call, int rank, int token,
              std::span<std::uint16_t> row);

/// The weights of all experts in one call.
class Weights {
 public:
  Weights(const MoeLayerDesc& desc, const InputOptions& options, int call);

  /// Rows 0 to intermediate - 1 are the gate's, then those of the up projection.
  void w1_row(int expert, int row, std::span<float> values) const { fill(kW1, expert, row, values); }
  void w2_row(int expert, int row, std::span<float> values) const { fill(kW2, expert, row, values); }
  float bias1(int expert, int row) const;
  float bias2(int expert, int row) const;

 private:
  enum Matrix : std::uint64_t { kW1, kW2, kBias1, kBias2 };
  void fill(Matrix matrix, int expert, int row, std::span<float> values) const;
  float random_bias(Matrix matrix, int expert, int row, float deviation) const;

  MoeLayerDesc desc_;
  std::uint64_t seed_;
  bool exact_;
  std::vector<float> of_w1_, of_w2_;  ///< random numbers; each row is a window of them
};

}  // namespace farwarp::moe_layer
