#include "farwarp/ops/flash_decode/case/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "farwarp/base/sizes.h"
#include "farwarp/harness/submission.h"

namespace farwarp::decode {
namespace {

using harness::DeviceBuffer;
using harness::RandomStream;

/// Bytes of the cache, of K or of V.
std::size_t cache_bytes(const Problem& problem) {
  const FlashDecodeDesc& desc = problem.desc;
  return size(desc.pages) * size(desc.page_size) * size(desc.kv_heads) * size(desc.head_dim) * (problem.fp8() ? 1 : 2);
}

}  // namespace

RankRun::RankRun(const CheckConfig& config, std::shared_ptr<Bootstrap> bootstrap, const harness::RunOptions& options)
    : harness::RankRun(std::move(bootstrap), options,
                       harness::Comparison(config.desc.dtype, config.desc.batch * config.desc.query_tokens,
                                           config.desc.query_heads / config.desc.kv_heads * config.desc.head_dim)),
      config_(config) {
  FlashDecodeDesc& desc = config_.desc;
  desc.pages = pages_for(desc);
  if (config_.shared) desc.kv_shards = ranks_;
  problem_ = {desc, ranks_, options.seed, config.lengths, config.logits};
  problem_.given_lengths = config.given_lengths;
}

// -- preparing

Status RankRun::open(int sets, bool with_unfused) {
  const auto device = Device::open(options_.target, rank_);
  if (!device.ok()) return device.status();
  problem_.fp8_format = (*device)->shape().traits.fp8;
  const auto plan = plan_flash_decode(config_.desc, (*device)->shape(), ranks_);
  if (!plan.ok()) return plan.status();
  const auto unfused_bytes =
      with_unfused ? UnfusedDecode::heap_bytes(config_.desc, (*device)->shape(), ranks_) : Result<std::int64_t>(0);
  if (!unfused_bytes.ok()) return unfused_bytes.status();
  if (Status status = open_world(plan->workspace_bytes + plan->counter_bytes + plan->inbox_bytes + *unfused_bytes);
      !status.ok())
    return status;
  FlashDecodeDesc desc = config_.desc;
  if (options_.fault.kind == harness::Fault::Kind::kMismatch && options_.fault.rank == rank_) ++desc.max_pages;
  auto op = FlashDecode::create(*world_, desc);
  if (!op.ok()) return op.status();
  op_.emplace(std::move(*op));
  problem_.desc.scale = op_->plan().desc.scale;
  if (options_.fault.kind == harness::Fault::Kind::kDropPut && rank_ == 0)
    op_->drop_put(static_cast<int>(options_.fault.amount));

  const std::size_t rows = size(desc.batch) * size(desc.query_tokens) * size(desc.query_heads);
  sets_.resize(size(sets));
  set_ = sets_.data();
  for (Buffers& set : sets_) {
    Status status =
        harness::create_buffers(world_->device(), {{&set.q, rows * size(desc.head_dim) * 2},
                                                   {&set.out, rows * size(desc.head_dim) * 2},
                                                   {&set.k, cache_bytes(problem_)},
                                                   {&set.v, cache_bytes(problem_)},
                                                   {&set.table, size(desc.batch) * size(desc.max_pages) * 4},
                                                   {&set.lengths, size(desc.batch) * 4},
                                                   {&set.k_scale, size(desc.kv_heads) * 4},
                                                   {&set.v_scale, size(desc.kv_heads) * 4},
                                                   {&set.sinks, size(desc.query_heads) * 4},
                                                   {&set.lse, rows * 4}});
    if (!status.ok()) return status;
  }
  return {};
}

/// Writes the rows that are there, and NaN everywhere else.
Status RankRun::fill_cache(const Inputs& inputs, const std::vector<std::int32_t>& table, Inputs::Operand operand,
                           const DeviceBuffer& cache) {
  const FlashDecodeDesc& desc = problem_.desc;
  struct Owner {
    int sequence = -1, page = 0;
  };
  std::vector<Owner> owners(size(desc.pages));
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (table[i] >= 0 && table[i] < desc.pages)
      owners[size(table[i])] = {static_cast<int>(i / size(desc.max_pages)), static_cast<int>(i % size(desc.max_pages))};
  }
  const std::size_t row_bytes = size(desc.head_dim) * (problem_.fp8() ? 1 : 2);
  const std::size_t page_bytes = size(desc.page_size) * size(desc.kv_heads) * row_bytes;
  const std::size_t pages_at_once = std::max<std::size_t>(1, (std::size_t{16} << 20) / page_bytes);
  std::vector<std::byte> chunk;
  for (std::size_t first = 0; first < owners.size(); first += pages_at_once) {
    const std::size_t count = std::min(pages_at_once, owners.size() - first);
    chunk.assign(count * page_bytes, std::byte{0xff});
    for (std::size_t i = 0; i < count; ++i) {
      const Owner owner = owners[first + i];
      if (owner.sequence < 0) continue;
      const int length = inputs.length(rank_, owner.sequence), key = owner.page * desc.page_size;
      for (int row = 0; row < desc.page_size && key + row < length; ++row) {
        for (int head = 0; head < desc.kv_heads; ++head) {
          const std::size_t in_page = desc.layout == KvLayout::kTokensFirst
                                          ? size(row) * size(desc.kv_heads) + size(head)
                                          : size(head) * size(desc.page_size) + size(row);
          std::byte* const to = chunk.data() + i * page_bytes + in_page * row_bytes;
          const void* const from =
              problem_.fp8()
                  ? static_cast<const void*>(inputs.kv_row_fp8(operand, rank_, owner.sequence, key + row, head).data())
                  : inputs.kv_row(operand, rank_, owner.sequence, key + row, head).data();
          std::memcpy(to, from, row_bytes);
        }
      }
    }
    const Status status =
        world_->device().copy_in(cache.as<std::byte>() + first * page_bytes, chunk.data(), chunk.size(), *stream_);
    if (!status.ok()) return status;
  }
  return {};
}

