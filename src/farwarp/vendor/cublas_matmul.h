// A matrix product by cuBLASLt: a baseline for ours.
#pragma once

#include <cstddef>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "farwarp/vendor/cublas_lt.h"

namespace farwarp::cublas_lt {

/// out[m, n] = x[m, k] * w[n, k]^T + bias[n]; all row-major, contiguous and of one 16-bit type. Products are summed in
/// fp32. An algorithm that splits k may round its partial sums to the 16-bit type, which cuBLAS allows by default.
///
/// The device must be current (Device::while_current()), the same one for all calls and for the destructor, which waits
/// for the device. Move-only. Not thread-safe.
class Matmul {
 public:
  static constexpr int kMaxAlgorithms = 8;
  /// In bytes, of every pointer that run() takes. The heuristic assumes it by default.
  static constexpr int kAlignment = 256;

  /// Asks cuBLASLt's heuristic for algorithms that need at most `workspace_bytes`; 32 MiB is what cuBLAS uses on
  /// Hopper.
  /// `dtype`: kF16 or kBf16. kUnavailable without a device, or if there is no algorithm. The library must outlive it.
  static Result<Matmul> create(const Library& library, int m, int n, int k, DType dtype, bool has_bias,
                               std::size_t workspace_bytes);

  /// 1 to kMaxAlgorithms. cuBLASLt expects those with lower numbers to be faster.
  int algorithms() const { return static_cast<int>(algorithms_.size()); }

  /// Asynchronous. Can be captured after each algorithm has run once, because its kernel may have to be loaded. `bias`
  /// is null exactly if there is none. `workspace` has the `workspace_bytes` of create(), and is in use until the
  /// product is done.
  Status run(int algorithm, const void* x, const void* w, const void* bias, void* out, void* workspace,
             StreamHandle stream);

 private:
  template <class T>
  struct Destroy {
    Error (*function)(T*);
    void operator()(T* handle) const { (void)function(handle); }
  };
  template <class Pointer>
  using Owned = std::unique_ptr<std::remove_pointer_t<Pointer>, Destroy<std::remove_pointer_t<Pointer>>>;

  explicit Matmul(const Library& library) : library_(&library) {}
  template <class T, class Create, class... Arguments>
  Status make(std::unique_ptr<T, Destroy<T>>& owned, const Create& create, const LibraryFunction<Error(T*)>& destroy,
              Arguments... arguments);
  template <class Value>
  Status set(MatmulAttribute attribute, Value value);
  Status describe(int m, int n, int k, DType dtype, bool has_bias);
  Status find_algorithms();

  const Library* library_;
  bool has_bias_ = false;
  std::size_t workspace_bytes_ = 0;
  Owned<Handle> handle_;
  Owned<MatmulDesc> desc_;
  Owned<MatrixLayout> w_, x_, out_;
  std::vector<HeuristicResult> algorithms_;
};

}  // namespace farwarp::cublas_lt
