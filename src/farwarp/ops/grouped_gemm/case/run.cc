#include "farwarp/ops/grouped_gemm/case/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "farwarp/base/arguments.h"
#include "farwarp/base/sizes.h"
#include "farwarp/harness/inputs.h"
#include "farwarp/ops/gemm/case/scaled_operand.h"
#include "farwarp/ops/gemm/reference.h"

namespace farwarp::grouped_gemm {
namespace {

using gemm::InputKind;
using harness::RandomStream;

constexpr std::uint64_t kRowStream = 201, kScaleStream = 202;

/// The power of two by which w is divided, so that gates of N(0, 1) inputs have about the deviation 1; of the clamped
/// activation 4, so that some are clamped.
float scale_of_gated(const GroupedGemmDesc& desc) {
  const int half = (std::ilogb(desc.k) + 1) / 2;
  return std::ldexp(1.0f, (desc.activation == Activation::kClampedSwiGlu ? 2 : 0) - half);
}

double activated(Activation activation, double gate, double up) {
  if (activation == Activation::kSwiGlu) return gate / (1 + std::exp(-gate)) * up;
  const double g = std::min(gate, 7.0), u = std::clamp(up, -7.0, 7.0);
  return g / (1 + std::exp(-1.702 * g)) * (u + 1);
}

}  // namespace

/// Of a gated product no sum is exact, and uniform numbers of +-0.01 would not reach the activation's slope.
InputKind RankRun::kind_of(int call) const {
  const InputKind kind = gemm::kind_in_call(config_.inputs, call);
  return is_gated() && kind != InputKind::kMean ? InputKind::kNormal : kind;
}

// -- preparing

Status RankRun::open() {
  const auto device = Device::open(options_.target, rank_);
  if (!device.ok()) return device.status();
  const auto plan = plan_grouped_gemm(config_.desc, (*device)->shape());
  if (!plan.ok()) return plan.status();
  if (Status status = open_world(0); !status.ok()) return status;
  auto op = GroupedGemm::create(*world_, config_.desc);
  if (!op.ok()) return op.status();
  op_.emplace(std::move(*op));
  const GroupedGemmDesc& desc = config_.desc;
  const std::size_t rows = size(plan->all_rows()), rows_of_w = size(matrices()) * size(desc.n), k = size(desc.k);
  const std::size_t element = is_scaled() ? 1 : 2, steps = size(tile::scaled_blocks(desc.k));
  const std::size_t of_w = size(matrices()) * size(tile::scaled_blocks(desc.n)) * steps;
  return harness::create_buffers(world_->device(), {{&x_.memory, rows * k * element},
                                                    {&w_.memory, rows_of_w * k * element},
                                                    {&x_.scales, is_scaled() ? rows * steps * 4 : 4},
                                                    {&w_.scales, is_scaled() ? of_w * 4 : 4},
                                                    {&rows_, size(desc.groups + 1) * 4},
                                                    {&bias_, rows_of_w * 2},
                                                    {&y_, rows * size(desc.n) * 2}});
}

/// The groups' rows, of which `rows_` gets offsets or counts.
Status RankRun::fill_rows(int call) {
  const GroupedGemmDesc& desc = config_.desc;
  const bool counts = desc.group_rows == GroupRows::kCounts;
  const RandomStream random(options_.seed, {kRowStream, size(call), size(rank_)});
  const int chosen = static_cast<int>(random.below(1000, size(desc.groups)));
  int left = desc.max_rows, begin = 0;
  // Offsets may begin after rows that no group has.
  if (!counts && config_.spread == Spread::kRandom)
    begin = static_cast<int>(random.below(1001, size(std::min(left, 4))));
  left -= begin;
  groups_.clear();
  std::vector<std::int32_t> numbers;
  if (!counts) numbers.push_back(begin);
  for (int group = 0; group < desc.groups; ++group) {
    const int room = counts ? desc.max_rows : left;
    int count = 0;
    switch (config_.spread) {
      case Spread::kRandom: {
        const int most = counts ? room : std::min(room, 2 * desc.max_rows / desc.groups + 1);
        count = random.below(size(2 * group), 4) == 0
                    ? 0
                    : static_cast<int>(random.below(size(2 * group + 1), size(most + 1)));
        break;
      }
      case Spread::kEven: count = counts ? room : left / (desc.groups - group); break;
      case Spread::kOne: count = group == chosen ? room : 0; break;
    }
    groups_.push_back({counts ? group * desc.max_rows : begin, count});
    begin += count;
    left -= count;
    numbers.push_back(counts ? count : begin);
  }
  return rows_.upload(numbers.data(), numbers.size() * 4, *stream_);
}

std::vector<bool> RankRun::rows_in_groups() const {
  std::vector<bool> rows(size(op_->plan().all_rows()));
  for (const Group& group : groups_) std::fill_n(rows.begin() + group.begin, group.count, true);
  return rows;
}

Status RankRun::fill_operand(Operand& operand, gemm::Operand which, int call, int matrix_rows, int block_rows) {
  const GroupedGemmDesc& desc = config_.desc;
  const InputKind kind = kind_of(call);
  const bool of_x = which == gemm::Operand::kX;
  // With scaling each of two scales is 1 or 2, and their squares 2.5 on average.
  const std::int64_t products = is_scaled() ? std::int64_t{desc.k} * 25 / 4 : desc.k;
  const std::size_t k = size(desc.k);
  const std::size_t rows = operand.memory.bytes() / (is_scaled() ? 1 : 2) / k;
  operand.host.resize(rows * k);
  for (std::size_t row = 0; row < rows; ++row) {
    const RandomStream stream(options_.seed, {static_cast<std::uint64_t>(which), size(call), size(rank_), row});
    gemm::fill_operand(kind, which, desc.dtype, products, stream, std::span(operand.host).subspan(row * k, k));
  }
  const std::vector<bool> in_group = rows_in_groups();
  // Rows of no group are NaN.
  for (std::size_t row = 0; of_x && row < rows; ++row)
    if (!in_group[row]) std::fill_n(operand.host.begin() + static_cast<std::ptrdiff_t>(row * k), k, harness::kPoison16);
  const float factor = is_gated() && !of_x ? scale_of_gated(desc) : 1.0f;
  const auto scale_host = [&] {
    for (std::uint16_t& value : operand.host)
      if (factor != 1) value = harness::encode(desc.dtype, harness::decode(desc.dtype, value) * factor);
  };
  if (!is_scaled()) {
    scale_host();
    return operand.memory.upload(operand.host.data(), operand.host.size() * 2, *stream_);
  }
  std::vector<std::uint8_t> codes;
  std::vector<float> scales;
  for (std::size_t first = 0; first < rows; first += size(matrix_rows)) {
    const RandomStream random(options_.seed,
                              {kScaleStream, static_cast<std::uint64_t>(which), size(call), size(rank_), first});
    const auto matrix = std::span(operand.host).subspan(first * k, size(matrix_rows) * k);
    const gemm::ScaledOperand scaled =
        gemm::scale_operand(kind, desc.dtype, {block_rows, tile::kScaledDepth}, desc.k, desc.k, random, matrix);
    codes.insert(codes.end(), scaled.codes.begin(), scaled.codes.end());
    scales.insert(scales.end(), scaled.scales.begin(), scaled.scales.end());
  }
  scale_host();
  for (float& scale : scales) scale *= factor;
  const std::size_t steps = size(tile::scaled_blocks(desc.k));
  for (std::size_t row = 0; of_x && row < rows; ++row)
    if (!in_group[row]) std::fill_n(scales.begin() + static_cast<std::ptrdiff_t>(row * steps), steps, std::nanf(""));
  const Status status = operand.memory.upload(codes.data(), codes.size(), *stream_);
  return status.ok() ? operand.scales.upload(scales.data(), scales.size() * 4, *stream_) : status;
}

Status RankRun::fill(int call) {
  const GroupedGemmDesc& desc = config_.desc;
  call_ = call;
  Status status = fill_rows(call);
  const int rows = static_cast<int>(op_->plan().all_rows());
  if (status.ok()) status = fill_operand(x_, gemm::Operand::kX, call, rows, 1);
  if (status.ok()) status = fill_operand(w_, gemm::Operand::kW, call, desc.n, tile::kScaledDepth);
  if (status.ok() && desc.has_bias) {
    host_bias_.resize(size(matrices()) * size(desc.n));
    const RandomStream stream(options_.seed,
                              {static_cast<std::uint64_t>(gemm::Operand::kBias), size(call), size(rank_)});
    gemm::fill_operand(kind_of(call), gemm::Operand::kBias, desc.dtype, desc.k, stream, host_bias_);
    status = bias_.upload(host_bias_.data(), host_bias_.size() * 2, *stream_);
  }
  return status.ok() ? y_.poison(*stream_) : status;
}

// -- calling

Status RankRun::enqueue() {
  GroupedGemmTensors tensors{
      .x = x_.memory.get(), .w = w_.memory.get(), .rows = rows_.as<std::int32_t>(), .y = y_.get()};
  if (is_scaled()) {
    tensors.x_scale = x_.scales.as<float>();
    tensors.w_scale = w_.scales.as<float>();
  }
  if (config_.desc.has_bias) tensors.bias = bias_.get();
  return (*op_)(tensors, *stream_);
}

Status RankRun::all_calls() {
  std::unique_ptr<Graph> graph;
  return make_calls(0, [&](int call) {
    Status status = fill(call);
    if (status.ok() && config_.graph) status = capture_once(graph, [this] { return enqueue(); });
    if (status.ok()) status = graph ? world_->device().launch(*graph, *stream_) : enqueue();
    if (status.ok()) status = wait(patience());
    return status.ok() ? verify() : status;
  });
}

// -- verifying

/// Rows of groups are written, and no others.
void RankRun::check_written(std::span<const std::uint16_t> got) {
  const std::size_t n = size(config_.desc.n);
  const std::vector<bool> in_group = rows_in_groups();
  for (std::size_t i = 0; i < got.size(); ++i) {
    if ((got[i] == harness::kPoison16) != in_group[i / n]) continue;
    findings_.difference = fmt::format("y[{}, {}] {}", i / n, i % n,
                                       in_group[i / n] ? "was not written" : "is of no group and was written");
    return;
  }
}

gemm::SumOfProducts RankRun::product_of(int group) const {
  const GroupedGemmDesc& desc = config_.desc;
  const auto rows_from = [k = size(desc.k)](const std::vector<std::uint16_t>& matrix, std::size_t first) {
    return [&matrix, first, k](int row, std::span<std::uint16_t> values) {
      std::copy_n(matrix.begin() + static_cast<std::ptrdiff_t>((first + size(row)) * k), k, values.begin());
    };
  };
  gemm::SumOfProducts product;
  product.dtype = desc.dtype;
  product.rows = groups_[size(group)].count;
  product.columns = op_->plan().parts() * desc.n;
  product.k = desc.k;
  product.roundings.short_sums = is_scaled();
  const std::size_t columns = size(product.columns), first = size(group) * columns;
  gemm::SumOfProducts::Term term{rows_from(x_.host, size(groups_[size(group)].begin)), rows_from(w_.host, first), {}};
  if (desc.has_bias) {
    const auto begin = host_bias_.begin() + static_cast<std::ptrdiff_t>(first);
    term.bias.assign(begin, begin + product.columns);
  }
  product.terms.push_back(std::move(term));
  return product;
}

Status RankRun::verify() {
  std::vector<std::uint16_t> got(y_.bytes() / 2);
  if (Status status = y_.download(got.data(), y_.bytes(), *stream_); !status.ok()) return status;
  check_written(got);
  for (int group = 0; group < config_.desc.groups && findings_.difference.empty(); ++group) {
    if (groups_[size(group)].count == 0) continue;
    if (Status status = verify_group(group, got); !status.ok()) return status;
  }
  return {};
}

Status RankRun::verify_group(int group, std::span<const std::uint16_t> got) {
  const GroupedGemmDesc& desc = config_.desc;
  const Group& rows = groups_[size(group)];
  const gemm::Output output{got.subspan(size(rows.begin) * size(desc.n)), desc.n};
  findings_.comparison.begin_call(call_ * desc.groups + group);
  if (is_gated()) {
    compare_gated(group, output);
    return {};
  }
  const gemm::SumOfProducts product = product_of(group);
  if (kind_of(call_) == InputKind::kExact) {
    const std::string difference = exact_difference(product, output, options_.seed);
    if (!difference.empty()) findings_.difference = fmt::format("call {}, group {}: {}", call_, group, difference);
    return {};
  }
  if (!is_emulated(options_.target))
    return compare_all(product, world_->device(), *stream_, static_cast<std::uint64_t>(patience().count()), output,
                       findings_.comparison);
  compare_sample(product, gemm::choose_sample({.m = rows.count, .n = desc.n, .k = desc.k}, options_.seed), output,
                 findings_.comparison);
  return {};
}

/// Compares a sample of a group's rows with float64. The errors of the gate's sum and of the other one are passed on as
/// the activation passes them on there.
void RankRun::compare_gated(int group, const gemm::Output& output) {
  constexpr double kFp32 = 0x1p-20;  // of the activation's arithmetic
  const GroupedGemmDesc& desc = config_.desc;
  const gemm::SumOfProducts product = product_of(group);
  const gemm::Sample sample = gemm::choose_sample({.m = product.rows, .n = desc.n, .k = desc.k}, options_.seed);
  const std::size_t columns = sample.columns.size(), k = size(desc.k);
  std::vector<std::uint16_t> w(2 * columns * k), bias, x(k), got(columns);
  std::vector<int> all(2 * columns);
  for (std::size_t i = 0; i < 2 * columns; ++i) {
    const int row = sample.columns[i % columns] + (i < columns ? 0 : desc.n);
    all[i] = static_cast<int>(i);
    product.terms[0].w_row(row, std::span(w).subspan(i * k, k));
    if (desc.has_bias) bias.push_back(product.terms[0].bias[size(row)]);
  }
  const gemm::Reference reference({.k = desc.k, .dtype = desc.dtype}, w, bias, all);
  std::vector<double> values, squares;
  for (const int row : sample.rows) {
    product.terms[0].x_row(row, x);
    reference.row(x, values, squares);
    std::vector<harness::ExpectedElement> expected(columns);
    const auto y = output.row(row, desc.n);
    for (std::size_t c = 0; c < columns; ++c) {
      const auto error_of = [&](std::size_t i) {
        const harness::PartialSum sum{values[i], squares[i]};
        return harness::accumulation_error(sum, desc.k) + (is_scaled() ? harness::short_sums_error(sum) : 0);
      };
      const double gate = values[c], up = values[columns + c], of_gate = error_of(c), of_up = error_of(columns + c);
      const double value = activated(desc.activation, gate, up);
      double error = kFp32 * std::abs(value) + 0x1p-126;
      for (const double gate_error : {-of_gate, of_gate}) {
        for (const double up_error : {-of_up, of_up}) {
          const double other = activated(desc.activation, gate + gate_error, up + up_error);
          error = std::max(error, std::abs(other - value) + kFp32 * std::abs(value));
        }
      }
      got[c] = y[size(sample.columns[c])];
      expected[c].add(value, error);
    }
    findings_.comparison.add(row, sample.columns, got, expected);
  }
}

Status RankRun::close(const Status& status) {
  return close_operator(status, [this] { return op_->close(); });
}

}  // namespace farwarp::grouped_gemm
