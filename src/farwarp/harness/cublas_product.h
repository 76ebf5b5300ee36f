// cuBLASLt's fastest way to a matrix product: a contender, or a part of one.
#pragma once

#include <memory>
#include <string>

#include "farwarp/harness/device_buffer.h"
#include "farwarp/harness/timing.h"
#include "farwarp/vendor/cublas_matmul.h"

namespace farwarp::harness {

struct ProductShape {
  int m = 0, n = 0, k = 0;
  DType dtype = DType::kBf16;
  bool has_bias = false;
};

/// y[m, n] = x[m, k] * w[n, k]^T (+ bias[n]), contiguous. Move-only; the Device must outlive it. Until choose_fastest() it takes
/// the algorithm that cuBLASLt's heuristic puts first.
class CublasProduct {
 public:
  /// kUnavailable without cuBLASLt, on a target that is not CUDA, or if there is no algorithm.
  static Result<CublasProduct> create(Device& device, const ProductShape& shape);
  CublasProduct(CublasProduct&&) noexcept = default;
  CublasProduct& operator=(CublasProduct&&) noexcept = default;

  /// Asynchronous, can be captured after choose_fastest(), which has loaded the kernels.
  Status enqueue(const void* x, const void* w, const void* bias, void* y, Stream stream);
  /// Collective, in the timer's stream. The heuristic's order is a guess: each algorithm is timed, so that the rival is shown at
  /// its best.
  Status choose_fastest(DeviceTimer& timer, const void* x, const void* w, const void* bias, void* y, Stream stream);
  std::string describe() const;  ///< "cuBLASLt 13.1.0, algorithm 2 of 8"

 private:
  struct Release {
    Device* device;
    void operator()(cublas_lt::Matmul* matmul) const;
  };
  CublasProduct(Device& device, const cublas_lt::Library& library) : device_(&device), library_(&library) {}

  Device* device_;
  const cublas_lt::Library* library_;
  std::unique_ptr<cublas_lt::Matmul, Release> matmul_;
  DeviceBuffer workspace_;
  int algorithm_ = 0;
};

}  // namespace farwarp::harness
