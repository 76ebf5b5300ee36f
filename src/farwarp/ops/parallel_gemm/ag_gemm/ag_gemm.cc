#include "farwarp/ops/parallel_gemm/ag_gemm/ag_gemm.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "farwarp/ops/parallel_gemm/ag_gemm/args.h"
#include "farwarp/ops/parallel_gemm/operands.h"
#include "farwarp/world/host/opened_operator.h"

namespace farwarp {

struct AllGatherGemm::State {
  World* world = nullptr;
  AllGatherGemmPlan plan;
  OpenedOperator opened;  ///< has one kernel; buffer 0 is the workspace, buffer 1 the inboxes
  ag_gemm::Args args{};
  bool has_heap_maps = false;

  bool wgmma() const { return world->device().shape().traits.matrix_unit == MatrixUnit::kWgmma; }
  void set_sizes();
  Status encode_all(std::initializer_list<std::pair<TensorMap*, TensorMapDesc>> maps);
  Status encode_heap();
  TensorMapDesc map_of_pieces(void* shard) const;
  Status set_operands(const void* x, const void* w, void* y);
};

void AllGatherGemm::State::set_sizes() {
  args.view = world->view();
  args.slot = opened.slot();
  args.m = plan.local.y_rows;
  args.n = plan.local.w_rows;
  args.k = plan.local.k;
  args.shard_rows = plan.local.x_rows;
  args.last = plan.last_tile(plan.local.y_rows);
  args.comm_blocks = plan.comm_blocks;
  args.sending_warps = plan.sending_warps;
  args.xcds = world->device().shape().xcds;
  args.grid = plan.grid();
  const int own_tile_row = plan.swap_ab ? 0 : world->rank() * plan.local.x_rows / plan.rows;
  args.order = {world->rank(), world->size(), plan.rows_per_shard, own_tile_row, plan.tile_row_count};
  args.pieces = {plan.piece_rows, plan.piece_depth, plan.row_pieces, plan.depth_pieces};
  args.piece_order = ag_gemm::make_piece_order(args.pieces, plan.piece_group, plan.splits);
  args.own_read_directly = plan.own_read_directly ? 1 : 0;
  const auto base = static_cast<std::int64_t>(opened.buffer(0).offset);
  args.gathered = base + plan.gathered;
  args.arrived = base + plan.arrived;
  args.inbox = static_cast<std::int64_t>(opened.buffer(1).offset);
  args.partials = base + plan.partials;
  args.counters = base + plan.counters;
}

Status AllGatherGemm::State::encode_all(std::initializer_list<std::pair<TensorMap*, TensorMapDesc>> maps) {
  for (const auto& [map, desc] : maps) {
    const auto encoded = world->device().encode(desc);
    if (!encoded.ok()) return encoded.status();
    *map = *encoded;
  }
  return {};
}

/// The map of one rank's rows of x for the copies of comm blocks.
TensorMapDesc AllGatherGemm::State::map_of_pieces(void* shard) const {
  return {.base = shard,
          .rows = plan.local.x_rows,
          .columns = plan.local.k,
          .pitch = plan.local.k,
          .box_rows = plan.piece_rows,
          .box_columns = ag_gemm::kBoxDepth,
          .swizzled = false};
}

/// Encodes the maps of heap memory, whose addresses never change. Done at the first call because it may fail on one
/// rank only, while create() must fail on all ranks or on none.
Status AllGatherGemm::State::encode_heap() {
  if (!wgmma() || plan.words || has_heap_maps) return {};
  const std::int64_t k = plan.local.k;
  Status status;
  for (std::uint32_t parity = 0; parity < 2; ++parity) {
    const auto gathered = [&](int rank) { return world->view().heap[rank] + args.gathered_of(parity); };
    std::byte* const x = gathered(world->rank());
    const std::int64_t rows = plan.local.y_rows;
    if (status.ok())
      status = encode_all({{&args.gathered_x[parity], plan.map_of_x(x, rows, k, k)},
                           {&args.gathered_x_last[parity], plan.map_of_last_x(x, rows, k, k, args.last)}});
    for (int rank = 0; rank < world->size() && status.ok(); ++rank) {
      std::byte* const shard = gathered(rank) + world->rank() * plan.local.x_rows * k * 2;
      status = encode_all({{&args.target[parity][rank], map_of_pieces(shard)}});
    }
  }
  has_heap_maps = status.ok();
  return status;
}

/// Encodes the operands' maps again only if an address has changed.
Status AllGatherGemm::State::set_operands(const void* x, const void* w, void* y) {
  if (const Status status = encode_heap(); !status.ok()) return status;
  if (args.own_x == x && args.own_w == w && args.y == y) return {};
  args.own_x = x;
  args.own_w = w;
  args.y = y;
  if (!wgmma()) return {};
  const parallel_gemm::LocalShape& local = plan.local;
  const TensorMapDesc of_y{.base = y,
                           .rows = local.y_rows,
                           .columns = local.y_columns,
                           .pitch = local.y_columns,
                           .box_rows = plan.box_rows(),
                           .box_columns = 64,
                           .swizzled = true};
  const Status status = encode_all({{&args.x, plan.map_of_x(x, local.x_rows, local.k, local.k)},
                                    {&args.x_last, plan.map_of_last_x(x, local.x_rows, local.k, local.k, args.last)},
                                    {&args.w, plan.map_of_w(w, local.w_rows, local.k, local.k)},
                                    {&args.out, of_y},
                                    {&args.source, map_of_pieces(const_cast<void*>(x))}});
  if (!status.ok()) args.own_x = nullptr;  // so that the next call encodes all maps again
  return status;
}

Result<AllGatherGemm> AllGatherGemm::create(World& world, const ParallelGemmDesc& desc) {
  const auto plan = plan_ag_gemm(desc, world.device().shape(), world.size());
  const AllGatherGemmPlan wanted = plan.ok() ? *plan : AllGatherGemmPlan{};
  auto state =
      open_state<State>(world, plan,
                        {.name = "ag-gemm",
                         .site_names = ag_gemm::kSiteNames,
                         .configuration = configuration_of(parallel_gemm::Kind::kAllGather, desc, world.size()),
                         .kernels = {wanted.kernel},
                         .buffers = {{wanted.workspace_heap_bytes, 0}, {wanted.inbox_bytes, 0xff}}});
  if (!state.ok()) return state.status();
  (*state)->set_sizes();
  return AllGatherGemm(std::move(*state));
}

AllGatherGemm::AllGatherGemm(std::unique_ptr<State> state) : state_(std::move(state)) {}
AllGatherGemm::AllGatherGemm(AllGatherGemm&&) noexcept = default;
AllGatherGemm& AllGatherGemm::operator=(AllGatherGemm&&) noexcept = default;
AllGatherGemm::~AllGatherGemm() = default;

Status AllGatherGemm::close() { return close_opened("AllGatherGemm", state_); }

const AllGatherGemmPlan& AllGatherGemm::plan() const {
  static const AllGatherGemmPlan kNone;
  return state_ ? state_->plan : kNone;
}

void AllGatherGemm::drop_put(int number) {
  if (state_) state_->args.drop_put = static_cast<std::uint32_t>(number);
}

Status AllGatherGemm::operator()(const void* x, const void* w, const void* bias, void* y, Stream stream, void* all_x) {
  if (Status open = check_open("AllGatherGemm", state_); !open.ok()) return open;
  State& state = *state_;
  Status status = parallel_gemm::check_operands(state.plan.desc, x, w, bias, y);
  if (status.ok()) status = parallel_gemm::check_returned_x(state.plan.desc, all_x);
  if (status.ok())
    status = parallel_gemm::check_memory(parallel_gemm::Kind::kAllGather, state.plan.desc, state.world->size(), x, w,
                                         bias, y, all_x);
  if (status.ok()) status = state.world->status();
  if (status.ok()) status = state.set_operands(x, w, y);
  if (!status.ok()) return status;
  state.args.bias = bias;
  state.args.all_x = all_x;
  const LaunchConfig config{state.plan.comm_blocks + state.plan.blocks, state.plan.threads,
                            static_cast<std::size_t>(state.plan.shared_bytes), state.plan.cluster};
  return launch(state.world->device(), state.opened.kernel(0), config, state.args, stream);
}

}  // namespace farwarp
