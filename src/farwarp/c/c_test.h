// A program's view of libfarwarp.so, for its tests.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "farwarp/c.h"

namespace farwarp_c_test {

inline constexpr DLDataType kBf16 = {kDLBfloat, 16, 1}, kInt32 = {kDLInt, 32, 1}, kInt64 = {kDLInt, 64, 1},
                            kFloat32 = {kDLFloat, 32, 1};

inline std::uint16_t bf16(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return static_cast<std::uint16_t>(bits >> 16);
}
inline float float_of(std::uint16_t half) {
  const std::uint32_t bits = std::uint32_t{half} << 16;
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

/// A world, and tensors in its device's memory.
class Rank {
 public:
  Rank(farwarp_threads* threads, int rank) {
    farwarp_world_desc desc;
    farwarp_world_desc_init(&desc);
    desc.heap_bytes = 16 << 20;
    EXPECT_EQ(farwarp_world_from_threads(threads, rank, &desc, &world), FARWARP_OK) << farwarp_message();
    EXPECT_EQ(farwarp_stream_create(world, &stream), FARWARP_OK) << farwarp_message();
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;
  ~Rank() {
    farwarp_synchronize(world, stream, 20'000);  // a failed assertion leaves calls that use the tensors
    for (const auto& tensor : tensors_) farwarp_release(world, tensor->tensor.data);
    farwarp_stream_destroy(world, stream);
    farwarp_world_destroy(world);
  }

  DLTensor* empty(DLDataType type, std::vector<std::int64_t> shape) {
    auto owned = std::make_unique<Owned>();
    owned->shape = std::move(shape);
    owned->bytes = type.bits / 8;
    for (const std::int64_t size : owned->shape) owned->bytes *= static_cast<std::size_t>(size);
    owned->tensor = {};
    owned->tensor.device = {kDLCPU, 0};
    owned->tensor.ndim = static_cast<int>(owned->shape.size());
    owned->tensor.dtype = type;
    owned->tensor.shape = owned->shape.data();
    EXPECT_EQ(farwarp_allocate(world, owned->bytes, &owned->tensor.data), FARWARP_OK) << farwarp_message();
    tensors_.push_back(std::move(owned));
    return &tensors_.back()->tensor;
  }
  template <class Number>
  DLTensor* tensor(DLDataType type, std::vector<std::int64_t> shape, const std::vector<Number>& numbers) {
    DLTensor* const made = empty(type, std::move(shape));
    EXPECT_EQ(farwarp_copy_in(world, made->data, numbers.data(), numbers.size() * sizeof(Number), stream), FARWARP_OK);
    return made;
  }
  template <class Number>
  std::vector<Number> numbers(const DLTensor* of, std::size_t count) const {
    std::vector<Number> got(count);
    EXPECT_EQ(farwarp_copy_out(world, got.data(), of->data, count * sizeof(Number), stream), FARWARP_OK);
    return got;
  }

  farwarp_world* world = nullptr;
  void* stream = nullptr;

 private:
  struct Owned {
    DLTensor tensor;
    std::vector<std::int64_t> shape;
    std::size_t bytes;
  };
  std::vector<std::unique_ptr<Owned>> tensors_;
};

inline void run_ranks(int size, const std::function<void(Rank&, int)>& body) {
  farwarp_threads* threads = nullptr;
  ASSERT_EQ(farwarp_threads_create(size, &threads), FARWARP_OK);
  std::vector<std::thread> started;
  for (int rank = 0; rank < size; ++rank) {
    started.emplace_back([&, rank] {
      Rank self(threads, rank);
      if (!testing::Test::HasFailure()) body(self, rank);
    });
  }
  for (std::thread& thread : started) thread.join();
  farwarp_threads_destroy(threads);
}

}  // namespace farwarp_c_test
