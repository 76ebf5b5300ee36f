// A matrix product by cuBLASLt on one device.
#pragma once

#include <memory>
#include <string>

#include "farwarp/runtime/device_memory.h"
#include "farwarp/vendor/cublas_matmul.h"

namespace farwarp {

struct ProductShape {
  int m = 0, n = 0, k = 0;
  DType dtype = DType::kBf16;
  bool has_bias = false;
};

/// y[m, n] = x[m, k] * w[n, k]^T (+ bias[n]), row-major and contiguous, all of ProductShape::dtype; pointers are
/// multiples of 256 bytes. Move-only; the Device must outlive it. Uses the algorithm that cuBLASLt's heuristic ranks
/// first, until choose().
class CublasProduct {
 public:
  /// kUnavailable without cuBLASLt, on a target that is not CUDA, or if there is no algorithm.
  static Result<CublasProduct> create(Device& device, const ProductShape& shape);
  CublasProduct(CublasProduct&&) noexcept = default;
  CublasProduct& operator=(CublasProduct&&) noexcept = default;

  /// Asynchronous. Can be captured only after the algorithm has run once, because its kernel may have to be loaded.
  Status enqueue(const void* x, const void* w, const void* bias, void* y, Stream stream);

  int algorithms() const { return matmul_->algorithms(); }
  int algorithm() const { return algorithm_; }
  /// From 0; below algorithms().
  void choose(int algorithm) { algorithm_ = algorithm; }
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
  DeviceMemory workspace_;
  int algorithm_ = 0;
};

}  // namespace farwarp
