// What a user of the installed library writes: a mixture-of-experts layer over 4 ranks, on the emulator. Every token goes to
// one expert with weight 1, and an expert scales by 1 + its rank, so the right answer is known without an oracle.
#include <cstdint>
#include <cstdio>
#include <memory>
#include <vector>

#include "farwarp/base/half.h"
#include "farwarp/base/status.h"
#include "farwarp/ops/moe_a2a/moe_a2a.h"
#include "farwarp/runtime/device.h"
#include "farwarp/world/host/bootstrap.h"
#include "farwarp/world/host/world.h"

namespace {

using farwarp::Result;
using farwarp::Status;

constexpr int kRanks = 4;
constexpr int kTokens = 8;
constexpr std::size_t kHidden = 256;

template <class T>
Result<void*> upload(farwarp::Device& device, const std::vector<T>& values, farwarp::Stream stream) {
  auto memory = device.allocate(values.size() * sizeof(T));
  if (!memory.ok()) return memory;
  if (Status status = device.copy_in(*memory, values.data(), values.size() * sizeof(T), stream); !status.ok())
    return status;
  return memory;
}

Status check(const std::vector<farwarp::Bf16>& out, const std::vector<farwarp::Bf16>& x,
             const std::vector<std::int32_t>& experts) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    const int owner = farwarp::moe_rank_of(experts[i / kHidden], kRanks, 2 * kRanks);
    const float expected = farwarp::float_from(x[i]) * static_cast<float>(1 + owner);
    if (farwarp::float_from(out[i]) != expected) {
      return farwarp::internal_error("element " + std::to_string(i) + ": expected " + std::to_string(expected) +
                                     ", got " + std::to_string(farwarp::float_from(out[i])));
    }
  }
  return {};
}

Status run_rank(std::shared_ptr<farwarp::Bootstrap> bootstrap, farwarp::TargetKind target) {
  auto created = farwarp::World::create(bootstrap, {.target = target, .heap_bytes = std::size_t{16} << 20});
  if (!created.ok()) return created.status();
  farwarp::World world = std::move(created).value();

  auto operation = farwarp::MoeAllToAll::create(
      world, {.num_experts = 2 * kRanks, .experts_per_token = 1, .hidden = kHidden, .max_tokens = kTokens});
  if (!operation.ok()) return operation.status();

  std::vector<farwarp::Bf16> x(kTokens * kHidden);
  std::vector<std::int32_t> experts(kTokens);
  const std::vector<float> weights(kTokens, 1.0f);
  for (int i = 0; i < kTokens; ++i) experts[i] = (3 * i + world.rank()) % (2 * kRanks);
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
  return check(out, x, experts);
}

}  // namespace

int main() {
  for (const auto target : {farwarp::TargetKind::kEmuSm90, farwarp::TargetKind::kEmuGfx942}) {
    const Status status = farwarp::run_ranks(
        kRanks, [target](std::shared_ptr<farwarp::Bootstrap> bootstrap) { return run_rank(bootstrap, target); });
    const auto name = farwarp::name_of(target);
    std::printf("%.*s: %s\n", static_cast<int>(name.size()), name.data(), status.to_string().c_str());
    if (!status.ok()) return 1;
  }
  return 0;
}
