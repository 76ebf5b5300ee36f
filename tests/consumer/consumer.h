// Declarations that the source files of the consumer share.
#pragma once

#include <farwarp/base/status.h>
#include <farwarp/runtime/device.h>
#include <farwarp/world/host/world.h>

#include <vector>

/// Each calls its operators once and compares the results.
farwarp::Status call_moe_all_to_all(farwarp::World& world);
farwarp::Status call_moe_layer(farwarp::World& world);
farwarp::Status call_products(farwarp::World& world);
farwarp::Status call_attention(farwarp::World& world);
farwarp::Status call_all_reduce(farwarp::World& world);
farwarp::Status call_flash_decode(farwarp::World& world);

template <class T>
farwarp::Result<void*> upload(farwarp::Device& device, const std::vector<T>& values, farwarp::Stream stream) {
  auto memory = device.allocate(values.size() * sizeof(T));
  if (!memory.ok()) return memory;
  const farwarp::Status status = device.copy_in(*memory, values.data(), values.size() * sizeof(T), stream);
  if (!status.ok()) return status;
  return memory;
}
