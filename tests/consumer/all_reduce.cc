// An all-reduce in place: rank r's numbers are r + 1.
#include <farwarp/ops/all_reduce/all_reduce.h>

#include <string>
#include <vector>

#include "consumer.h"

using farwarp::Status;

Status call_all_reduce(farwarp::World& world) {
  constexpr std::int64_t kElements = 1001;
  auto reduce = farwarp::AllReduce::create(world, {.max_elements = kElements, .dtype = farwarp::DType::kF32});
  if (!reduce.ok()) return reduce.status();
  farwarp::Device& device = world.device();
  auto stream = device.create_stream();
  if (!stream.ok()) return stream.status();
  std::vector<float> values(kElements, static_cast<float>(world.rank() + 1));
  auto memory = upload(device, values, *stream);
  if (!memory.ok()) return memory.status();
  Status status = (*reduce)(*memory, *memory, kElements, *stream);
  if (status.ok()) status = device.copy_out(values.data(), *memory, values.size() * sizeof(float), *stream);
  if (status.ok()) status = world.status();
  const float expected = static_cast<float>(world.size() * (world.size() + 1)) / 2;
  for (std::size_t i = 0; i < values.size() && status.ok(); ++i) {
    if (values[i] != expected)
      status = farwarp::internal_error("all-reduce: element " + std::to_string(i) + " is wrong");
  }
  return status.ok() ? reduce->close() : status;
}