Status RankRun::fill(Buffers& set, int call) {
  const FlashDecodeDesc& desc = problem_.desc;
  set.call = call;
  set.inputs.emplace(problem_, call);
  const Inputs& inputs = *set.inputs;
  set.host_q = inputs.q(rank_);
  set.host_sinks = inputs.sinks();
  std::vector<std::int32_t> table = inputs.block_table(rank_), lengths;
  for (int sequence = 0; sequence < desc.batch; ++sequence) lengths.push_back(inputs.length(rank_, sequence));
  std::vector<float> k_scale, v_scale;
  for (int head = 0; head < desc.kv_heads; ++head) {
    k_scale.push_back(inputs.kv_scale(Inputs::Operand::kK, rank_, head));
    v_scale.push_back(inputs.kv_scale(Inputs::Operand::kV, rank_, head));
  }
  Status status = fill_cache(inputs, table, Inputs::Operand::kK, set.k);
  if (status.ok()) status = fill_cache(inputs, table, Inputs::Operand::kV, set.v);
  if (rank_ == 0 && call == 0) {  // with this fault the lengths are kFull
    if (config_.wrong == Wrong::kPage) table[table.size() - 1] = desc.pages;
    if (config_.wrong == Wrong::kNegativePage) table[0] = -1;
    if (config_.wrong == Wrong::kLength) lengths.back() = problem_.most_keys() + 1;
  }
  if (status.ok()) status = set.q.upload(set.host_q.data(), set.q.bytes(), *stream_);
  if (status.ok()) status = set.table.upload(table.data(), set.table.bytes(), *stream_);
  if (status.ok()) status = set.lengths.upload(lengths.data(), set.lengths.bytes(), *stream_);
  if (status.ok()) status = set.k_scale.upload(k_scale.data(), set.k_scale.bytes(), *stream_);
  if (status.ok()) status = set.v_scale.upload(v_scale.data(), set.v_scale.bytes(), *stream_);
  if (status.ok()) status = set.sinks.upload(set.host_sinks.data(), set.host_sinks.size() * 4, *stream_);
  return status.ok() ? set.lse.poison(*stream_) : status;
}

// -- calling

FlashDecodeTensors RankRun::tensors() const {
  const bool fp8 = problem_.fp8();
  FlashDecodeTensors tensors;
  tensors.q = set_->q.get();
  tensors.k = set_->k.get();
  tensors.v = set_->v.get();
  tensors.block_table = set_->table.as<std::int32_t>();
  tensors.lengths = set_->lengths.as<std::int32_t>();
  tensors.k_scale = fp8 ? set_->k_scale.as<float>() : nullptr;
  tensors.v_scale = fp8 ? set_->v_scale.as<float>() : nullptr;
  tensors.sinks = problem_.desc.sinks ? set_->sinks.as<float>() : nullptr;
  tensors.out = set_->out.get();
  tensors.lse = config_.lse ? set_->lse.as<float>() : nullptr;
  return tensors;
}

