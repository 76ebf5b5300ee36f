#include "farwarp/ops/parallel_gemm/case/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "farwarp/base/sizes.h"
#include "farwarp/harness/inputs.h"
#include "farwarp/harness/submission.h"
#include "farwarp/ops/parallel_gemm/case/dispatch.h"
#include "farwarp/ops/parallel_gemm/case/oracle.h"
#include "farwarp/ops/parallel_gemm/dispatch/parallel_gemm.h"
#include "farwarp/ops/parallel_gemm/unfused.h"

namespace farwarp::parallel_gemm {
namespace {

using harness::DeviceBuffer;
using harness::Fault;

constexpr std::size_t kUploadElements = std::size_t{2} << 20;  // elements of a matrix that are on the host at a time

}  // namespace

RankRun::RankRun(const CheckConfig& config, std::shared_ptr<Bootstrap> bootstrap, const harness::RunOptions& options)
    : harness::RankRun(std::move(bootstrap), options, harness::Comparison(config.desc.dtype, gemm::kTile, gemm::kTile)),
      config_(config),
      problem_{config.kind.kind, config.desc, ranks_, options.seed, config.inputs} {}

// -- preparing

Status RankRun::open(int sets) {
  Status status = check(config_.kind.kind, config_.desc, problem_.ranks);
  if (status.ok()) status = create_world();
  if (status.ok()) status = create_operator();
  return status.ok() ? allocate_buffers(sets) : status;
}

Status RankRun::create_world() {
  const auto device = Device::open(options_.target, rank_);
  if (!device.ok()) return device.status();
  std::int64_t most_bytes = 0;
  ParallelGemmDesc largest = config_.desc;
  if (options_.fault.kind == Fault::Kind::kMismatch) largest.n += 8 * problem_.ranks;
  for (const ParallelGemmDesc& desc : {config_.desc, largest}) {
    const auto bytes = heap_bytes(**device, desc);
    if (!bytes.ok()) return bytes.status();
    most_bytes = std::max(most_bytes, *bytes);
  }
  return open_world(most_bytes);
}

Result<std::int64_t> RankRun::heap_bytes(const Device& device, const ParallelGemmDesc& desc) const {
  if (config_.path == Path::kOwn) return config_.kind.heap_bytes(desc, device.shape(), problem_.ranks);
  return ParallelGemm::heap_bytes(device, problem_.ranks, problem_.kind, desc, config_.path);
}

Result<std::unique_ptr<CaseOperator>> RankRun::create(const ParallelGemmDesc& desc) {
  if (config_.path == Path::kOwn) return config_.kind.create(*world_, desc);
  return create_dispatched(*world_, problem_.kind, desc, config_.path);
}

Status RankRun::create_operator() {
  if (options_.fault.kind == Fault::Kind::kMismatch) {
    if (Status status = provoke_mismatch(); !status.ok()) return status;
  }
  auto op = create(config_.desc);
  if (!op.ok()) return op.status();
  op_ = std::move(*op);
  if (op_->roundings() != 0) config_.kind.roundings = op_->roundings();
  if (harness::submission() != nullptr) config_.kind.roundings = unfused_roundings(problem_.kind, problem_.ranks);
  return {};
}

/// One rank asks for a larger n. Creation must fail with kMismatch on every rank.
Status RankRun::provoke_mismatch() {
  ParallelGemmDesc desc = config_.desc;
  if (rank_ == options_.fault.rank) desc.n += 8 * problem_.ranks;
  const auto op = create(desc);
  refused_ = op.status();
  const auto all = harness::true_on_all(*bootstrap_, refused_.code() == StatusCode::kMismatch);
  if (!all.ok()) return all.status();
  if (*all) return {};
  return internal_error(
      fmt::format("rank {} asked for n = {} and the others for {}, and this rank's creation ended with: {}",
                  options_.fault.rank, config_.desc.n + 8 * problem_.ranks, config_.desc.n, refused_.to_string()));
}

Status RankRun::allocate_buffers(int sets) {
  const LocalShape local = problem_.local();
  sets_.resize(size(sets));
  for (Buffers& set : sets_) {
    Status status = harness::create_buffers(
        world_->device(), {{&set.x, size(std::int64_t{local.x_rows} * local.k) * 2},
                           {&set.w, size(std::int64_t{local.w_rows} * local.k) * 2},
                           {&set.bias, size(local.w_rows) * 2},
                           {&set.y, size(std::int64_t{local.y_rows} * local.y_columns) * 2},
                           {&set.all_x, config_.desc.return_x ? size(std::int64_t{config_.desc.m} * local.k) * 2 : 0}});
    if (!status.ok()) return status;
  }
  return {};
}

Status RankRun::fill(Buffers& set, int call) {
  const LocalShape local = problem_.local();
  Status status = upload_rows(set.x, Operand::kX, call, local.x_rows, local.k);
  if (status.ok()) status = upload_rows(set.w, Operand::kW, call, local.w_rows, local.k);
  if (status.ok() && config_.desc.has_bias) status = upload_rows(set.bias, Operand::kBias, call, 1, local.w_rows);
  return status.ok() ? poison(set) : status;
}

Status RankRun::poison(const Buffers& set) {
  const Status status = set.y.poison(*stream_);
  return status.ok() && config_.desc.return_x ? set.all_x.poison(*stream_) : status;
}

Status RankRun::upload_rows(const DeviceBuffer& buffer, Operand operand, int call, int rows, int columns) {
  const std::size_t width = size(columns);
  const int at_once = static_cast<int>(std::clamp<std::size_t>(kUploadElements / width, 1, size(rows)));
  std::vector<std::uint16_t> chunk(size(at_once) * width);
  Status status;
  for (int first = 0; first < rows && status.ok(); first += at_once) {
    const int count = std::min(at_once, rows - first);
    for (int row = 0; row < count; ++row)
      fill_row(problem_, operand, call, rank_, first + row, std::span(chunk).subspan(size(row) * width, width));
    status = world_->device().copy_in(buffer.as<std::uint16_t>() + size(first) * width, chunk.data(),
                                      size(count) * width * 2, *stream_);
  }
  return status;
}

// -- calling

Status RankRun::inject_fault() {
  const Fault& fault = options_.fault;
  if (fault.kind == Fault::Kind::kDropPut) op_->drop_put(static_cast<int>(fault.amount));
  return harness::apply_fault(fault, rank_, *bootstrap_, world_->device(), *stream_);
}

Status RankRun::all_calls() {
  Status status;
  for (int call = 0; call < options_.calls && status.ok(); call += config_.burst) {
    const int count = std::min(config_.burst, options_.calls - call);
    status = record(call + count == options_.calls, [&] { return burst(call, count); });
  }
  return recover_from_fault(status, [this] {
    op_->drop_put(0);
    return burst(options_.calls, 1);
  });
}

/// Enqueues `count` calls, each with its own inputs and outputs, and verifies the results after all are done.
Status RankRun::burst(int first, int count) {
  Status status;
  for (int i = 0; i < count && status.ok(); ++i) status = fill(sets_[size(i)], first + i);
  if (status.ok() && first == 0) status = inject_fault();
  for (int repeat = 0; repeat < config_.repeat && status.ok(); ++repeat) {
    for (int i = 0; i < count && status.ok() && repeat > 0; ++i) status = poison(sets_[size(i)]);
    for (int i = 0; i < count && status.ok(); ++i) {
      const std::uint64_t longest = config_.longest_delay_ns;
      if (longest != 0)
        status = world_->device().enqueue_delay(*stream_, delay_before(problem_, first + i, repeat, rank_, longest));
      if (status.ok()) status = launch(sets_[size(i)]);
    }
    if (status.ok()) status = wait(patience_for_burst());
    for (int i = 0; i < count && status.ok(); ++i) {
      Buffers& set = sets_[size(i)];
      status = repeat == 0 ? verify(set.y, first + i, config_.kind.roundings, findings_, set.first)
                           : compare_with_first(set, first + i, repeat);
      if (status.ok()) status = verify_returned_x(set, first + i, findings_);
    }
  }
  return status;
}

Status RankRun::enqueue(const Buffers& set) {
  if (harness::submission() != nullptr) {
    const LocalShape local = problem_.local();
    const auto type = harness::element_type(config_.desc.dtype);
    std::vector<harness::Argument> inputs{{"x", type, {local.x_rows, local.k}, {}, set.x.get()},
                                          {"w", type, {local.w_rows, local.k}, {}, set.w.get()}};
    if (config_.desc.has_bias) inputs.push_back({"bias", type, {local.w_rows}, {}, set.bias.get()});
    return harness::submission()->call(*bootstrap_, world_->device(), *stream_, inputs,
                                       {{"y", type, {local.y_rows, local.y_columns}, {}, set.y.get()}});
  }
  op_->return_x_to(all_x_of(set));
  return op_->call(set.x.get(), set.w.get(), config_.desc.has_bias ? set.bias.get() : nullptr, set.y.get(), *stream_);
}

Status RankRun::launch(Buffers& set) {
  if (!config_.graph) return enqueue(set);
  if (Status status = capture_once(set.graph, [&] { return enqueue(set); }); !status.ok()) return status;
  return world_->device().launch(*set.graph, *stream_);
}

std::chrono::nanoseconds RankRun::patience_for_burst() const {
  return patience(std::max(2, config_.burst), std::chrono::nanoseconds(config_.longest_delay_ns));
}

// -- verifying

/// Checks that every element is written. With exact inputs all elements must be exact. With others no element may be
/// further off than `roundings` allow: all elements on a real device, a sample on the emulator. `got` gets y.
Status RankRun::verify(const DeviceBuffer& y, int call, int roundings, Findings& findings,
                       std::vector<std::uint16_t>& got) {
  const std::int64_t width = problem_.local().y_columns;
  got.resize(y.bytes() / 2);
  if (Status status = y.download(got.data(), y.bytes(), *stream_); !status.ok()) return status;
  const std::int64_t unwritten = std::find(got.begin(), got.end(), harness::kPoison16) - got.begin();
  if (!findings.difference.empty()) return {};
  if (size(unwritten) != got.size()) {
    findings.difference = fmt::format("call {}: y[{}, {}] was not written", call, unwritten / width, unwritten % width);
    return {};
  }
  const gemm::SumOfProducts product = product_of(problem_, call, rank_, roundings);
  const gemm::Output output{got, width};
  if (gemm::kind_in_call(config_.inputs, call) == gemm::InputKind::kExact) {
    const std::string difference = gemm::exact_difference(product, output, options_.seed);
    if (!difference.empty()) findings.difference = fmt::format("call {}: {}", call, difference);
    return {};
  }
  findings.comparison.begin_call(call);
  if (!is_emulated(options_.target))
    return gemm::compare_all(product, world_->device(), *stream_,
                             static_cast<std::uint64_t>(patience_for_burst().count()), output, findings.comparison);
  gemm::compare_sample(product, choose_sample(problem_, call, rank_), output, findings.comparison);
  return {};
}

/// Compares every row of every rank to the bit.
Status RankRun::verify_returned_x(const Buffers& set, int call, Findings& findings) const {
  if (!config_.desc.return_x || !findings.difference.empty()) return {};
  const LocalShape local = problem_.local();
  const std::size_t width = size(local.k);
  std::vector<std::uint16_t> got(set.all_x.bytes() / 2), wanted(width);
  if (Status status = set.all_x.download(got.data(), set.all_x.bytes(), *stream_); !status.ok()) return status;
  for (int row = 0; row < config_.desc.m; ++row) {
    fill_row(problem_, Operand::kX, call, row / local.x_rows, row % local.x_rows, wanted);
    const auto mine = std::span(got).subspan(size(row) * width, width);
    const auto [at, expected] = std::mismatch(mine.begin(), mine.end(), wanted.begin());
    if (at == mine.end()) continue;
    findings.difference = fmt::format("call {}: returned x[{}, {}] is 0x{:04x}, expected 0x{:04x}", call, row,
                                      at - mine.begin(), *at, *expected);
    return {};
  }
  return {};
}

Status RankRun::compare_with_first(const Buffers& set, int call, int repeat) {
  std::vector<std::uint16_t> got(set.first.size());
  if (Status status = set.y.download(got.data(), set.y.bytes(), *stream_); !status.ok()) return status;
  const auto [mine, before] = std::mismatch(got.begin(), got.end(), set.first.begin());
  if (mine == got.end() || !findings_.difference.empty()) return {};
  const std::size_t at = size(mine - got.begin()), width = size(problem_.local().y_columns);
  findings_.difference = fmt::format("call {}: y[{}, {}] is 0x{:04x} when called again ({}), and was 0x{:04x}", call,
                                     at / width, at % width, *mine, repeat, *before);
  return {};
}

// -- ending

Status RankRun::close(const Status& status) {
  if (!refused_.ok()) {
    const auto all_right = harness::true_on_all(*bootstrap_, harness::RankRun::outcome(status).pass);
    if (!all_right.ok()) return all_right.status();
    right_after_refusal_ = *all_right;
    recovery_ = "; this is after a creation that was refused because of --fault mismatch";
  }
  return close_operator(status, [this] { return op_->close(); });
}

harness::CheckOutcome RankRun::outcome(const Status& status) const {
  harness::CheckOutcome outcome = harness::RankRun::outcome(status);
  if (!outcome.pass || !right_after_refusal_) return outcome;
  outcome.pass = false;  // like any other fault: the first creation failed
  outcome.status = refused_;
  outcome.detail =
      fmt::format("rank {}: {}; after it, a creation with equal descriptors worked and its calls were right", rank_,
                  refused_.to_string());
  return outcome;
}

}  // namespace farwarp::parallel_gemm
