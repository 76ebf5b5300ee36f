// The oracles of products with random inputs.
#include "farwarp/ops/gemm/case/oracle.h"

#include <algorithm>
#include <numeric>

#include "farwarp/base/sizes.h"
#include "farwarp/harness/device_buffer.h"
#include "farwarp/ops/gemm/case/partial_sums_args.h"

namespace farwarp::gemm {
namespace {

using harness::DeviceBuffer;
using harness::ExpectedElement;
using harness::PartialSum;

/// The oracle of one term for some columns of y.
Reference reference_of(const SumOfProducts& problem, const SumOfProducts::Term& term, const std::vector<int>& columns) {
  const std::size_t k = size(problem.k);
  std::vector<std::uint16_t> w(columns.size() * k), bias;
  for (std::size_t c = 0; c < columns.size(); ++c) {
    term.w_row(columns[c], std::span(w).subspan(c * k, k));
    if (!term.bias.empty()) bias.push_back(term.bias[size(columns[c])]);
  }
  GemmDesc desc;
  desc.k = problem.k;
  desc.dtype = problem.dtype;
  std::vector<int> all(columns.size());
  std::iota(all.begin(), all.end(), 0);
  return Reference(desc, w, bias, all);
}

/// A term's operands on the device, and its partial sums, computed there.
class DeviceTerm {
 public:
  Status open(const SumOfProducts& problem, const SumOfProducts::Term& term, Device& device, Stream stream) {
    Status status = upload(x_, term.x_row, problem.rows, problem.k, device, stream);
    if (status.ok()) status = upload(w_, term.w_row, problem.columns, problem.k, device, stream);
    if (!status.ok() || term.bias.empty()) return status;
    return upload(
        bias_, [&](int, std::span<std::uint16_t> values) { std::ranges::copy(term.bias, values.begin()); }, 1,
        problem.columns, device, stream);
  }
  PartialSumsArgs args(const SumOfProducts& problem, int first_row, int rows, const DeviceBuffer& sums) const {
    const std::int64_t elements = std::int64_t{rows} * problem.columns;
    return {x_.as<std::uint16_t>() + std::int64_t{first_row} * problem.k,
            w_.get(),
            bias_.get(),
            sums.as<float>(),
            sums.as<float>() + elements,
            rows,
            problem.columns,
            problem.k,
            problem.dtype == DType::kBf16 ? 1 : 0};
  }

 private:
  static Status upload(DeviceBuffer& buffer, const RowSource& source, int rows, int columns, Device& device,
                       Stream stream) {
    constexpr std::size_t kElementsAtOnce = std::size_t{2} << 20;
    const std::size_t width = size(columns);
    auto created = DeviceBuffer::create(device, size(rows) * width * 2);
    if (!created.ok()) return created.status();
    buffer = std::move(*created);
    const int at_once = static_cast<int>(std::clamp<std::size_t>(kElementsAtOnce / width, 1, size(rows)));
    std::vector<std::uint16_t> chunk(size(at_once) * width);
    for (int first = 0; first < rows; first += at_once) {
      const int count = std::min(at_once, rows - first);
      for (int row = 0; row < count; ++row) source(first + row, std::span(chunk).subspan(size(row) * width, width));
      const Status status = device.copy_in(buffer.as<std::uint16_t>() + size(first) * width, chunk.data(),
                                           size(count) * width * 2, stream);
      if (!status.ok()) return status;
    }
    return {};
  }

  DeviceBuffer x_, w_, bias_;
};

/// The partial sums of some rows: [term][rows * columns values, then as many squares].
class DeviceSums {
 public:
  DeviceSums(Device& device, Stream stream, std::uint64_t timeout_ns)
      : device_(device), stream_(stream), timeout_ns_(timeout_ns) {}

  Status open(const SumOfProducts& problem, int rows_at_once) {
    auto kernel = device_.kernel("gemm_partial_sums");
    if (!kernel.ok()) return kernel.status();
    kernel_ = *kernel;
    const auto resident = device_.blocks_per_multiprocessor(kernel_, kPartialSumsThreads, 0);
    if (!resident.ok()) return resident.status();
    most_blocks_ = *resident * device_.shape().multiprocessors;
    auto sums = DeviceBuffer::create(device_, size(rows_at_once) * size(problem.columns) * 2 * sizeof(float));
    if (!sums.ok()) return sums.status();
    sums_ = std::move(*sums);
    terms_.resize(problem.terms.size());
    for (std::size_t t = 0; t < terms_.size(); ++t) {
      if (Status status = terms_[t].open(problem, problem.terms[t], device_, stream_); !status.ok()) return status;
    }
    return {};
  }

