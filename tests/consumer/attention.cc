// Attention of one sequence. q is zero, so each query's result is the mean of the values that it sees: the expected
// result needs no oracle.
#include <farwarp/base/half.h>
#include <farwarp/ops/attention/attention.h>

#include <string>
#include <vector>

#include "consumer.h"

namespace {

using farwarp::Bf16;
using farwarp::Status;

constexpr int kRows = 8, kHeads = 2;
constexpr std::size_t kHeadDim = 64, kRow = kHeads * kHeadDim;

}  // namespace

Status call_attention(farwarp::World& world) {
  farwarp::AttentionDesc desc;
  desc.batch = 1;
  desc.heads = desc.kv_heads = kHeads;
  desc.head_dim = kHeadDim;
  desc.max_queries = desc.max_keys = kRows;
  desc.causal = true;
  auto attention = farwarp::Attention::create(world, desc);
  if (attention.status().code() == farwarp::StatusCode::kUnavailable) return {};  // no kernel for this target
  if (!attention.ok()) return attention.status();

  const std::vector<Bf16> zeros(kRows * kRow, farwarp::bf16_from(0));
  std::vector<Bf16> values(zeros.size()), got(zeros.size());
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = farwarp::bf16_from(static_cast<float>(2 * (i / kRow)));

  farwarp::Device& device = world.device();
  auto stream = device.create_stream();
  if (!stream.ok()) return stream.status();
  auto q = upload(device, zeros, *stream), v = upload(device, values, *stream);
  auto out = device.allocate(got.size() * sizeof(Bf16));
  for (const auto* memory : {&q, &v, &out}) {
    if (!memory->ok()) return memory->status();
  }
  farwarp::AttentionTensors tensors;
  tensors.q = tensors.k = *q;
  tensors.v = *v;
  tensors.out = *out;
  Status status = (*attention)(tensors, *stream);
  if (status.ok()) status = device.copy_out(got.data(), *out, got.size() * sizeof(Bf16), *stream);
  if (status.ok()) status = world.status();
  for (std::size_t i = 0; i < got.size() && status.ok(); ++i) {
    const auto expected = static_cast<float>(i / kRow);  // the mean of 0, 2, ..., twice the row
    if (farwarp::float_from(got[i]) != expected)
      status = farwarp::internal_error("Attention: element " + std::to_string(i) + " is wrong");
  }
  return status.ok() ? attention->close() : status;
}