Status RankRun::enqueue() {
  if (harness::submission() == nullptr) return (*op_)(tensors(), *stream_);
  using harness::Argument, harness::ElementType;
  const FlashDecodeDesc& desc = problem_.desc;
  const auto type = harness::element_type(desc.dtype);
  const auto cache_type = problem_.fp8() ? ElementType::kF8 : type;
  const std::vector<std::int64_t> q{desc.batch, desc.query_tokens, desc.query_heads, desc.head_dim};
  const std::vector<std::int64_t> cache =
      desc.layout == KvLayout::kTokensFirst
          ? std::vector<std::int64_t>{desc.pages, desc.page_size, desc.kv_heads, desc.head_dim}
          : std::vector<std::int64_t>{desc.pages, desc.kv_heads, desc.page_size, desc.head_dim};
  std::vector<Argument> inputs{{"q", type, q, {}, set_->q.get()},
                               {"k", cache_type, cache, {}, set_->k.get()},
                               {"v", cache_type, cache, {}, set_->v.get()},
                               {"block_table", ElementType::kI32, {desc.batch, desc.max_pages}, {}, set_->table.get()},
                               {"lengths", ElementType::kI32, {desc.batch}, {}, set_->lengths.get()}};
  if (problem_.fp8()) {
    inputs.push_back({"k_scale", ElementType::kF32, {desc.kv_heads}, {}, set_->k_scale.get()});
    inputs.push_back({"v_scale", ElementType::kF32, {desc.kv_heads}, {}, set_->v_scale.get()});
  }
  if (desc.sinks) inputs.push_back({"sinks", ElementType::kF32, {desc.query_heads}, {}, set_->sinks.get()});
  std::vector<Argument> outputs{{"out", type, q, {}, set_->out.get()}};
  if (config_.lse)
    outputs.push_back(
        {"lse", ElementType::kF32, {desc.batch, desc.query_tokens, desc.query_heads}, {}, set_->lse.get()});
  return harness::submission()->call(*bootstrap_, world_->device(), *stream_, inputs, outputs);
}

Status RankRun::poison() {
  Status status = set_->out.poison(*stream_);
  return status.ok() ? set_->lse.poison(*stream_) : status;
}

Status RankRun::call_once(int call) {
  if (call >= options_.calls) op_->drop_put(0);  // after recover()
  Status status = fill(*set_, call);
  if (status.ok() && call == 0)
    status = harness::apply_fault(options_.fault, rank_, *bootstrap_, world_->device(), *stream_);
  if (status.ok() && config_.graph) status = capture_once(graph_, [this] { return enqueue(); });
  if (!status.ok()) return status;
  status = make_burst(call, config_.burst, config_.delay_us, [this] {
    const Status ready = poison();
    if (!ready.ok()) return ready;
    return graph_ ? world_->device().launch(*graph_, *stream_) : enqueue();
  });
  return status.ok() ? verify() : status;
}

Status RankRun::all_calls() {
  const Status status = make_calls(1, [this](int call) { return call_once(call); });
  graph_.reset();
  return status;
}

// -- verifying

RowProblem RankRun::row_problem(int sequence, int token, int query_head) const {
  const FlashDecodeDesc& desc = problem_.desc;
  const Inputs& inputs = *set_->inputs;
  RowProblem row;
  row.dtype = desc.dtype;
  row.scale = desc.scale;
  const std::size_t at =
      (size(sequence * desc.query_tokens + token) * size(desc.query_heads) + size(query_head)) * size(desc.head_dim);
  for (int i = 0; i < desc.head_dim; ++i) row.q.push_back(harness::decode(desc.dtype, set_->host_q[at + size(i)]));
  if (desc.sinks) row.sink = set_->host_sinks[size(query_head)];
  // The keys of all ranks in turn, or of this one without those that the token does not see.
  std::vector<int> first(size(ranks_)), count(size(ranks_), 0);
  for (int rank = 0; rank < ranks_; ++rank) {
    if (!problem_.shared_keys() && rank != rank_) continue;
    const int end = std::max(0, inputs.length(rank, sequence) - desc.query_tokens + token + 1);
    first[size(rank)] = desc.window > 0 ? std::max(0, end - desc.window) : 0;
    count[size(rank)] = end - first[size(rank)];
    row.seen.count += count[size(rank)];
  }
  const int kv_head = query_head / problem_.group();
  const auto numbers = [&inputs, first, count, sequence, kv_head](Inputs::Operand operand) {
    return [&inputs, first, count, sequence, kv_head, operand](int key, std::span<double> values) {
      std::size_t rank = 0;
      while (key >= count[rank]) key -= count[rank++];
      inputs.kv_values(operand, static_cast<int>(rank), sequence, first[rank] + key, kv_head, values);
      const double scale = inputs.kv_scale(operand, static_cast<int>(rank), kv_head);
      for (double& value : values) value *= scale;
    };
  };
  row.seen.k = numbers(Inputs::Operand::kK);
  row.seen.v = numbers(Inputs::Operand::kV);
  row.seen.is_alone = [count](int key) {
    std::size_t rank = 0;
    while (key >= count[rank]) key -= count[rank++];
    return count[rank] == 1;
  };
  return row;
}

