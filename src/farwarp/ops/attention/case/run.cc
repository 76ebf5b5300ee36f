#include "farwarp/ops/attention/case/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "farwarp/base/sizes.h"
#include "farwarp/harness/inputs.h"
#include "farwarp/harness/submission.h"

namespace farwarp::attention {
namespace {

using harness::DeviceBuffer;

constexpr std::uint16_t kNan = 0x7fff;   // what lies in no row that a sequence has
constexpr std::int64_t kGuardRows = 64;  // before and after out and lse: nothing may write them
constexpr std::int64_t kChunkElements = 32 << 20;

}  // namespace

// -- preparing

Status RankRun::open(int sets) {
  AttentionDesc& desc = config_.desc;
  if (config_.row_gap > 0) {
    desc.q_pitch = desc.out_pitch = pitch(desc.heads);
    desc.k_pitch = desc.v_pitch = pitch(desc.kv_heads);
  }
  const AttentionDesc asked = desc;
  const auto device = Device::open(options_.target, rank_);
  if (!device.ok()) return device.status();
  // A descriptor that is not allowed is refused before anything is sized by it.
  AttentionDesc sized = asked;
  sized.pages = sized.page_size > 0 ? 1 : 0;
  const auto plan = plan_attention(sized, (*device)->shape());
  if (!plan.ok()) return plan.status();
  desc = Sequences(asked, config_.lengths, options_.seed, 0, config_.given).desc();
  if (Status status = open_world(plan->workspace_bytes); !status.ok()) return status;
  auto op = Attention::create(*world_, desc);
  if (!op.ok()) return op.status();
  op_.emplace(std::move(*op));
  sets_.resize(size(sets));
  set_ = sets_.data();
  for (Buffers& set : sets_) {
    if (Status status = allocate(set); !status.ok()) return status;
  }
  return {};
}

std::int64_t RankRun::lse_elements() const {
  const AttentionDesc& desc = config_.desc;
  return desc.heads *
         (desc.ragged_queries ? std::int64_t{desc.total_queries} : std::int64_t{desc.batch} * desc.max_queries);
}

Status RankRun::allocate(Buffers& set) {
  const AttentionDesc& desc = config_.desc;
  const Sequences sequences(desc, config_.lengths, options_.seed, 0, config_.given);
  const std::int64_t q_bytes = 2 * sequences.query_rows() * pitch(desc.heads);
  const std::int64_t kv_bytes = 2 * sequences.key_rows() * pitch(desc.kv_heads);
  const std::int64_t starts = 4 * (std::int64_t{desc.batch} + 1);
  return harness::create_buffers(world_->device(),
                                 {{&set.q, size(q_bytes)},
                                  {&set.k, size(kv_bytes)},
                                  {&set.v, size(kv_bytes)},
                                  {&set.out, size(q_bytes + 4 * kGuardRows * pitch(desc.heads))},
                                  {&set.lse, size(desc.has_lse ? 4 * (lse_elements() + 2 * kGuardRows) : 0)},
                                  {&set.sinks, size(desc.has_sinks ? std::int64_t{4} * desc.heads : 0)},
                                  {&set.query_starts, size(desc.ragged_queries ? starts : 0)},
                                  {&set.key_starts, size(desc.ragged_keys ? starts : 0)},
                                  {&set.key_counts, size(desc.has_key_counts ? starts : 0)},
                                  {&set.block_table, 4 * sequences.block_table().size()}});
}

/// Rows of no sequence, and elements between rows, are NaNs.
Status RankRun::upload_rows(const DeviceBuffer& to, const std::vector<Sequences::Owner>& owners, int heads,
                            const FillRow& fill_row) {
  const std::int64_t row_size = pitch(heads), all = static_cast<std::int64_t>(owners.size());
  const std::int64_t in_chunk = std::max<std::int64_t>(1, kChunkElements / row_size);
  std::vector<std::uint16_t> rows;
  for (std::int64_t first = 0; first < all; first += in_chunk) {
    const std::int64_t count = std::min(in_chunk, all - first);
    rows.assign(size(count * row_size), kNan);
    for (std::int64_t i = 0; i < count; ++i) {
      const Sequences::Owner& owner = owners[size(first + i)];
      for (int head = 0; head < heads && owner.b >= 0; ++head) {
        fill_row(owner, head,
                 std::span(rows).subspan(size(i * row_size + std::int64_t{head} * config_.desc.head_dim),
                                         size(config_.desc.head_dim)));
      }
    }
    Status status =
        world_->device().copy_in(to.as<std::uint16_t>() + first * row_size, rows.data(), rows.size() * 2, *stream_);
    if (!status.ok()) return status;
  }
  return {};
}

Status RankRun::fill(Buffers& set, int call) {
  set.call = call;
  const Sequences sequences(config_.desc, config_.lengths, options_.seed, call, config_.given);
  const auto salt = static_cast<std::uint64_t>(call) << 8 | static_cast<std::uint64_t>(rank_);
  set.inputs.emplace(sequences, kind_in_call(config_.inputs, config_.desc, call), options_.seed, salt);
  const Inputs& inputs = *set.inputs;
  const AttentionDesc& desc = config_.desc;
  std::vector<float> sinks;
  for (int head = 0; head < desc.heads && desc.has_sinks; ++head) sinks.push_back(inputs.sink(head));
  Status status = set.sinks.upload(sinks.data(), sinks.size() * 4, *stream_);
  for (const auto& [buffer, words] :
       {std::pair{&set.query_starts, sequences.query_starts()}, std::pair{&set.key_starts, sequences.key_starts()},
        std::pair{&set.key_counts, sequences.key_counts()}, std::pair{&set.block_table, sequences.block_table()}}) {
    if (status.ok()) status = buffer->upload(words.data(), words.size() * 4, *stream_);
  }
  if (status.ok())
    status = upload_rows(set.q, sequences.query_owners(), desc.heads,
                         [&](const auto& owner, int head, auto row) { inputs.query(owner.b, head, owner.row, row); });
  const auto key_owners = sequences.key_owners();
  if (status.ok())
    status = upload_rows(set.k, key_owners, desc.kv_heads,
                         [&](const auto& owner, int head, auto row) { inputs.key(owner.b, head, owner.row, row); });
  if (status.ok())
    status = upload_rows(set.v, key_owners, desc.kv_heads, [&](const auto& owner, int head, auto row) {
      std::ranges::copy(inputs.value(owner.b, head, owner.row), row.begin());
    });
  if (status.ok() && desc.has_lse) status = set.lse.poison(*stream_);
  return status.ok() ? set.out.poison(*stream_) : status;
}

// -- calling

AttentionTensors RankRun::tensors() const {
  const AttentionDesc& desc = config_.desc;
  AttentionTensors tensors;
  tensors.q = set_->q.get();
  tensors.k = set_->k.get();
  tensors.v = set_->v.get();
  tensors.out = set_->out.as<std::uint16_t>() + kGuardRows * pitch(desc.heads);
  if (desc.has_lse) tensors.lse = set_->lse.as<float>() + kGuardRows;
  tensors.sinks = set_->sinks.as<float>();
  tensors.query_starts = set_->query_starts.as<std::int32_t>();
  tensors.key_starts = set_->key_starts.as<std::int32_t>();
  tensors.key_counts = set_->key_counts.as<std::int32_t>();
  tensors.block_table = set_->block_table.as<std::int32_t>();
  return tensors;
}

Status RankRun::enqueue() {
  return harness::submission() != nullptr ? enqueue_submission() : (*op_)(tensors(), *stream_);
}

/// The shapes are those of AttentionTensors.
Status RankRun::enqueue_submission() {
  using harness::Argument, harness::ElementType;
  using Shape = std::vector<std::int64_t>;
  const AttentionDesc& desc = config_.desc;
  const AttentionTensors all = tensors();
  const Sequences& sequences = set_->inputs->sequences();
  const auto type = harness::element_type(desc.dtype);
  const std::int64_t q_rows = sequences.query_rows(), k_rows = sequences.key_rows();
  const Shape q = desc.ragged_queries ? Shape{q_rows, desc.heads, desc.head_dim}
                                      : Shape{desc.batch, desc.max_queries, desc.heads, desc.head_dim};
  Shape k{desc.batch, desc.max_keys, desc.kv_heads, desc.head_dim};
  if (desc.ragged_keys) k = {k_rows, desc.kv_heads, desc.head_dim};
  if (desc.page_size > 0) k = {k_rows / desc.page_size, desc.page_size, desc.kv_heads, desc.head_dim};
  const Shape lse = desc.ragged_queries ? Shape{desc.heads, q_rows} : Shape{desc.batch, desc.heads, desc.max_queries};
  std::vector<Argument> inputs{
      {"q", type, q, {}, set_->q.get()}, {"k", type, k, {}, set_->k.get()}, {"v", type, k, {}, set_->v.get()}};
  if (desc.has_sinks) inputs.push_back({"sinks", ElementType::kF32, {desc.heads}, {}, set_->sinks.get()});
  const auto words = [&](const char* name, bool wanted, const Shape& shape, const DeviceBuffer& buffer) {
    if (wanted) inputs.push_back({name, ElementType::kI32, shape, {}, buffer.get()});
  };
  words("query_starts", desc.ragged_queries, {desc.batch + 1}, set_->query_starts);
  words("key_starts", desc.ragged_keys, {desc.batch + 1}, set_->key_starts);
  words("key_counts", desc.has_key_counts, {desc.batch}, set_->key_counts);
  words("block_table", desc.page_size > 0, {desc.batch, op_->plan().table_pitch()}, set_->block_table);
  std::vector<Argument> outputs{{"out", type, q, {}, all.out}};
  if (desc.has_lse) outputs.push_back({"lse", ElementType::kF32, lse, {}, all.lse});
  return harness::submission()->call(*bootstrap_, world_->device(), *stream_, inputs, outputs);
}

Status RankRun::all_calls() {
  std::unique_ptr<Graph> graph;
  return make_calls(0, [&](int call) {
    Status status = fill(*set_, call);
    if (status.ok() && config_.graph) status = capture_once(graph, [this] { return enqueue(); });
    if (status.ok()) status = graph ? world_->device().launch(*graph, *stream_) : enqueue();
    if (status.ok()) status = wait(patience());
    return status.ok() ? verify() : status;
  });
}

// -- verifying

/// The first element that should have been written and was not, or the reverse. `out` and `lse` with their guards.
std::string RankRun::unwritten(const Sequences& sequences, std::span<const std::uint16_t> out,
                               std::span<const float> lse) const {
  const AttentionDesc& desc = config_.desc;
  const std::int64_t row_size = pitch(desc.heads), used = std::int64_t{desc.heads} * desc.head_dim;
  const auto owners = sequences.query_owners();
  const auto poisoned = [](std::uint16_t bits) { return bits == harness::kPoison16; };
  for (std::int64_t row = -kGuardRows; row < static_cast<std::int64_t>(owners.size()) + kGuardRows; ++row) {
    const auto elements = out.subspan(size((row + kGuardRows) * row_size), size(row_size));
    const bool in_tensor = row >= 0 && row < static_cast<std::int64_t>(owners.size());
    const auto in_row = elements.first(in_tensor ? size(used) : 0), outside = elements.subspan(in_row.size());
    if (const auto bad = std::ranges::find_if(in_row, poisoned); bad != in_row.end())
      return fmt::format("out[{}, {}] was not written", row, bad - in_row.begin());
    if (const auto bad = std::ranges::find_if_not(outside, poisoned); bad != outside.end())
      return fmt::format("out[{}, {}] lies outside the tensor and was written", row,
                         static_cast<std::int64_t>(in_row.size()) + (bad - outside.begin()));
  }
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(lse.size()); ++i) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, &lse[size(i)], 4);
    const std::int64_t element = i - kGuardRows;
    const bool in_tensor = element >= 0 && element < lse_elements();
    if ((bits == 0xffff'ffffu) == in_tensor)
      return fmt::format("lse[{}] {}", element,
                         in_tensor ? "was not written" : "lies outside the tensor and was written");
  }
  return {};
}

