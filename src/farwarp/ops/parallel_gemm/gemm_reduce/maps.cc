#include "farwarp/ops/parallel_gemm/gemm_reduce/maps.h"

#include <algorithm>
#include <utility>

namespace farwarp::gemm_reduce {
namespace {

/// The map of [owned, n] at `base`, for boxes of a band's rows.
Result<TensorMap> encode_rows(const Args& args, Device& device, void* base) {
  return device.encode({.base = base,
                        .rows = args.bands.owned,
                        .columns = args.n,
                        .pitch = args.n,
                        .box_rows = std::min(args.bands.rows, 64),
                        .box_columns = 64,
                        .swizzled = true});
}

Status encode_inboxes(Args& args, const Plan& plan, Device& device) {
  if (plan.fetched) {
    const auto map = encode_rows(args, device, args.view.heap[args.view.rank] + args.offsets.inbox);
    if (map.ok()) args.parts_map = *map;
    return map.status();
  }
  for (int owner = 0; owner < plan.ranks; ++owner) {
    const std::int64_t mine = std::int64_t{args.view.rank} * args.bands.owned * args.n * 2;
    const auto map = encode_rows(args, device, args.view.heap[owner] + args.offsets.inbox + mine);
    if (!map.ok()) return map.status();
    args.inbox_maps[owner] = *map;
  }
  return {};
}

}  // namespace

void set_sizes(Args& args, const Plan& plan, World& world, const OpenedOperator& opened) {
  const auto local = local_shape(parallel_gemm::Kind::kReduceScatter, plan.desc, plan.ranks);
  args.view = world.view();
  args.slot = opened.slot();
  args.m = args.x_rows = local.x_rows;
  args.n = local.w_rows;
  args.k = local.k;
  args.xcds = world.device().shape().xcds;
  args.grid = plan.grid();
  args.order = plan.row_order(world.rank());
  args.bands = plan.bands;
  args.word_inbox = plan.word_inbox;
  args.word_inbox.at = static_cast<std::int64_t>(opened.buffer(1).offset);
  args.offsets = plan.workspace;
  for (std::int64_t* offset : {&args.offsets.inbox, &args.offsets.flags, &args.offsets.ready_cells,
                               &args.offsets.partials, &args.offsets.counters})
    *offset += static_cast<std::int64_t>(opened.buffer(0).offset);
}

Status encode_y(Args& args, Device& device, void* y) {
  const auto map = encode_rows(args, device, y);
  if (map.ok()) args.y_map = *map;
  return map.status();
}

Status Maps::encode(Args& args, const Plan& plan, Device& device, const void* x, const void* w) {
  if (device.shape().traits.matrix_unit == MatrixUnit::kWgmma && plan.word_inbox.rows == 0 && !has_inboxes_) {
    if (const Status status = encode_inboxes(args, plan, device); !status.ok()) return status;
    has_inboxes_ = true;
  }
  if (args.x == x && args.w == w) return {};
  args.x = x;
  args.w = w;
  if (device.shape().traits.matrix_unit != MatrixUnit::kWgmma) return {};
  auto a = device.encode(plan.map_of_x(x, args.x_rows, args.k, args.k));
  auto b = device.encode(plan.map_of_w(w, args.n, args.k, args.k));
  args.last = plan.last_tile(args.x_rows);
  auto last = device.encode(plan.map_of_last_x(x, args.x_rows, args.k, args.k, args.last));
  for (const auto* map : {&a, &b, &last}) {
    if (map->ok()) continue;
    args.x = nullptr;  // the next call sets all of them again
    return map->status();
  }
  if (plan.swap_ab) std::swap(a, b);
  args.a = *a;
  args.a_last = *last;
  args.b = *b;
  return {};
}

}  // namespace farwarp::gemm_reduce
