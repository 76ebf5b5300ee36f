#include "farwarp/ops/gemm/case/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "farwarp/base/arguments.h"
#include "farwarp/base/sizes.h"
#include "farwarp/harness/inputs.h"
#include "farwarp/harness/submission.h"
#include "farwarp/ops/gemm/case/scaled_operand.h"
#include "farwarp/ops/gemm/reference.h"

namespace farwarp::gemm {
namespace {

using harness::DeviceBuffer;
using harness::RandomStream;

constexpr std::uint64_t kScales = 103;  // the stream of scales

}  // namespace

// -- preparing

Status RankRun::open(int sets) {
  const auto device = Device::open(options_.target, rank_);
  if (!device.ok()) return device.status();
  const auto plan = plan_gemm(config_.desc, (*device)->shape());
  if (!plan.ok()) return plan.status();
  config_.desc = plan->desc;
  if (Status status = open_world(plan->workspace_bytes); !status.ok()) return status;
  auto op = Gemm::create(*world_, config_.desc);
  if (!op.ok()) return op.status();
  op_.emplace(std::move(*op));

  const GemmDesc& desc = config_.desc;
  sets_.resize(size(sets));
  set_ = sets_.data();
  for (Buffers& set : sets_) {
    const std::size_t element = is_scaled() ? 1 : 2;
    Status status = harness::create_buffers(world_->device(), {{&set.x, size(desc.m * desc.x_pitch) * element},
                                                               {&set.w, size(desc.n * desc.w_pitch) * element},
                                                               {&set.bias, size(desc.n) * 2},
                                                               {&set.y, size(desc.m * desc.y_pitch) * 2}});
    if (status.ok() && is_scaled()) {
      const ScaleBlock of_x = scale_block_of_x(desc), of_w = scale_block_of_w(desc);
      const auto scales = [&](int rows, ScaleBlock block) {
        return size((rows + block.rows - 1) / block.rows) * size((desc.k + block.depth - 1) / block.depth) * 4;
      };
      status = harness::create_buffers(world_->device(),
                                       {{&set.x_scale, scales(desc.m, of_x)}, {&set.w_scale, scales(desc.n, of_w)}});
    }
    if (!status.ok()) return status;
  }
  return {};
}

Status RankRun::fill(Buffers& buffers, int call) {
  const GemmDesc& desc = config_.desc;
  buffers.call = call;
  // With scaling each of two scales is 1 or 2, and their squares 2.5 on average.
  const std::int64_t products = is_scaled() ? std::int64_t{desc.k} * 25 / 4 : desc.k;
  // Elements between rows are poison.
  const auto matrix = [&](Operand operand, int rows, int columns, std::int64_t pitch) {
    std::vector<std::uint16_t> values(size(rows * pitch), harness::kPoison16);
    for (int row = 0; row < rows; ++row) {
      const RandomStream stream(options_.seed,
                                {static_cast<std::uint64_t>(operand), size(call), size(rank_), size(row)});
      const auto row_values = std::span(values).subspan(size(row * pitch), size(columns));
      if (config_.residue == Residue::kShifted) {
        harness::fill_normal(stream, 1, 1, desc.dtype, row_values);
      } else {
        fill_operand(kind_in_call(config_.inputs, call), operand, desc.dtype, products, stream, row_values);
      }
    }
    return values;
  };
  buffers.host_x = matrix(Operand::kX, desc.m, desc.k, desc.x_pitch);
  buffers.host_w = matrix(Operand::kW, desc.n, desc.k, desc.w_pitch);
  if (config_.residue != Residue::kNone) buffers.taken_away = make_residue(desc, buffers.host_x, buffers.host_w);
  if (desc.has_bias) buffers.host_bias = matrix(Operand::kBias, 1, desc.n, desc.n);
  Status status = upload_operands(buffers);
  if (status.ok()) status = buffers.bias.upload(buffers.host_bias.data(), buffers.host_bias.size() * 2, *stream_);
  return status.ok() ? buffers.y.poison(*stream_) : status;
}

/// With scaling rounds the host's copies to what is uploaded.
Status RankRun::upload_operands(Buffers& buffers) {
  const auto upload = [&](DeviceBuffer& to, const auto& from) {
    return to.upload(from.data(), from.size() * sizeof from[0], *stream_);
  };
  if (!is_scaled()) return first_failure({upload(buffers.x, buffers.host_x), upload(buffers.w, buffers.host_w)});
  const GemmDesc& desc = config_.desc;
  const InputKind kind = kind_in_call(config_.inputs, buffers.call);
  const auto scale = [&](std::uint64_t operand, ScaleBlock block, std::int64_t pitch,
                         std::vector<std::uint16_t>& values) {
    const RandomStream random(options_.seed, {kScales, operand, size(buffers.call), size(rank_)});
    return scale_operand(kind, desc.dtype, block, desc.k, pitch, random, values);
  };
  const ScaledOperand x = scale(0, scale_block_of_x(desc), desc.x_pitch, buffers.host_x);
  const ScaledOperand w = scale(1, scale_block_of_w(desc), desc.w_pitch, buffers.host_w);
  const int steps = static_cast<int>(x.scales.size() / size(desc.m));
  return first_failure({upload(buffers.x, x.codes), upload(buffers.w, w.codes), upload(buffers.w_scale, w.scales),
                        upload(buffers.x_scale, desc.x_scale_by_column ? transposed(x.scales, steps) : x.scales)});
}

// -- calling

Status RankRun::enqueue() {
  if (harness::submission() != nullptr) {
    const GemmDesc& desc = config_.desc;
    const auto type = harness::element_type(desc.dtype);
    std::vector<harness::Argument> inputs{{"x", type, {desc.m, desc.k}, {}, set_->x.get()},
                                          {"w", type, {desc.n, desc.k}, {}, set_->w.get()}};
    if (desc.has_bias) inputs.push_back({"bias", type, {desc.n}, {}, set_->bias.get()});
    return harness::submission()->call(*bootstrap_, world_->device(), *stream_, inputs,
                                       {{"y", type, {desc.m, desc.n}, {}, set_->y.get()}});
  }
  GemmScales scales;
  if (is_scaled()) scales = {set_->x_scale.as<float>(), set_->w_scale.as<float>()};
  return (*op_)(set_->x.get(), set_->w.get(), scales, config_.desc.has_bias ? set_->bias.get() : nullptr, set_->y.get(),
                *stream_);
}

Status RankRun::all_calls() {
  std::unique_ptr<Graph> graph;
  return make_calls(0, [&](int call) {
    Status status = fill(*set_, call);
    if (status.ok() && config_.graph) status = capture_once(graph, [this] { return enqueue(); });
    if (status.ok()) status = graph ? world_->device().launch(*graph, *stream_) : enqueue();
    if (status.ok()) status = wait(patience());
    return status.ok() ? verify(set_->y) : status;
  });
}

// -- verifying

/// The product of the set in use.
SumOfProducts RankRun::product() const {
  const GemmDesc& desc = config_.desc;
  const auto rows_of = [&](const std::vector<std::uint16_t>& matrix, std::int64_t pitch) {
    return [&matrix, pitch](int row, std::span<std::uint16_t> values) {
      std::copy_n(matrix.begin() + row * pitch, values.size(), values.begin());
    };
  };
  SumOfProducts product;
  product.dtype = desc.dtype;
  product.rows = desc.m;
  product.columns = desc.n;
  product.k = desc.k;
  product.roundings.short_sums = is_scaled();
  product.terms.push_back({rows_of(set_->host_x, desc.x_pitch), rows_of(set_->host_w, desc.w_pitch), set_->host_bias});
  return product;
}

/// Checks that every element was written, and nothing between rows. With exact inputs all elements must be exact. With
/// other inputs no error may be larger than roundings allow; this compares all elements on a real device, and a sample
/// on the emulator.
Status RankRun::verify(const DeviceBuffer& y) {
  const GemmDesc& desc = config_.desc;
  std::vector<std::uint16_t> got(size(desc.m * desc.y_pitch));
  if (Status status = y.download(got.data(), got.size() * 2, *stream_); !status.ok()) return status;
  for (std::size_t i = 0; i < got.size() && findings_.difference.empty(); ++i) {
    const bool in_matrix = i % size(desc.y_pitch) < size(desc.n);
    if ((got[i] == harness::kPoison16) == in_matrix)
      findings_.difference = fmt::format("y[{}, {}] {}", i / size(desc.y_pitch), i % size(desc.y_pitch),
                                         in_matrix ? "was not written" : "lies outside the matrix and was written");
  }
  if (!findings_.difference.empty()) return {};
  const Output output{got, desc.y_pitch};
  if (kind_in_call(config_.inputs, set_->call) == InputKind::kExact) {
    const std::string difference = exact_difference(product(), output, options_.seed);
    if (!difference.empty()) findings_.difference = fmt::format("call {}: {}", set_->call, difference);
    return {};
  }
  findings_.comparison.begin_call(set_->call);
  if (config_.residue != Residue::kNone) {
    compare_residue(output);
    return {};
  }
  if (!is_emulated(options_.target))
    return compare_all(product(), world_->device(), *stream_, static_cast<std::uint64_t>(patience().count()), output,
                       findings_.comparison);
  compare_sample(product(), choose_sample(desc, options_.seed), output, findings_.comparison);
  return {};
}

/// The inputs subtract the exact sums, so y is the error of fp32 accumulation.
void RankRun::compare_residue(const Output& output) {
  const GemmDesc& desc = config_.desc;
  std::vector<harness::ExpectedElement> expected(size(desc.n));
  for (int row = 0; row < desc.m; ++row) {
    for (int column = 0; column < desc.n; ++column) {
      const harness::PartialSum& sum = set_->taken_away[size(row) * size(desc.n) + size(column)];
      expected[size(column)].accumulated = harness::accumulation_error(sum, desc.k);
    }
    findings_.comparison.add(row, 0, output.row(row, desc.n), expected);
  }
}

Status RankRun::close(const Status& status) {
  return close_operator(status, [this] { return op_->close(); });
}

}  // namespace farwarp::gemm
