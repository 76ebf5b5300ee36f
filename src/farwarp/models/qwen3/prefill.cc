#include "farwarp/models/qwen3/prefill.h"

#include <algorithm>
#include <utility>

#include "farwarp/base/arguments.h"

namespace farwarp::qwen3 {
namespace {

constexpr int kBlocksOfMultiprocessor = 4;  // more threads would have too few registers for HBM's latency

std::size_t size(std::int64_t value) { return static_cast<std::size_t>(value); }

}  // namespace

Result<Prefill> Prefill::create(World& world, const Qwen3Plan& plan, const Args& model) {
  Prefill prefill(world, plan);
  prefill.args_.model = model;
  Status status = prefill.find_kernels();
  if (status.ok()) status = prefill.allocate();
  if (status.ok()) status = prefill.create_operators();
  if (status.ok()) return prefill;
  (void)prefill.close();  // the first failure is told
  return status;
}

Status Prefill::close() {
  Status status;
  const auto close = [&](auto& opened) {
    const Status closed = opened ? opened->close() : Status();
    opened.reset();
    if (status.ok()) status = closed;
  };
  close(attention_);
  for (std::optional<Gemm>* gemm : {&down_, &gate_up_, &out_, &qkv_}) close(*gemm);
  return status;
}

Status Prefill::find_kernels() {
  for (const auto& [kernel, name] :
       {std::pair{&unpack_, "qwen3_prefill_unpack"}, std::pair{&hidden_, "qwen3_prefill_hidden"},
        std::pair{&heads_, "qwen3_prefill_heads"}, std::pair{&gather_, "qwen3_prefill_gather"},
        std::pair{&activate_, "qwen3_prefill_activate"}}) {
    auto found = world_->device().kernel(name);
    if (!found.ok()) return found.status();
    *kernel = *found;
  }
  return {};
}

Status Prefill::allocate() {
  const Qwen3PrefillPlan& plan = plan_->prefill;
  const Qwen3Config& config = plan_->config;
  const std::int64_t rows = plan.rows, heads = plan.out.k;
  const std::int64_t keys = plan.key_rows * config.kv_heads * config.head_dim;
  const std::pair<std::uint16_t**, std::int64_t> wanted[] = {{&args_.unpacked, plan.unpacked_elements},
                                                             {&args_.x, rows * config.hidden},
                                                             {&args_.normed, rows * config.hidden},
                                                             {&product_, rows * config.hidden},
                                                             {&args_.qkv, rows * plan.qkv.n},
                                                             {&attended_, rows * heads},
                                                             {&args_.gate_up, rows * plan.gate_up.n},
                                                             {&args_.activated, rows * config.intermediate},
                                                             {&args_.keys, keys},
                                                             {&args_.values, keys}};
  for (const auto& [pointer, elements] : wanted) {
    auto created = DeviceMemory::create(world_->device(), size(elements * 2));
    if (!created.ok()) return created.status();
    *pointer = created->as<std::uint16_t>();
    memory_.push_back(std::move(*created));
  }
  auto counts = DeviceMemory::create(world_->device(), 16);
  if (!counts.ok()) return counts.status();
  args_.counts = counts->as<std::int32_t>();
  memory_.push_back(std::move(*counts));
  return {};
}

Status Prefill::create_operators() {
  const Qwen3PrefillPlan& plan = plan_->prefill;
  for (const auto& [gemm, desc] : {std::pair{&qkv_, &plan.qkv}, std::pair{&out_, &plan.out},
                                   std::pair{&gate_up_, &plan.gate_up}, std::pair{&down_, &plan.down}}) {
    auto created = Gemm::create(*world_, *desc);
    if (!created.ok()) return created.status();
    gemm->emplace(std::move(*created));
  }
  auto attention = Attention::create(*world_, plan.attention);
  if (!attention.ok()) return attention.status();
  attention_.emplace(std::move(*attention));
  return {};
}

Status Prefill::launch(const Kernel& kernel, const PrefillArgs& args, std::int64_t units, int of_block, Stream stream) {
  Device& device = world_->device();
  const int all = device.shape().multiprocessors, most = plan_->limits.max_sms;
  const int blocks = kBlocksOfMultiprocessor * (most == 0 ? all : std::min(most, all));
  const std::int64_t wanted = (units + of_block - 1) / of_block;
  const LaunchConfig config{static_cast<int>(std::min<std::int64_t>(wanted, blocks)), kPrefillThreads, 0};
  return farwarp::launch(device, kernel, config, args, stream);
}

Status Prefill::multiply(Gemm& gemm, const PrefillArgs& args, const std::uint16_t* x, std::uint16_t* y, Stream stream) {
  const Status status = launch(unpack_, args, std::int64_t{args.matrix.tiles} * args.matrix.stages, 1, stream);
  return status.ok() ? gemm(x, args.unpacked, nullptr, y, stream) : status;
}

Status Prefill::run(int column, int tokens, Stream stream) {
  Status status;
  for (int first = 0; first < tokens && status.ok(); first += plan_->prefill.rows) {
    PrefillArgs args = args_;
    args.column = column;
    args.first = first;
    args.rows = std::min(plan_->prefill.rows, tokens - first);
    status = run_chunk(args, stream);
  }
  return status;
}

/// The steps of the decoder's graph. The last layer ends with its keys and values: nobody reads what comes after them.
Status Prefill::run_chunk(PrefillArgs args, Stream stream) {
  const Qwen3Config& config = plan_->config;
  const AttentionTensors tensors{.q = args.qkv,
                                 .k = args.keys,
                                 .v = args.values,
                                 .out = attended_,
                                 .query_starts = args.counts,
                                 .key_counts = args.counts + 2};
  const auto hidden = [&] { return launch(hidden_, args, args.rows, warps_of_block(), stream); };
  Status status;
  for (const fleet::Step& step : plan_->graph.steps) {
    if (!status.ok()) return status;
    args.layer = step.layer;
    args.matrix = step.matrix;
    args.weights = step.weights;
    args.norm = step.norm;
    args.product = product_;
    switch (static_cast<Kind>(step.kind)) {
      case Kind::kEmbed:
        args.product = nullptr;
        status = hidden();
        break;
      case Kind::kQkv:
        status = multiply(*qkv_, args, args.normed, args.qkv, stream);
        if (status.ok())
          status = launch(heads_, args, std::int64_t{args.rows} * (config.query_heads + 2 * config.kv_heads),
                          warps_of_block(), stream);
        if (step.layer == config.layers - 1) return status;
        break;
      case Kind::kAttend: {
        const int pages = (args.first + args.rows + kPageKeys - 1) / kPageKeys;
        status = launch(gather_, args, std::int64_t{pages} * config.kv_heads, warps_of_block(), stream);
        if (status.ok()) status = (*attention_)(tensors, stream);
        break;
      }
      case Kind::kOut:
        status = multiply(*out_, args, attended_, product_, stream);
        if (status.ok()) status = hidden();
        break;
      case Kind::kGateUp:
        status = multiply(*gate_up_, args, args.normed, args.gate_up, stream);
        if (status.ok())
          status = launch(activate_, args, std::int64_t{args.rows} * config.intermediate / 4, kPrefillThreads, stream);
        break;
      case Kind::kDown:
        status = multiply(*down_, args, args.activated, product_, stream);
        if (status.ok()) status = hidden();
        break;
      default: break;  // attention's merge has no part here
    }
  }
  return status;
}

}  // namespace farwarp::qwen3