  Status compute(const SumOfProducts& problem, int first_row, int rows) {
    const std::int64_t elements = std::int64_t{rows} * problem.columns;
    values_.resize(terms_.size());
    for (std::size_t t = 0; t < terms_.size(); ++t) {
      const PartialSumsArgs args = terms_[t].args(problem, first_row, rows, sums_);
      const std::int64_t needed = (partial_sums_threads(args) + kPartialSumsThreads - 1) / kPartialSumsThreads;
      LaunchConfig config;
      config.threads = kPartialSumsThreads;
      config.blocks = static_cast<int>(std::min<std::int64_t>(needed, most_blocks_));
      values_[t].resize(size(2 * elements));
      Status status = launch(device_, kernel_, config, args, stream_);
      if (status.ok()) status = device_.synchronize(stream_, timeout_ns_);
      if (status.ok()) status = sums_.download(values_[t].data(), values_[t].size() * sizeof(float), stream_);
      if (!status.ok()) return status;
    }
    return {};
  }

  /// Every term's partial sum of element `at`. `elements`: how many compute() has computed.
  void get(std::size_t at, std::size_t elements, std::span<PartialSum> sums) const {
    for (std::size_t t = 0; t < terms_.size(); ++t) sums[t] = {values_[t][at], values_[t][elements + at]};
  }

 private:
  Device& device_;
  Stream stream_;
  std::uint64_t timeout_ns_;
  Kernel kernel_;
  int most_blocks_ = 1;
  DeviceBuffer sums_;
  std::vector<DeviceTerm> terms_;
  std::vector<std::vector<float>> values_;
};

}  // namespace

void compare_sample(const SumOfProducts& problem, const Sample& sample, const Output& output,
                    harness::Comparison& comparison) {
  const std::size_t columns = sample.columns.size(), terms = problem.terms.size();
  std::vector<PartialSum> sums(sample.rows.size() * columns * terms);  // [row][column][term]
  std::vector<std::uint16_t> x(size(problem.k)), got(columns);
  std::vector<double> values, squares;
  for (std::size_t t = 0; t < terms; ++t) {
    const Reference reference = reference_of(problem, problem.terms[t], sample.columns);
    for (std::size_t row = 0; row < sample.rows.size(); ++row) {
      problem.terms[t].x_row(sample.rows[row], x);
      reference.row(x, values, squares);
      for (std::size_t c = 0; c < columns; ++c) sums[(row * columns + c) * terms + t] = {values[c], squares[c]};
    }
  }
  std::vector<ExpectedElement> expected(columns);
  for (std::size_t row = 0; row < sample.rows.size(); ++row) {
    const auto y = output.row(sample.rows[row], problem.columns);
    for (std::size_t c = 0; c < columns; ++c) {
      got[c] = y[size(sample.columns[c])];
      expected[c] = harness::expected_element(problem.dtype, problem.roundings,
                                              std::span(sums).subspan((row * columns + c) * terms, terms), problem.k);
    }
    comparison.add(sample.rows[row], sample.columns, got, expected);
  }
}

Status compare_all(const SumOfProducts& problem, Device& device, Stream stream, std::uint64_t timeout_ns,
                   const Output& output, harness::Comparison& comparison) {
  constexpr int kRowsAtOnce = 256;
  DeviceSums device_sums(device, stream, timeout_ns);
  if (Status status = device_sums.open(problem, kRowsAtOnce); !status.ok()) return status;
  const std::size_t columns = size(problem.columns);
  std::vector<PartialSum> sums(problem.terms.size());
  std::vector<ExpectedElement> expected(columns);
  for (int first = 0; first < problem.rows; first += kRowsAtOnce) {
    const int rows = std::min(kRowsAtOnce, problem.rows - first);
    if (Status status = device_sums.compute(problem, first, rows); !status.ok()) return status;
    for (int row = 0; row < rows; ++row) {
      for (std::size_t c = 0; c < columns; ++c) {
        device_sums.get(size(row) * columns + c, size(rows) * columns, sums);
        expected[c] = harness::expected_element(problem.dtype, problem.roundings, sums, problem.k);
      }
      comparison.add(first + row, 0, output.row(first + row, problem.columns), expected);
    }
  }
  return {};
}

}  // namespace farwarp::gemm
