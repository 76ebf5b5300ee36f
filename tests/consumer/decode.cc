// Attention over keys that all ranks share. All scores are equal, and rank r's values are r + 1, so the output is the
// mean of 1 to the number of ranks.
#include <farwarp/base/half.h>
#include <farwarp/ops/flash_decode/flash_decode.h>

#include <string>
#include <vector>

#include "consumer.h"

using farwarp::Bf16;
using farwarp::Status;

Status call_flash_decode(farwarp::World& world) {
  constexpr int kHeads = 4, kKvHeads = 2, kDim = 64, kPageSize = 16, kPages = 3;
  auto decode = farwarp::FlashDecode::create(world, {.batch = 1,
                                                     .query_heads = kHeads,
                                                     .kv_heads = kKvHeads,
                                                     .head_dim = kDim,
                                                     .page_size = kPageSize,
                                                     .pages = kPages,
                                                     .max_pages = kPages,
                                                     .kv_shards = world.size()});
  if (!decode.ok()) return decode.status();
  farwarp::Device& device = world.device();
  auto stream = device.create_stream();
  if (!stream.ok()) return stream.status();
  const auto numbers = [](int count, float value) {
    return std::vector<Bf16>(static_cast<std::size_t>(count), farwarp::bf16_from(value));
  };
  constexpr int kCache = kPages * kPageSize * kKvHeads * kDim;
  std::vector<Bf16> got = numbers(kHeads * kDim, 0);
  auto q = upload(device, got, *stream);
  auto k = upload(device, numbers(kCache, 1), *stream);
  auto v = upload(device, numbers(kCache, static_cast<float>(world.rank() + 1)), *stream);
  auto table = upload(device, std::vector<std::int32_t>{2, 0, 1}, *stream);
  auto lengths = upload(device, std::vector<std::int32_t>{40}, *stream);
  auto out = device.allocate(got.size() * sizeof(Bf16));
  for (const auto* memory : {&q, &k, &v, &table, &lengths, &out}) {
    if (!memory->ok()) return memory->status();
  }
  farwarp::FlashDecodeTensors tensors;
  tensors.q = *q;
  tensors.k = *k;
  tensors.v = *v;
  tensors.block_table = static_cast<const std::int32_t*>(*table);
  tensors.lengths = static_cast<const std::int32_t*>(*lengths);
  tensors.out = *out;
  Status status = (*decode)(tensors, *stream);
  if (status.ok()) status = device.copy_out(got.data(), *out, got.size() * sizeof(Bf16), *stream);
  if (status.ok()) status = world.status();
  const float expected = static_cast<float>(world.size() + 1) / 2;
  for (std::size_t i = 0; i < got.size() && status.ok(); ++i) {
    if (farwarp::float_from(got[i]) != expected)
      status = farwarp::internal_error("flash-decode: element " + std::to_string(i) + " is wrong");
  }
  return status.ok() ? decode->close() : status;
}
