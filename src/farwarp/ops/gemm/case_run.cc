#include "farwarp/ops/gemm/case_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "farwarp/harness/inputs.h"
#include "farwarp/ops/gemm/reference.h"

namespace farwarp::gemm {
namespace {

using harness::DeviceBuffer;
using harness::RandomStream;

constexpr int kRoundings = 1;
constexpr double kLargestInput = 0.01;  // of the challenge

enum StreamId : std::uint64_t { kXStream, kWStream, kBiasStream };

/// [rows, columns] uniform in +-0.01, at `pitch`; what lies between rows is poison.
std::vector<std::uint16_t> random_matrix(const RandomStream& stream, DType dtype, std::size_t rows, std::size_t columns,
                                         std::size_t pitch) {
  std::vector<std::uint16_t> dense(rows * columns);
  harness::fill_uniform(stream, -kLargestInput, kLargestInput, dtype, dense);
  if (pitch == columns) return dense;
  std::vector<std::uint16_t> pitched(rows * pitch, harness::kPoison16);
  for (std::size_t row = 0; row < rows; ++row)
    std::copy_n(dense.data() + row * columns, columns, pitched.data() + row * pitch);
  return pitched;
}

std::size_t size(std::int64_t value) { return static_cast<std::size_t>(value); }

}  // namespace

RankRun::~RankRun() {
  if (stream_) world_->device().destroy_stream(*stream_);
}

// -- preparing

Status RankRun::open(int sets) {
  const auto device = Device::open(options_.target, bootstrap_->rank());
  if (!device.ok()) return device.status();
  const auto plan = plan_gemm(config_.desc, (*device)->shape());
  if (!plan.ok()) return plan.status();
  config_.desc = plan->desc;
  WorldOptions world_options;
  world_options.target = options_.target;
  world_options.deadline = options_.deadline;
  world_options.heap_bytes = size(plan->workspace_bytes) + (std::size_t{1} << 20);
  auto world = World::create(bootstrap_, world_options);
  if (!world.ok()) return world.status();
  world_.emplace(std::move(*world));
  auto op = Gemm::create(*world_, config_.desc);
  if (!op.ok()) return op.status();
  op_.emplace(std::move(*op));
  const auto stream = world_->device().create_stream();
  if (!stream.ok()) return stream.status();
  stream_ = *stream;

  const GemmDesc& desc = config_.desc;
  sets_.resize(size(sets));
  set_ = sets_.data();
  for (Buffers& set : sets_) {
    for (const auto& [buffer, elements] :
         {std::pair{&set.x, desc.m * desc.x_pitch}, std::pair{&set.w, desc.n * desc.w_pitch},
          std::pair{&set.bias, std::int64_t{desc.n}}, std::pair{&set.y, desc.m * desc.y_pitch}}) {
      auto created = DeviceBuffer::create(world_->device(), size(elements) * 2);
      if (!created.ok()) return created.status();
      *buffer = std::move(*created);
    }
  }
  return {};
}

Status RankRun::fill(Buffers& buffers, int call) {
  const GemmDesc& desc = config_.desc;
  const auto stream = [&](StreamId what) {
    return RandomStream(options_.seed,
                        {what, static_cast<std::uint64_t>(call), static_cast<std::uint64_t>(bootstrap_->rank())});
  };
  buffers.host_x = random_matrix(stream(kXStream), desc.dtype, size(desc.m), size(desc.k), size(desc.x_pitch));
  buffers.host_w = random_matrix(stream(kWStream), desc.dtype, size(desc.n), size(desc.k), size(desc.w_pitch));
  if (desc.has_bias) buffers.host_bias = random_matrix(stream(kBiasStream), desc.dtype, 1, size(desc.n), size(desc.n));
  Status status = buffers.x.upload(buffers.host_x.data(), buffers.host_x.size() * 2, *stream_);
  if (status.ok()) status = buffers.w.upload(buffers.host_w.data(), buffers.host_w.size() * 2, *stream_);
  if (status.ok()) status = buffers.bias.upload(buffers.host_bias.data(), buffers.host_bias.size() * 2, *stream_);
  return status.ok() ? buffers.y.poison(*stream_) : status;
}

// -- calling

Status RankRun::enqueue() {
  return (*op_)(set_->x.get(), set_->w.get(), config_.desc.has_bias ? set_->bias.get() : nullptr, set_->y.get(),
                *stream_);
}

Status RankRun::all_calls() {
  std::unique_ptr<Graph> graph;
  for (int call = 0; call < options_.calls; ++call) {
    Status status = fill(*set_, call);
    if (status.ok() && config_.graph && graph == nullptr) {
      status = world_->device().begin_capture(*stream_);
      if (status.ok()) status = enqueue();
      auto captured = world_->device().end_capture(*stream_);
      if (status.ok()) status = captured.status();
      if (status.ok()) graph = std::move(*captured);
    }
    if (status.ok()) status = graph ? world_->device().launch(*graph, *stream_) : enqueue();
    if (status.ok()) status = wait();
    if (status.ok()) status = verify(set_->y);
    if (!status.ok()) return status;
  }
  return {};
}

Status RankRun::wait() {
  const auto patience = std::chrono::nanoseconds(2 * options_.deadline + std::chrono::seconds(10));
  const Status drained = world_->device().synchronize(*stream_, static_cast<std::uint64_t>(patience.count()));
  const Status status = world_->status();
  return status.ok() ? drained : status;
}

// -- verifying

/// Every element is written, and nothing between rows; a sample of them is right.
Status RankRun::verify(const DeviceBuffer& y) {
  const GemmDesc& desc = config_.desc;
  std::vector<std::uint16_t> got(size(desc.m * desc.y_pitch));
  if (Status status = y.download(got.data(), got.size() * 2, *stream_); !status.ok()) return status;
  for (std::size_t i = 0; i < got.size() && difference_.empty(); ++i) {
    const bool in_matrix = i % size(desc.y_pitch) < size(desc.n);
    if ((got[i] == harness::kPoison16) == in_matrix)
      difference_ = fmt::format("y[{}, {}] {}", i / size(desc.y_pitch), i % size(desc.y_pitch),
                                in_matrix ? "was not written" : "lies outside the matrix and was written");
  }
  const Sample sample = choose_sample(desc, options_.seed);
  std::vector<std::uint16_t> w;  // contiguous
  if (desc.w_pitch == desc.k) {
    w = set_->host_w;
  } else {
    for (int row = 0; row < desc.n; ++row) {
      const auto begin = set_->host_w.begin() + row * desc.w_pitch;
      w.insert(w.end(), begin, begin + desc.k);
    }
  }
  const Reference reference(desc, w, set_->host_bias, sample.columns);
  std::vector<double> expected, magnitude;
  std::vector<std::uint16_t> row_of_sample(sample.columns.size());
  for (const int row : sample.rows) {
    reference.row(std::span(set_->host_x).subspan(size(row * desc.x_pitch), size(desc.k)), expected, magnitude);
    for (std::size_t c = 0; c < sample.columns.size(); ++c)
      row_of_sample[c] = got[size(row * desc.y_pitch + sample.columns[c])];
    comparison_.add(row_of_sample, expected, magnitude);
  }
  return {};
}

Status RankRun::close(Status status) {
  const auto all_ok = harness::true_on_all(*bootstrap_, status.ok());
  if (!all_ok.ok()) return status.ok() ? all_ok.status() : status;
  return *all_ok ? op_->close() : status;
}

harness::CheckOutcome RankRun::outcome(const Status& status) const {
  return harness::judge(fmt::format("rank {}", bootstrap_->rank()), status, comparison_.verdict(kRoundings),
                        difference_);
}

}  // namespace farwarp::gemm
