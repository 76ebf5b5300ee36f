// Matrix products, on one device and over all ranks. x and w hold -1, 0 and 1, so every sum is exact and the expected
// result needs no oracle.
#include <farwarp/base/half.h>
#include <farwarp/ops/gemm/gemm.h>
#include <farwarp/ops/grouped_gemm/grouped_gemm.h>
#include <farwarp/ops/parallel_gemm/ag_gemm/ag_gemm.h>
#include <farwarp/ops/parallel_gemm/dispatch/parallel_gemm.h>
#include <farwarp/ops/parallel_gemm/gemm_ar/gemm_ar.h>
#include <farwarp/ops/parallel_gemm/gemm_rs/gemm_rs.h>
#include <farwarp/ops/parallel_gemm/unfused.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "consumer.h"

namespace {

using farwarp::Bf16;
using farwarp::Status;
using farwarp::parallel_gemm::Kind;

constexpr int kM = 16, kN = 32, kK = 64;

int x_at(int row, int k) { return (row + 2 * k) % 3 - 1; }
int w_at(int row, int k) { return (2 * row + k) % 3 - 1; }
float y_at(int row, int column) {
  int sum = 0;
  for (int k = 0; k < kK; ++k) sum += x_at(row, k) * w_at(column, k);
  return static_cast<float>(sum);
}

/// The rows and columns of a matrix that one rank has.
struct Part {
  int first_row, rows, first_column, columns;
};

template <class Value>
std::vector<Bf16> elements(const Part& part, Value value) {
  std::vector<Bf16> result;
  for (int row = part.first_row; row < part.first_row + part.rows; ++row) {
    for (int column = part.first_column; column < part.first_column + part.columns; ++column)
      result.push_back(farwarp::bf16_from(static_cast<float>(value(row, column))));
  }
  return result;
}

/// Calls `op` with this rank's parts of x and w, compares its part of y, and closes `op`.
template <class Op>
Status call(const char* name, farwarp::Result<Op> op, farwarp::World& world, const Part& x, const Part& w,
            const Part& y) {
  if (!op.ok()) return op.status();
  farwarp::Device& device = world.device();
  auto stream = device.create_stream();
  if (!stream.ok()) return stream.status();
  const std::vector<Bf16> expected = elements(y, y_at);
  std::vector<Bf16> got(expected.size());
  auto x_memory = upload(device, elements(x, x_at), *stream);
  auto w_memory = upload(device, elements(w, w_at), *stream);
  auto y_memory = device.allocate(got.size() * sizeof(Bf16));
  for (const auto* memory : {&x_memory, &w_memory, &y_memory}) {
    if (!memory->ok()) return memory->status();
  }
  Status status = (*op)(*x_memory, *w_memory, nullptr, *y_memory, *stream);
  if (status.ok()) status = device.copy_out(got.data(), *y_memory, got.size() * sizeof(Bf16), *stream);
  if (status.ok()) status = world.status();
  for (std::size_t i = 0; i < got.size() && status.ok(); ++i) {
    if (got[i].bits != expected[i].bits)
      status = farwarp::internal_error(std::string(name) + ": element " + std::to_string(i) + " is wrong");
  }
  return status.ok() ? op->close() : status;
}

/// A GroupedGemm as call() takes an operator: all rows of x are one group's.
class OneGroup {
 public:
  static farwarp::Result<OneGroup> create(farwarp::World& world) {
    auto op = farwarp::GroupedGemm::create(world, {.groups = 1, .max_rows = kM, .n = kN, .k = kK});
    if (!op.ok()) return op.status();
    return OneGroup(world.device(), std::move(*op));
  }
  Status operator()(const void* x, const void* w, const void*, void* y, farwarp::Stream stream) {
    const std::vector<std::int32_t> offsets{0, kM};
    auto rows = upload(*device_, offsets, stream);
    if (!rows.ok()) return rows.status();
    return op_({.x = x, .w = w, .rows = static_cast<const std::int32_t*>(*rows), .y = y}, stream);
  }
  Status close() { return op_.close(); }

 private:
  OneGroup(farwarp::Device& device, farwarp::GroupedGemm op) : device_(&device), op_(std::move(op)) {}
  farwarp::Device* device_;
  farwarp::GroupedGemm op_;
};

}  // namespace

Status call_products(farwarp::World& world) {
  const int rank = world.rank(), ranks = world.size();
  const int rows = kM / ranks, w_rows = kN / ranks, depth = kK / ranks;
  const Part whole_x{0, kM, 0, kK}, whole_w{0, kN, 0, kK}, whole_y{0, kM, 0, kN};
  const Part some_rows{rank * rows, rows, 0, kK}, some_weights{rank * w_rows, w_rows, 0, kK};
  const Part deep_x{0, kM, rank * depth, depth}, deep_w{0, kN, rank * depth, depth};
  const Part owned_y{rank * rows, rows, 0, kN}, own_columns{0, kM, rank * w_rows, w_rows};
  const farwarp::ParallelGemmDesc desc{.m = kM, .n = kN, .k = kK};

  Status status =
      call("Gemm", farwarp::Gemm::create(world, {.m = kM, .n = kN, .k = kK}), world, whole_x, whole_w, whole_y);
  if (status.ok()) {
    auto grouped = OneGroup::create(world);
    const bool is_there = grouped.status().code() != farwarp::StatusCode::kUnavailable;  // on Hopper
    if (is_there) status = call("GroupedGemm", std::move(grouped), world, whole_x, whole_w, whole_y);
  }
  if (status.ok())
    status =
        call("AllGatherGemm", farwarp::AllGatherGemm::create(world, desc), world, some_rows, some_weights, own_columns);
  if (status.ok())
    status = call("GemmReduceScatter", farwarp::GemmReduceScatter::create(world, desc), world, deep_x, deep_w, owned_y);
  if (status.ok())
    status = call("GemmAllReduce", farwarp::GemmAllReduce::create(world, desc), world, deep_x, deep_w, whole_y);
  if (status.ok())
    status = call("ParallelGemm", farwarp::ParallelGemm::create(world, Kind::kReduceScatter, desc), world, deep_x,
                  deep_w, owned_y);
  if (!status.ok()) return status;
  // Needs NCCL and cuBLASLt, which the emulator does not have.
  const auto unfused = farwarp::parallel_gemm::Unfused::create(world, Kind::kAllReduce, desc);
  if (unfused.status().code() == farwarp::StatusCode::kUnavailable) return {};
  return farwarp::internal_error("Unfused on the emulator: " + unfused.status().to_string());
}
