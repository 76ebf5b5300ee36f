// A mixture-of-experts layer. Each token goes to one expert with weight 1, and each expert scales by 1 + its rank. So
// the expected result needs no oracle.
#include <farwarp/ops/moe_a2a/moe_a2a.h>

#include <cstdint>
#include <string>
#include <vector>

#include "consumer.h"

namespace {

using farwarp::Status;

constexpr int kTokens = 8;
constexpr std::size_t kHidden = 256;

Status check(const std::vector<farwarp::Bf16>& out, const std::vector<farwarp::Bf16>& x,
             const std::vector<std::int32_t>& experts, int ranks) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    const int owner = farwarp::moe_rank_of(experts[i / kHidden], ranks, 2 * ranks);
    const float expected = farwarp::float_from(x[i]) * static_cast<float>(1 + owner);
    if (farwarp::float_from(out[i]) != expected) {
      return farwarp::internal_error("element " + std::to_string(i) + ": expected " + std::to_string(expected) +
                                     ", got " + std::to_string(farwarp::float_from(out[i])));
    }
  }
  return {};
}

}  // namespace

Status call_moe_all_to_all(farwarp::World& world) {
  auto operation = farwarp::MoeAllToAll::create(
      world, {.num_experts = 2 * world.size(), .experts_per_token = 1, .hidden = kHidden, .max_tokens = kTokens});
  if (!operation.ok()) return operation.status();

  std::vector<farwarp::Bf16> x(kTokens * kHidden);
  std::vector<std::int32_t> experts(kTokens);
  const std::vector<float> weights(kTokens, 1.0f);
  for (int i = 0; i < kTokens; ++i) experts[i] = (3 * i + world.rank()) % (2 * world.size());
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] = farwarp::bf16_from(static_cast<float>((i + world.rank()) % 31) - 15.0f);

  farwarp::Device& device = world.device();
  auto stream = device.create_stream();
  if (!stream.ok()) return stream.status();
  auto x_memory = upload(device, x, *stream);
  auto experts_memory = upload(device, experts, *stream);
  auto weights_memory = upload(device, weights, *stream);
  auto out_memory = device.allocate(x.size() * sizeof(x[0]));
  for (const auto* memory : {&x_memory, &experts_memory, &weights_memory, &out_memory}) {
    if (!memory->ok()) return memory->status();
  }

  const farwarp::MoeTokens tokens{.x = *x_memory,
                                  .topk_indices = *experts_memory,
                                  .topk_weights = static_cast<const float*>(*weights_memory),
                                  .tokens = kTokens};
  Status status = operation->fused(tokens, farwarp::MoeExpert::kRankScale, nullptr, *out_memory, *stream);
  if (!status.ok()) return status;
  std::vector<farwarp::Bf16> out(x.size());
  status = device.copy_out(out.data(), *out_memory, out.size() * sizeof(out[0]), *stream);
  if (!status.ok()) return status;
  if (status = world.status(); !status.ok()) return status;
  status = check(out, x, experts, world.size());
  return status.ok() ? operation->close() : status;
}
