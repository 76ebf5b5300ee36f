// A MoE layer's routed experts. Each token goes to one expert with weight 1. Its row is ones, the gate 64, so that silu
// changes nothing, and the expert's number comes back, plus 1.
#include <farwarp/base/half.h>
#include <farwarp/ops/moe_layer/moe_layer.h>

#include <cstdint>
#include <string>
#include <vector>

#include "consumer.h"

namespace {

using farwarp::Status;

constexpr int kTokens = 8, kLocal = 2;  // experts of each rank
constexpr std::size_t kHidden = 64, kInter = 64;

/// Of each local expert `gate` in the gate's rows, `up` in the others.
std::vector<farwarp::Bf16> w1_of(float gate, float up) {
  std::vector<farwarp::Bf16> w1;
  for (int expert = 0; expert < kLocal; ++expert) {
    w1.insert(w1.end(), kInter * kHidden, farwarp::bf16_from(gate));
    w1.insert(w1.end(), kInter * kHidden, farwarp::bf16_from(up));
  }
  return w1;
}

}  // namespace

Status call_moe_layer(farwarp::World& world) {
  const int experts = kLocal * world.size();
  auto layer = farwarp::MoeLayer::create(world, {.num_experts = experts,
                                                 .experts_per_token = 1,
                                                 .hidden = kHidden,
                                                 .intermediate = kInter,
                                                 .max_tokens = kTokens});
  if (layer.status().code() == farwarp::StatusCode::kUnavailable) return {};  // no Hopper
  if (!layer.ok()) return layer.status();

  const std::vector<farwarp::Bf16> x(kTokens * kHidden, farwarp::bf16_from(1.0f)), w1 = w1_of(1.0f, 1.0f / kHidden);
  std::vector<farwarp::Bf16> w2;
  for (int expert = world.rank() * kLocal; expert < (world.rank() + 1) * kLocal; ++expert)
    w2.insert(w2.end(), kHidden * kInter, farwarp::bf16_from(static_cast<float>(expert + 1) / (kHidden * kInter)));
  std::vector<std::int32_t> chosen(kTokens);
  for (int i = 0; i < kTokens; ++i) chosen[i] = (3 * i + world.rank()) % experts;

  farwarp::Device& device = world.device();
  auto stream = device.create_stream();
  if (!stream.ok()) return stream.status();
  auto x_memory = upload(device, x, *stream);
  auto chosen_memory = upload(device, chosen, *stream);
  auto weights_memory = upload(device, std::vector<float>(kTokens, 1.0f), *stream);
  auto w1_memory = upload(device, w1, *stream);
  auto w2_memory = upload(device, w2, *stream);
  auto out_memory = device.allocate(x.size() * sizeof(x[0]));
  for (const auto* memory : {&x_memory, &chosen_memory, &weights_memory, &w1_memory, &w2_memory, &out_memory}) {
    if (!memory->ok()) return memory->status();
  }

  Status status = (*layer)({.x = *x_memory,
                            .topk_indices = *chosen_memory,
                            .topk_weights = static_cast<const float*>(*weights_memory),
                            .tokens = kTokens,
                            .w1 = *w1_memory,
                            .w2 = *w2_memory,
                            .out = *out_memory},
                           *stream);
  std::vector<farwarp::Bf16> out(x.size());
  if (status.ok()) status = device.copy_out(out.data(), *out_memory, out.size() * sizeof(out[0]), *stream);
  if (status.ok()) status = world.status();
  for (std::size_t i = 0; i < out.size() && status.ok(); ++i) {
    const float got = farwarp::float_from(out[i]), expected = static_cast<float>(chosen[i / kHidden] + 1);
    if (got != expected)
      status = farwarp::internal_error("MoeLayer: element " + std::to_string(i) + ": expected " +
                                       std::to_string(expected) + ", got " + std::to_string(got));
  }
  return status.ok() ? layer->close() : status;
}
