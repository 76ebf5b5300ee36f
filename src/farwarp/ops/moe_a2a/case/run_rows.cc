// The check of MoeLayout::kRows: what only this layout has.
#include <cmath>

#include "farwarp/harness/inputs.h"
#include "farwarp/ops/moe_a2a/case/run.h"

namespace farwarp::moe {

/// The entries of each row, and of those beyond the last.
Status RankRun::check_entries(int call) {
  const std::size_t count = expected_.experts.size();
  std::vector<float> weights(count);
  std::vector<std::int32_t> experts(count);
  Status status = instance_->weights.download(weights.data(), count * sizeof(float), *stream_);
  if (config_.desc.index_type == DType::kI64) {
    std::vector<std::int64_t> wide(count);
    if (status.ok()) status = instance_->experts.download(wide.data(), count * 8, *stream_);
    for (std::size_t i = 0; i < count; ++i) experts[i] = static_cast<std::int32_t>(wide[i]);
  } else if (status.ok()) {
    status = instance_->experts.download(experts.data(), count * 4, *stream_);
  }
  if (!status.ok() || !findings_.difference.empty()) return status;
  std::string difference = first_difference<std::int32_t>("topk_indices", experts, expected_.experts);
  if (difference.empty()) difference = first_difference<float>("topk_weights", weights, expected_.weights);
  if (!difference.empty()) findings_.difference = fmt::format("call {}: {}", call, difference);
  return {};
}

/// In place of a user's experts, which also weight and add what a row's experts make of it, as owners do in the other
/// layouts.
Status RankRun::apply_experts_to_rows() {
  std::vector<std::uint16_t> outputs(instance_->y.bytes() / 2, harness::kPoison16);
  const auto k = static_cast<std::size_t>(config_.desc.experts_per_token);
  for (std::size_t row = 0; row < expected_.origins.size(); ++row) {
    const std::vector<float> x = received_values(row);
    for (std::size_t i = 0; i < hidden(); ++i) {
      float sum = 0;
      for (std::size_t entry = row * k; entry < (row + 1) * k; ++entry) {
        if (expected_.experts[entry] < 0) continue;
        const auto expert = static_cast<std::size_t>(first_expert() + expected_.experts[entry]);
        const double y = expert_output(config_.desc.dtype, set_->experts[expert], x[i]);
        sum = std::fma(expected_.weights[entry], static_cast<float>(y), sum);
      }
      outputs[row * hidden() + i] = harness::encode(config_.desc.dtype, sum);
    }
  }
  return instance_->y.upload(outputs.data(), instance_->y.bytes(), *stream_);
}

}  // namespace farwarp::moe
