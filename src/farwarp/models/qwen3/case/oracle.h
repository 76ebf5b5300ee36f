// The oracle of Qwen3: one sequence, token by token, in float64. It shares no code with the kernels but the random
// weights.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "farwarp/models/qwen3/config.h"
#include "farwarp/models/qwen3/weights/tensors.h"

namespace farwarp::qwen3 {

/// The tensors of create_random(), as float.
class OracleWeights {
 public:
  OracleWeights(const Qwen3Config& config, std::uint64_t seed);
  const Qwen3Config& config() const { return config_; }
  const std::vector<float>& of(Tensor tensor, int layer) const {
    return tensors_[static_cast<std::size_t>(tensor_number(tensor, layer))];
  }
  const std::vector<float>& of(GlobalTensor tensor) const {
    return tensors_[static_cast<std::size_t>(tensor_number(tensor, config_.layers))];
  }

 private:
  void make(std::int32_t tensor, int rows, int columns, double scale, double offset);
  Qwen3Config config_;
  std::uint64_t seed_;
  std::vector<std::vector<float>> tensors_;
};

/// Factors of what is computed. Logits of a factor that is not 1 show which way an error of it moves them.
struct OracleFactors {
  double scores = 1, attended = 1, silu = 1, activated = 1, epsilon = 1, logits = 1;
};

class Oracle {
 public:
  /// `rounded`: activations, keys, values and probabilities are rounded to bf16 where the kernel does so. The
  /// difference of the two is what roundings explain.
  Oracle(const OracleWeights& weights, bool rounded, const OracleFactors& factors = {})
      : weights_(weights),
        rounded_(rounded),
        factors_(factors),
        cache_(static_cast<std::size_t>(weights.config().layers)) {}

  /// As if `positions` positions had been decoded whose keys and values are zeros; before the first step.
  void begin_with_zero_keys(int positions);
  /// The logits after the next input. `prefilled`: it is rounded where prefill() rounds. It then has no logits.
  std::vector<double> step(std::int32_t token, bool prefilled = false);

 private:
  using Vector = std::vector<double>;
  struct Cached {
    std::vector<Vector> keys, values;  ///< [positions][kv_heads * head_dim]
  };
  double round(double value) const;
  double epsilon() const { return factors_.epsilon * static_cast<double>(weights_.config().epsilon); }
  Vector normalised_product(std::span<const float> matrix, int rows, const Vector& x, std::span<const float> norm,
                            bool prefilled) const;
  Vector product(std::span<const float> matrix, int rows, const Vector& x) const;
  void normalise_head(std::span<double> head, std::span<const float> norm, int position) const;
  Vector attend(const Cached& cached, const Vector& queries) const;

  const OracleWeights& weights_;
  bool rounded_;
  OracleFactors factors_;
  std::vector<Cached> cache_;
  int position_ = 0;
};

}  // namespace farwarp::qwen3
