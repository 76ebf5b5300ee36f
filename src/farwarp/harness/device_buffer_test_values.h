// For tests of operators: device buffers of 16-bit numbers.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "farwarp/base/half.h"
#include "farwarp/harness/device_buffer.h"
#include "farwarp/world/host/world.h"

namespace farwarp::harness {

inline DeviceBuffer buffer_of(Device& device, std::size_t bytes) {
  auto buffer = DeviceBuffer::create(device, bytes);
  EXPECT_TRUE(buffer.ok()) << buffer.status().to_string();
  return buffer.ok() ? std::move(*buffer) : DeviceBuffer();
}

/// `elements` bf16 numbers, all `value`.
inline DeviceBuffer bf16_buffer(Device& device, Stream stream, std::size_t elements, float value) {
  DeviceBuffer buffer = buffer_of(device, elements * 2);
  const std::vector<std::uint16_t> bits(elements, bf16_from(value).bits);
  EXPECT_TRUE(buffer.upload(bits.data(), bits.size() * 2, stream).ok());
  return buffer;
}

/// All 16-bit numbers of `buffer`.
inline std::vector<std::uint16_t> bits_in(const DeviceBuffer& buffer, Stream stream) {
  std::vector<std::uint16_t> bits(buffer.bytes() / 2);
  EXPECT_TRUE(buffer.download(bits.data(), bits.size() * 2, stream).ok());
  return bits;
}

}  // namespace farwarp::harness
