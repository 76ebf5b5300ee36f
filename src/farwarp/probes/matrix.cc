// The rate of the matrix unit, while clocks are high and after power has reduced them.
#include <fmt/format.h>

#include <chrono>
#include <vector>

#include "farwarp/base/fragments.h"
#include "farwarp/probes/probes.h"

namespace farwarp::probes {
namespace {

using Clock = std::chrono::steady_clock;

bool is_wgmma(const Device& device) { return device.shape().traits.matrix_unit == MatrixUnit::kWgmma; }

/// Floating-point operations of one block in one round.
double flops_per_round(const Device& device) {
  const double products = is_wgmma(device)
                              ? double{128} * kMatrixColumns * kMatrixDepth
                              : double{16} * 16 * 16 * 4 * kMatrixThreads / device.shape().traits.warp_size;
  return 2 * products;
}

/// What thread `thread` sums in one round, in units of 1/64.
std::int64_t expected_sum(const Device& device, int thread) {
  const auto dot = [](int row, int column, int depth) {
    std::int64_t sum = 0;
    for (int k = 0; k < depth; ++k) sum += matrix_value(row, k) * matrix_value(column, k);
    return sum;
  };
  std::int64_t sum = 0;
  if (is_wgmma(device)) {
    for (int i = 0; i < kMatrixColumns / 2; ++i) {
      const MatrixIndex at = wgmma_sum(thread % 128, i);
      sum += dot(thread / 128 * 64 + at.row, at.column, kMatrixDepth);
    }
  } else {
    for (int i = 0; i < 4; ++i) {
      const MatrixIndex at = mfma_sum(thread % 64, i);
      sum += 4 * dot(at.row, at.column, 16);
    }
  }
  return sum;
}

}  // namespace

/// TFLOP/s of the slowest device while all devices work at once: one kernel of `rounds`, after the same work for `warm`
/// without a pause.
Result<double> Probes::matrix_rate(int rounds, std::chrono::milliseconds warm) {
  MatrixArgs args{};
  args.rounds = rounds;
  args.out = static_cast<std::uint64_t*>(memory_[0]);
  const int blocks = sizes_.max_blocks != 0 ? sizes_.max_blocks : device_.shape().multiprocessors;
  const std::size_t shared = is_wgmma(device_) ? (128 + kMatrixColumns) * 128 : 0;
  const auto multiply = [&] {
    return farwarp::launch(device_, kernels_.matrix, {blocks, kMatrixThreads, shared}, args, stream_);
  };
  const Clock::time_point began = Clock::now();
  Status status;
  while (status.ok() && Clock::now() - began < warm) {
    for (int i = 0; i < 16 && status.ok(); ++i) status = multiply();
    if (status.ok()) status = finish();
  }
  if (status = all_ok(status); !status.ok()) return status;
  const auto us = agree(median([&] { return timed(multiply); }));
  if (!us.ok()) return us;
  std::vector<std::uint64_t> sums(static_cast<std::size_t>(blocks) * kMatrixThreads);
  status = device_.copy_out(sums.data(), args.out, sums.size() * sizeof(sums[0]), stream_);
  for (std::size_t i = 0; i < sums.size() && status.ok(); ++i) {
    const int thread = static_cast<int>(i % kMatrixThreads);
    const std::int64_t expected = rounds * expected_sum(device_, thread);
    if (static_cast<std::int64_t>(sums[i]) != expected)
      status = internal_error(fmt::format("matrix unit: thread {} of block {} has {}, expected {}", thread,
                                          i / kMatrixThreads, static_cast<std::int64_t>(sums[i]), expected));
  }
  if (status = all_ok(status); !status.ok()) return status;
  return flops_per_round(device_) * rounds * blocks / (*us * 1e6);
}

}  // namespace farwarp::probes
