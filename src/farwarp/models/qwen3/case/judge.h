// Whether logits are right: their errors are as large as roundings make them, and do not lean the way that a wrong
// constant would move them.
#pragma once

#include <array>
#include <span>
#include <string>
#include <vector>

#include "farwarp/harness/compare.h"
#include "farwarp/models/qwen3/case/oracle.h"

namespace farwarp::qwen3 {

/// The oracles of one sequence.
class SequenceOracles {
 public:
  /// `leans`: with an oracle for each constant that is judged.
  SequenceOracles(const OracleWeights& weights, bool leans, int zero_positions);

  /// An input that prefill() takes.
  void prefill(std::int32_t token);

 private:
  friend class LogitsJudge;
  Oracle exact_, rounded_;
  std::vector<Oracle> leaning_;
};

/// Judges the logits of all sequences of all calls of a check.
class LogitsJudge {
 public:
  /// How errors of one constant would move the logits, as many oracles show.
  static constexpr int kLeans = 6;
  /// Oracles of constants cost as much as the exact one each; large models go without.
  static bool has_leans(const Qwen3Config& config);

  /// Empty, or what is wrong with the logits that follow `input`.
  std::string add(SequenceOracles& oracles, std::int32_t input, std::span<const float> logits);
  harness::Verdict verdict() const;

 private:
  /// Of one constant: sums over all tokens of products of the derivatives of the logits with errors, squared errors of
  /// roundings, and themselves.
  struct Lean {
    double errors = 0, roundings_squares = 0, squares = 0;
    double deviations() const;
  };
  int tokens_ = 0;
  double error_squares_ = 0, rounding_squares_ = 0, squares_ = 0;
  std::array<Lean, kLeans> leans_;
};

}  // namespace farwarp::qwen3
