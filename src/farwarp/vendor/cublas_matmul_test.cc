// Matmul with a stand-in for cuBLASLt that runs on the host and knows column-major matrices only; and, if there is a
// GPU of target cuda, with cuBLASLt itself.
#include "farwarp/vendor/cublas_matmul.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>

#include "farwarp/harness/device_buffer.h"
#include "farwarp/runtime/device.h"

namespace farwarp::cublas_lt {

struct Context {};
struct PreferenceData {
  std::uint64_t workspace_bytes = 0;
};
struct MatrixLayoutData {
  DataType type;
  std::uint64_t rows, columns;
  std::int64_t stride;
};
struct MatmulDescData {
  Operation transpose_a = Operation::kAsIs, transpose_b = Operation::kAsIs;
  Epilogue epilogue = Epilogue::kDefault;
  const void* bias = nullptr;
};

namespace {

constexpr std::size_t kNeeded = 4096;  // bytes of workspace, for the stand-in's last algorithm
int objects = 0;                       // made by the stand-in and not yet destroyed
int algorithms_offered = 3;

template <class T>
Error make(T** made, T value) {
  *made = new T(value);
  ++objects;
  return Error::kSuccess;
}

template <class T>
Error destroy(T* object) {
  delete object;
  --objects;
  return Error::kSuccess;
}

template <class T>
Error store(T& member, const void* value, std::size_t bytes) {
  if (bytes != sizeof(T)) return Error::kInvalidValue;
  std::memcpy(&member, value, bytes);
  return Error::kSuccess;
}

Error set_desc(MatmulDesc desc, MatmulAttribute attribute, const void* value, std::size_t bytes) {
  switch (attribute) {
    case MatmulAttribute::kTransposeA: return store(desc->transpose_a, value, bytes);
    case MatmulAttribute::kTransposeB: return store(desc->transpose_b, value, bytes);
    case MatmulAttribute::kEpilogue: return store(desc->epilogue, value, bytes);
    case MatmulAttribute::kBiasPointer: return store(desc->bias, value, bytes);
  }
  return Error::kInvalidValue;
}

// Offers algorithm 0, which fails, and others that all compute the same; only the last needs a workspace.
Error find(Handle, MatmulDesc desc, MatrixLayout, MatrixLayout, MatrixLayout, MatrixLayout, Preference preference,
           int requested, HeuristicResult* results, int* returned) {
  if (desc->epilogue == Epilogue::kBias && reinterpret_cast<std::uintptr_t>(desc->bias) % Matmul::kAlignment != 0) {
    return Error::kNotSupported;
  }
  *returned = std::min(requested, algorithms_offered);
  for (int i = 0; i < *returned; ++i) {
    results[i].state = i == 0 ? Error::kNotSupported : Error::kSuccess;
    results[i].algorithm.data[0] = static_cast<std::uint64_t>(i);
    results[i].workspace_bytes = i == algorithms_offered - 1 ? kNeeded : 0;
  }
  return preference->workspace_bytes >= kNeeded ? Error::kSuccess : Error::kNotSupported;
}

float element(const void* matrix, const MatrixLayoutData& layout, Operation operation, std::uint64_t row,
              std::uint64_t column) {
  if (operation == Operation::kTransposed) std::swap(row, column);
  if (row >= layout.rows || column >= layout.columns) return NAN;
  const std::size_t at = row + column * static_cast<std::size_t>(layout.stride);
  return layout.type == DataType::kFloat16 ? float_from(static_cast<const Half*>(matrix)[at])
                                           : float_from(static_cast<const Bf16*>(matrix)[at]);
}

Error multiply(Handle, MatmulDesc desc, const void* alpha, const void* a, MatrixLayout a_layout, const void* b,
               MatrixLayout b_layout, const void* beta, const void*, MatrixLayout, void* d, MatrixLayout d_layout,
               const Algorithm* algorithm, void*, std::size_t workspace_bytes, StreamHandle) {
  if (*static_cast<const float*>(alpha) != 1 || *static_cast<const float*>(beta) != 0) return Error::kInvalidValue;
  if (algorithm->data[0] == 0 || (algorithm->data[0] == 2 && workspace_bytes < kNeeded)) return Error::kInvalidValue;
  const std::uint64_t inner = desc->transpose_a == Operation::kAsIs ? a_layout->columns : a_layout->rows;
  const MatrixLayoutData bias_layout{d_layout->type, d_layout->rows, 1, 0};
  for (std::uint64_t column = 0; column < d_layout->columns; ++column) {
    for (std::uint64_t row = 0; row < d_layout->rows; ++row) {
      float sum = 0;
      for (std::uint64_t i = 0; i < inner; ++i) {
        sum += element(a, *a_layout, desc->transpose_a, row, i) * element(b, *b_layout, desc->transpose_b, i, column);
      }
      if (desc->epilogue == Epilogue::kBias) sum += element(desc->bias, bias_layout, Operation::kAsIs, row, 0);
      const std::size_t at = row + column * static_cast<std::size_t>(d_layout->stride);
      static_cast<std::uint16_t*>(d)[at] =
          d_layout->type == DataType::kFloat16 ? half_from(sum).bits : bf16_from(sum).bits;
    }
  }
  return Error::kSuccess;
}

Library stand_in() {
  Library library;
  library.status_name.address = [](Error) { return "CUBLAS_STATUS_X"; };
  library.create.address = [](Handle* made) { return make(made, Context{}); };
  library.destroy.address = destroy<Context>;
  library.desc_create.address = [](MatmulDesc* made, ComputeType, DataType) { return make(made, MatmulDescData{}); };
  library.desc_destroy.address = destroy<MatmulDescData>;
  library.desc_set.address = set_desc;
  library.layout_create.address = [](MatrixLayout* made, DataType type, std::uint64_t rows, std::uint64_t columns,
                                     std::int64_t stride) {
    return make(made, MatrixLayoutData{type, rows, columns, stride});
  };
  library.layout_destroy.address = destroy<MatrixLayoutData>;
  library.preference_create.address = [](Preference* made) { return make(made, PreferenceData{}); };
  library.preference_destroy.address = destroy<PreferenceData>;
  library.preference_set.address = [](Preference preference, PreferenceAttribute, const void* value,
                                      std::size_t bytes) { return store(preference->workspace_bytes, value, bytes); };
  library.heuristic.address = find;
  library.matmul.address = multiply;
  return library;
}

/// Small whole numbers: sums are exact in any order, in fp32 and, with k up to 64, in fp16.
struct Problem {
  int m, n, k;
  DType dtype;