void RankRun::compare_row(int sequence, int token, int query_head, std::span<const std::uint16_t> out, float lse) {
  const FlashDecodeDesc& desc = problem_.desc;
  const RowProblem row = row_problem(sequence, token, query_head);
  const ExpectedRow expected = expected_row(row);
  const std::string where =
      fmt::format("call {}: sequence {}, token {}, head {}", set_->call, sequence, token, query_head);
  if (row.seen.count > 0) {
    findings_.comparison.add(sequence * desc.query_tokens + token, query_head * desc.head_dim, out, expected.out,
                             expected.scale_variance);
  } else if (std::any_of(out.begin(), out.end(), [](std::uint16_t bits) { return (bits & 0x7fff) != 0; })) {
    findings_.difference = where + " sees no key, and its output is not zero";
  }
  if (!config_.lse || !findings_.difference.empty()) return;
  const bool right =
      std::isinf(expected.lse) ? lse == expected.lse : std::abs(lse - expected.lse) <= expected.lse_error;
  if (!right)
    findings_.difference =
        fmt::format("{}: LSE is {}, expected {} +- {}", where, lse, expected.lse, expected.lse_error);
}

/// Every element must be written. Rows are compared with the oracle: all of them, or in large problems as many as take
/// about a second, with one of each (sequence, KV head) first.
Status RankRun::verify() {
  const FlashDecodeDesc& desc = problem_.desc;
  const std::size_t rows = size(desc.batch) * size(desc.query_tokens) * size(desc.query_heads),
                    dim = size(desc.head_dim);
  std::vector<std::uint16_t> out(rows * dim);
  std::vector<float> lse(rows);
  Status status = set_->out.download(out.data(), out.size() * 2, *stream_);
  if (status.ok() && config_.lse) status = set_->lse.download(lse.data(), lse.size() * 4, *stream_);
  if (!status.ok()) return status;
  findings_.comparison.begin_call(set_->call);
  for (std::size_t i = 0; i < out.size() && findings_.difference.empty(); ++i) {
    if (out[i] == harness::kPoison16)
      findings_.difference = fmt::format("call {}: row {}, column {} was not written", set_->call, i / dim, i % dim);
  }
  constexpr std::int64_t kMaxProducts = std::int64_t{1} << 27;
  const RandomStream stream(options_.seed, {99, size(set_->call), size(rank_)});
  std::int64_t products = 0;
  const int group = problem_.group(), in_group = desc.query_tokens * group;
  for (int turn = 0; turn < in_group; ++turn) {
    for (int sequence = 0; sequence < desc.batch; ++sequence) {
      for (int head = 0; head < desc.kv_heads && findings_.difference.empty(); ++head) {
        if (products > kMaxProducts) return {};
        const int start = static_cast<int>(stream.below(size(sequence * desc.kv_heads + head), size(in_group)));
        const int place = (start + turn) % in_group;
        const int token = place / group, query_head = head * group + place % group;
        const std::size_t row = size(sequence * desc.query_tokens + token) * size(desc.query_heads) + size(query_head);
        compare_row(sequence, token, query_head, std::span(out).subspan(row * dim, dim), lse[row]);
        products += std::int64_t{3} * problem_.most_keys() * desc.head_dim * (problem_.shared_keys() ? ranks_ : 1);
      }
    }
  }
  return {};
}

Status RankRun::close(const Status& status) {
  return close_operator(status, [this] { return op_->close(); });
}

}  // namespace farwarp::decode
