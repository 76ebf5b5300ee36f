#include "farwarp/vendor/cublas_matmul.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>

#include "farwarp/base/arguments.h"

namespace farwarp::cublas_lt {
namespace {

Status check_shape(int m, int n, int k, DType dtype) {
  const std::pair<const char*, int> sizes[] = {{"m", m}, {"n", n}, {"k", k}};
  for (const auto& [name, size] : sizes) {
    if (size < 1) return invalid_argument(fmt::format("{} is {}; allowed: at least 1", name, size));
  }
  if (dtype != DType::kF16 && dtype != DType::kBf16) {
    return invalid_argument(fmt::format("dtype is {}; allowed: fp16, bf16", name_of(dtype)));
  }
  return {};
}

}  // namespace

template <class T, class Create, class... Arguments>
Status Matmul::make(std::unique_ptr<T, Destroy<T>>& owned, const Create& create,
                    const LibraryFunction<Error(T*)>& destroy, Arguments... arguments) {
  T* made = nullptr;
  Status status = library_->call(create, &made, arguments...);
  if (status.ok()) owned = {made, Destroy<T>{destroy.address}};
  return status;
}

template <class Value>
Status Matmul::set(MatmulAttribute attribute, Value value) {
  return library_->call(library_->desc_set, desc_.get(), attribute, &value, sizeof(value));
}

// cuBLASLt's matrices are column-major, so it sees a row-major matrix as its transpose. It computes out^T = w * x^T
// from w^T [k, n] and x^T [k, m], which are w and x in memory: A is w^T, to be transposed, and B is x^T. Its epilogue
// adds one bias value to each row of out^T.
Status Matmul::describe(int m, int n, int k, DType dtype, bool has_bias) {
  const Library& library = *library_;
  const DataType type = dtype == DType::kF16 ? DataType::kFloat16 : DataType::kBfloat16;
  has_bias_ = has_bias;
  Status status = make(handle_, library.create, library.destroy);
  if (status.ok()) {
    status = make(desc_, library.desc_create, library.desc_destroy, ComputeType::kFloat32, DataType::kFloat32);
  }
  if (status.ok()) status = set(MatmulAttribute::kTransposeA, Operation::kTransposed);
  if (status.ok()) status = set(MatmulAttribute::kTransposeB, Operation::kAsIs);
  if (status.ok() && has_bias) status = set(MatmulAttribute::kEpilogue, Epilogue::kBias);
  // The heuristic uses only this pointer's alignment and does not read through it. run() sets the true pointer.
  if (status.ok() && has_bias) status = set(MatmulAttribute::kBiasPointer, std::uintptr_t{kAlignment});
  if (status.ok()) status = make(w_, library.layout_create, library.layout_destroy, type, k, n, k);
  if (status.ok()) status = make(x_, library.layout_create, library.layout_destroy, type, k, m, k);
  if (status.ok()) status = make(out_, library.layout_create, library.layout_destroy, type, n, m, n);
  return status;
}

Status Matmul::find_algorithms() {
  const Library& library = *library_;
  Owned<Preference> preference;
  Status status = make(preference, library.preference_create, library.preference_destroy);
  const std::uint64_t most = workspace_bytes_;
  if (status.ok()) {
    status = library.call(library.preference_set, preference.get(), PreferenceAttribute::kMaxWorkspaceBytes, &most,
                          sizeof(most));
  }
  if (!status.ok()) return status;
  std::array<HeuristicResult, kMaxAlgorithms> results{};
  int returned = 0;
  status = library.call(library.heuristic, handle_.get(), desc_.get(), w_.get(), x_.get(), out_.get(), out_.get(),
                        preference.get(), kMaxAlgorithms, results.data(), &returned);
  if (!status.ok()) return status;
  std::copy_if(results.begin(), results.begin() + returned, std::back_inserter(algorithms_),
               [](const HeuristicResult& result) { return result.state == Error::kSuccess; });
  if (algorithms_.empty()) return unavailable(fmt::format("{}: no algorithm", library.heuristic.symbol));
  return {};
}

Result<Matmul> Matmul::create(const Library& library, int m, int n, int k, DType dtype, bool has_bias,
                              std::size_t workspace_bytes) {
  if (Status status = check_shape(m, n, k, dtype); !status.ok()) return status;
  Matmul matmul(library);
  matmul.workspace_bytes_ = workspace_bytes;
  Status status = matmul.describe(m, n, k, dtype, has_bias);
  if (status.ok()) status = matmul.find_algorithms();
  if (!status.ok()) {
    const std::string what = fmt::format("[{}, {}] x [{}, {}]^T of {}", m, k, n, k, name_of(dtype));
    return Status(status.code(), what + ": " + status.message());
  }
  return matmul;
}

Status Matmul::run(int algorithm, const void* x, const void* w, const void* bias, void* out, void* workspace,
                   StreamHandle stream) {
  if (algorithm < 0 || algorithm >= algorithms()) {
    return invalid_argument(fmt::format("algorithm is {}; allowed: 0 to {}", algorithm, algorithms() - 1));
  }
  if (!has_bias_ && bias != nullptr) {
    return invalid_argument(fmt::format("bias is {}; allowed: null, as create() was told", fmt::ptr(bias)));
  }
  const HeuristicResult& chosen = algorithms_[static_cast<std::size_t>(algorithm)];
  Status status = first_failure(
      {check_pointer("x", x, kAlignment), check_pointer("w", w, kAlignment),
       has_bias_ ? check_pointer("bias", bias, kAlignment) : Status(), check_pointer("out", out, kAlignment),
       chosen.workspace_bytes > 0 ? check_pointer("workspace", workspace, kAlignment) : Status()});
  if (status.ok() && has_bias_) status = set(MatmulAttribute::kBiasPointer, bias);
  if (!status.ok()) return status;
  // These are in host memory and are read before the call returns. With beta 0, C is not read, so D may be passed for
  // it.
  const float alpha = 1, beta = 0;
  return library_->call(library_->matmul, handle_.get(), desc_.get(), &alpha, w, w_.get(), x, x_.get(), &beta, out,
                        out_.get(), out, out_.get(), &chosen.algorithm, workspace, chosen.workspace_bytes, stream);
}

}  // namespace farwarp::cublas_lt
