#include "farwarp/models/qwen3/prefill/prefill.h"

#include <algorithm>
#include <utility>

#include "farwarp/base/sizes.h"

namespace farwarp::qwen3 {
namespace {

constexpr int kBlocksOfMultiprocessor = 4;  // at most

}  // namespace

Status Product::create(World& world, const GemmDesc& of_rank, bool adds_ranks) {
  if (adds_ranks && world.size() > 1) {
    auto created = GemmAllReduce::create(world, over_ranks(of_rank, world.size()));
    if (created.ok()) together_.emplace(std::move(*created));
    return created.status();
  }
  auto created = Gemm::create(world, of_rank);
  if (created.ok()) alone_.emplace(std::move(*created));
  return created.status();
}

Status Product::close() {
  Status status = alone_ ? alone_->close() : together_ ? together_->close() : Status();
  alone_.reset();
  together_.reset();
  return status;
}

Status Product::operator()(const void* x, const void* w, void* y, Stream stream) {
  return together_ ? (*together_)(x, w, nullptr, y, stream) : (*alone_)(x, w, nullptr, y, stream);
}

Status Products::create(World& world, const Qwen3PrefillProducts& plan) {
  rows = plan.rows;
  Status status = qkv.create(world, plan.qkv, false);
  if (status.ok()) status = gate_up.create(world, plan.gate_up, false);
  if (status.ok()) status = out.create(world, plan.out, true);
  if (status.ok()) status = down.create(world, plan.down, true);
  return status;
}

Status Products::close() {
  Status status;
  for (Product* product : {&down, &out, &gate_up, &qkv}) {
    const Status closed = product->close();
    if (status.ok()) status = closed;
  }
  return status;
}

Result<Prefill> Prefill::create(World& world, const Qwen3Plan& plan, std::vector<Kernel> kernels, const Args& model,
                                Stream stream) {
  Prefill prefill(world, plan, std::move(kernels));
  prefill.args_.model = model;
  Status status = prefill.create_operators();
  if (status.ok()) status = prefill.count_blocks();
  if (status.ok()) status = prefill.allocate(stream);
  if (status.ok()) return prefill;
  (void)prefill.close();  // the first failure is told
  return status;
}

Status Prefill::close() {
  Status status = attention_ ? attention_->close() : Status();
  attention_.reset();
  for (Products& products : products_) {
    const Status closed = products.close();
    if (status.ok()) status = closed;
  }
  products_.clear();
  return status;
}

/// Rows that no token has stay finite: they are multiplied, too.
Status Prefill::allocate(Stream stream) {
  const Qwen3PrefillPlan& plan = plan_->prefill;
  const Qwen3Config& config = plan_->config;
  const Qwen3PrefillProducts& whole = plan.products.front();
  const std::int64_t rows = plan.rows, heads = whole.out.k;
  const std::int64_t keys = plan.key_rows * plan_->kv_heads * config.head_dim;
  const std::pair<std::uint16_t**, std::int64_t> wanted[] = {{&args_.unpacked, plan.unpacked_elements},
                                                             {&args_.x, rows * config.hidden},
                                                             {&args_.normed, rows * config.hidden},
                                                             {&product_, rows * config.hidden},
                                                             {&args_.qkv, rows * whole.qkv.n},
                                                             {&attended_, rows * heads},
                                                             {&args_.gate_up, rows * whole.gate_up.n},
                                                             {&args_.activated, rows * whole.down.k},
                                                             {&args_.keys, keys},
                                                             {&args_.values, keys}};
  for (const auto& [pointer, elements] : wanted) {
    auto created = DeviceMemory::create(world_->device(), size(elements * 2));
    if (!created.ok()) return created.status();
    *pointer = created->as<std::uint16_t>();
    memory_.push_back(std::move(*created));
    if (Status status = world_->device().fill(*pointer, 0, size(elements * 2), stream); !status.ok()) return status;
  }
  auto counts = DeviceMemory::create(world_->device(), 16);
  if (!counts.ok()) return counts.status();
  args_.counts = counts->as<std::int32_t>();
  memory_.push_back(std::move(*counts));
  return {};
}

Status Prefill::create_operators() {
  const Qwen3PrefillPlan& plan = plan_->prefill;
  for (const Qwen3PrefillProducts& products : plan.products) {
    if (Status status = products_.emplace_back().create(*world_, products); !status.ok()) return status;
  }
  auto attention = Attention::create(*world_, plan.attention);
  if (!attention.ok()) return attention.status();
  attention_.emplace(std::move(*attention));
  return {};
}

/// Blocks of each kernel that a multiprocessor is given.
Status Prefill::count_blocks() {
  for (const Kernel& kernel : kernels_) {
    const auto resident = world_->device().blocks_per_multiprocessor(kernel, kPrefillThreads, 0);
    if (!resident.ok()) return resident.status();
    blocks_.push_back(std::clamp(*resident, 1, kBlocksOfMultiprocessor));
  }
  return {};
}

Status Prefill::launch(KernelNumber kernel, const PrefillArgs& args, std::int64_t units, int of_block, Stream stream) {
  Device& device = world_->device();
  const int all = device.shape().multiprocessors, most = plan_->limits.max_sms;
  const int blocks = blocks_[kernel] * (most == 0 ? all : std::min(most, all));
  const std::int64_t wanted = (units + of_block - 1) / of_block;
  const LaunchConfig config{static_cast<int>(std::clamp<std::int64_t>(wanted, 1, blocks)), kPrefillThreads, 0};
  return farwarp::launch(device, kernels_[kernel], config, args, stream);
}

Status Prefill::multiply(Product& product, const PrefillArgs& args, const std::uint16_t* x, std::uint16_t* y,
                         Stream stream) {
  const Status status = launch(kUnpack, args, std::int64_t{args.matrix.tiles} * args.matrix.slices, 1, stream);
  return status.ok() ? product(x, args.unpacked, y, stream) : status;
}

Status Prefill::run(int column, int tokens, Stream stream) {
  PrefillArgs args = args_;
  args.column = column;
  args.prompt = tokens;
  Status status;
  do {
    args.rows = std::min(plan_->prefill.rows, tokens - 1 - args.first);
    status = run_chunk(args, stream);
    args.first += args.rows;
  } while (status.ok() && args.first < tokens - 1);
  return status;
}

Products& Prefill::products_for(int rows) {
  return *std::find_if(products_.rbegin(), products_.rend(),
                       [rows](const Products& products) { return products.rows >= rows; });
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
  const auto hidden = [&] { return launch(kHidden, args, args.rows, warps_of_block(), stream); };
  Products& products = products_for(args.rows);
  Status status;
  for (const fleet::Step& step : plan_->graph.steps) {
    if (!status.ok()) return status;
    args.layer = step.layer;
    args.matrix = step.matrix;
    args.weights = step.weights;
    args.norm = step.out_norm;
    args.product = product_;
    switch (static_cast<Kind>(step.kind)) {
      case Kind::kEmbed:
        args.product = nullptr;
        status = hidden();
        if (args.rows == 0) return status;  // a prompt of one token
        break;
      case Kind::kQkv:
        status = multiply(products.qkv, args, args.normed, args.qkv, stream);
        if (status.ok())
          status = launch(kHeads, args, std::int64_t{args.rows} * (plan_->query_heads + 2 * plan_->kv_heads),
                          warps_of_block(), stream);
        if (step.layer == config.layers - 1) return status;
        break;
      case Kind::kAttend: {
        const int pages = (args.first + args.rows + kPageKeys - 1) / kPageKeys;
        status = launch(kGather, args, std::int64_t{pages} * plan_->kv_heads, warps_of_block(), stream);
        if (status.ok()) status = (*attention_)(tensors, stream);
        break;
      }
      case Kind::kOut:
        status = multiply(products.out, args, attended_, product_, stream);
        if (status.ok()) status = hidden();
        break;
      case Kind::kGateUp:
        status = multiply(products.gate_up, args, args.normed, args.gate_up, stream);
        if (status.ok())
          status = launch(kActivate, args, std::int64_t{args.rows} * plan_->intermediate / 4, kPrefillThreads, stream);
        break;
      case Kind::kDown:
        status = multiply(products.down, args, args.activated, product_, stream);
        if (status.ok()) status = hidden();
        break;
      default: break;  // attention's merge has no part here
    }
  }
  return status;
}

}  // namespace farwarp::qwen3