  std::uint16_t bits(int value) const {
    const auto number = static_cast<float>(value);
    return dtype == DType::kF16 ? half_from(number).bits : bf16_from(number).bits;
  }
  static int x_at(int row, int i) { return (row * 5 + i * 3) % 5 - 2; }
  static int w_at(int column, int i) { return (column * 2 + i) % 3 - 1; }
  static int bias_at(int column) { return column % 7 - 3; }

  template <class At>
  std::vector<std::uint16_t> fill(int rows, int columns, At at) const {
    std::vector<std::uint16_t> values;
    for (int row = 0; row < rows; ++row) {
      for (int column = 0; column < columns; ++column) values.push_back(bits(at(row, column)));
    }
    return values;
  }
  std::vector<std::uint16_t> x() const { return fill(m, k, x_at); }
  std::vector<std::uint16_t> w() const { return fill(n, k, w_at); }
  std::vector<std::uint16_t> bias() const {
    return fill(1, n, [](int, int column) { return bias_at(column); });
  }
  std::vector<std::uint16_t> expected(bool has_bias) const {
    return fill(m, n, [&](int row, int column) {
      int sum = has_bias ? bias_at(column) : 0;
      for (int i = 0; i < k; ++i) sum += x_at(row, i) * w_at(column, i);
      return sum;
    });
  }
};

/// A copy with the alignment that run() requires.
struct Aligned {
  explicit Aligned(const std::vector<std::uint16_t>& values) : bytes(values.size() * 2 + 2 * Matmul::kAlignment) {
    if (!values.empty()) std::memcpy(get(), values.data(), values.size() * 2);
  }
  void* get() {
    const auto address = reinterpret_cast<std::uintptr_t>(bytes.data());
    return bytes.data() + (Matmul::kAlignment - address % Matmul::kAlignment);
  }
  std::vector<std::byte> bytes;
};

class CublasMatmul : public testing::Test {
 protected:
  void TearDown() override {
    EXPECT_EQ(objects, 0);
    algorithms_offered = 3;
  }
  const Library library_ = stand_in();
};

TEST_F(CublasMatmul, MultipliesRowMajorMatricesByAColumnMajorLibrary) {
  for (const DType dtype : {DType::kF16, DType::kBf16}) {
    for (const bool has_bias : {false, true}) {
      const Problem problem{5, 7, 3, dtype};
      auto created = Matmul::create(library_, problem.m, problem.n, problem.k, dtype, has_bias, kNeeded);
      ASSERT_TRUE(created.ok()) << created.status().to_string();
      Matmul matmul = std::move(*created);
      ASSERT_EQ(matmul.algorithms(), 2);  // the heuristic reports that the third does not work
      for (int algorithm = 0; algorithm < matmul.algorithms(); ++algorithm) {
        const auto expected = problem.expected(has_bias);
        Aligned x(problem.x()), w(problem.w()), bias(problem.bias()), workspace({}),
            out(std::vector<std::uint16_t>(expected.size(), 0xffff));
        const Status status = matmul.run(algorithm, x.get(), w.get(), has_bias ? bias.get() : nullptr, out.get(),
                                         workspace.get(), nullptr);
        ASSERT_TRUE(status.ok()) << status.to_string();
        EXPECT_EQ(std::memcmp(out.get(), expected.data(), expected.size() * 2), 0) << name_of(dtype) << has_bias;
      }
    }
  }
}

TEST_F(CublasMatmul, RejectsWhatItCannotRun) {
  const auto message_of = [&](int m, int n, int k, DType dtype) {
    return Matmul::create(library_, m, n, k, dtype, true, kNeeded).status().message();
  };
  EXPECT_EQ(message_of(0, 1, 1, DType::kF16), "m is 0; allowed: at least 1");
  EXPECT_EQ(message_of(1, 1, -1, DType::kF16), "k is -1; allowed: at least 1");
  EXPECT_EQ(message_of(1, 1, 1, DType::kF32), "dtype is fp32; allowed: fp16, bf16");

  auto with = Matmul::create(library_, 1, 1, 1, DType::kBf16, true, kNeeded);
  auto without = Matmul::create(library_, 1, 1, 1, DType::kBf16, false, kNeeded);
  ASSERT_TRUE(with.ok() && without.ok());
  Aligned aligned({0, 0});
  void* good = aligned.get();
  void* odd = static_cast<std::byte*>(good) + 16;
  const auto rejects = [](const Status& status, const std::string& start) {
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message().find(start), 0u) << status.message();
  };
  rejects(with->run(2, good, good, good, good, good, nullptr), "algorithm is 2; allowed: 0 to 1");
  rejects(with->run(0, odd, good, good, good, good, nullptr), "x is ");
  rejects(with->run(0, good, nullptr, good, good, good, nullptr), "w is ");
  rejects(with->run(0, good, good, nullptr, good, good, nullptr), "bias is ");
  rejects(without->run(0, good, good, good, good, good, nullptr), "bias is ");
  rejects(with->run(1, good, good, good, good, nullptr, nullptr), "workspace is ");
  EXPECT_TRUE(with->run(0, good, good, good, good, nullptr, nullptr).ok());  // needs none
}

TEST_F(CublasMatmul, SaysWhichFunctionFailedOnWhat) {
  const auto small = Matmul::create(library_, 2, 3, 4, DType::kBf16, false, kNeeded - 1);
  EXPECT_EQ(small.status().code(), StatusCode::kUnavailable);
  const std::string message = small.status().message();
  EXPECT_EQ(message.find("[2, 4] x [3, 4]^T of bf16: cublasLtMatmulAlgoGetHeuristic: CUBLAS_STATUS_X"), 0u) << message;
  algorithms_offered = 1;
  const auto none = Matmul::create(library_, 2, 3, 4, DType::kBf16, false, kNeeded);
  EXPECT_EQ(none.status().message(), "[2, 4] x [3, 4]^T of bf16: cublasLtMatmulAlgoGetHeuristic: no algorithm");
}

TEST_F(CublasMatmul, MovesWhatItOwns) {
  auto a = Matmul::create(library_, 1, 2, 3, DType::kF16, true, kNeeded);
  auto b = Matmul::create(library_, 3, 2, 1, DType::kF16, true, kNeeded);
  ASSERT_TRUE(a.ok() && b.ok());
  const int both = objects;
  *a = std::move(*b);
  EXPECT_EQ(objects, both / 2);
}

void expect_product(Matmul& matmul, Device& device, const Problem& problem, bool has_bias,
                    std::size_t workspace_bytes) {
  const auto stream = device.create_stream();
  ASSERT_TRUE(stream.ok()) << stream.status().to_string();
  const auto upload = [&](const std::vector<std::uint16_t>& values) {
    auto buffer = harness::DeviceBuffer::create(device, values.size() * 2);
    EXPECT_TRUE(buffer.ok() && buffer->upload(values.data(), values.size() * 2, *stream).ok());
    return std::move(*buffer);
  };
  const auto expected = problem.expected(has_bias);
  const auto x = upload(problem.x()), w = upload(problem.w()), bias = upload(problem.bias());
  const auto out = upload(std::vector<std::uint16_t>(expected.size(), 0xffff));
  const auto workspace = harness::DeviceBuffer::create(device, workspace_bytes);
  ASSERT_TRUE(workspace.ok()) << workspace.status().to_string();
  for (int algorithm = 0; algorithm < matmul.algorithms(); ++algorithm) {
    ASSERT_TRUE(out.poison(*stream).ok());
    Status status = device.while_current([&] {
      return matmul.run(algorithm, x.get(), w.get(), has_bias ? bias.get() : nullptr, out.get(), workspace->get(),
                        static_cast<StreamHandle>(stream->handle));
    });
    if (status.ok()) status = device.synchronize(*stream, 60'000'000'000);
    ASSERT_TRUE(status.ok()) << status.to_string();
    std::vector<std::uint16_t> got(expected.size());
    ASSERT_TRUE(out.download(got.data(), got.size() * 2, *stream).ok());
    EXPECT_EQ(got, expected) << "algorithm " << algorithm << ", " << name_of(problem.dtype) << ", bias " << has_bias;
  }
  device.destroy_stream(*stream);
}

TEST(CublasMatmulOnAGpu, MultipliesExactlyWithAllAlgorithms) {
  if (Device::count(TargetKind::kCuda) == 0) GTEST_SKIP() << "no GPU of target cuda";
  const auto library = Library::open();
  if (!library.ok()) GTEST_SKIP() << library.status().message();
  const auto device = Device::open(TargetKind::kCuda, 0);
  if (!device.ok()) GTEST_SKIP() << device.status().message();
  constexpr std::size_t kWorkspace = std::size_t{32} << 20;
  for (const DType dtype : {DType::kF16, DType::kBf16}) {
    for (const bool has_bias : {false, true}) {
      const Problem problem{96, 136, 64, dtype};
      const Status status = (*device)->while_current([&]() -> Status {
        auto matmul = Matmul::create(**library, problem.m, problem.n, problem.k, problem.dtype, has_bias, kWorkspace);
        if (matmul.ok()) expect_product(*matmul, **device, problem, has_bias, kWorkspace);
        return matmul.status();
      });
      ASSERT_TRUE(status.ok()) << status.to_string();
    }
  }
}

}  // namespace
}  // namespace farwarp::cublas_lt