Status RankRun::verify() {
  const AttentionDesc& desc = config_.desc;
  const Inputs& inputs = *set_->inputs;
  std::vector<std::uint16_t> out(set_->out.bytes() / 2);
  std::vector<float> lse(set_->lse.bytes() / 4);
  Status status = set_->out.download(out.data(), out.size() * 2, *stream_);
  if (status.ok()) status = set_->lse.download(lse.data(), lse.size() * 4, *stream_);
  if (!status.ok() || !findings_.difference.empty()) return status;
  std::string wrong = unwritten(inputs.sequences(), out, lse);
  if (wrong.empty()) {
    const Output output{
        std::span<const std::uint16_t>(out).subspan(size(kGuardRows * pitch(desc.heads))), pitch(desc.heads),
        desc.has_lse ? std::span<const float>(lse).subspan(size(kGuardRows)) : std::span<const float>()};
    const bool exact = inputs.kind() == InputKind::kMean || inputs.kind() == InputKind::kNeedle;
    findings_.comparison.begin_call(set_->call);
    wrong = exact ? exact_difference(inputs, output, set_->call)
                  : compare_rows(inputs, output, set_->call, findings_.comparison);
  }
  if (!wrong.empty()) findings_.difference = fmt::format("call {}: {}", set_->call, wrong);
  return {};
}

Status RankRun::close(const Status& status) {
  return close_operator(status, [this] { return op_->close(); });
}

}  // namespace farwarp::attention
