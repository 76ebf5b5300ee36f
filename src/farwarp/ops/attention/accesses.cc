#include "farwarp/ops/attention/accesses.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace farwarp::attention {
namespace {

constexpr int kMaxRows = 1 << 26, kMaxHeads = 1 << 16;

struct Limit {
  const char* name;
  int value;
  int low, high;
};

int rows_of_block(const PrefillShape& shape, int query_block) {
  return std::min(shape.block_m, shape.seq_q - query_block * shape.block_m);
}

/// Of all batches.
int kv_head_of(const PrefillShape& shape, const WorkPlace& place) {
  return place.batch * shape.kv_heads + place.head / (shape.heads / shape.kv_heads);
}

}  // namespace

Status check(const PrefillShape& shape) {
  const Limit limits[] = {{"batch", shape.batch, 1, kMaxHeads},       {"heads", shape.heads, 1, kMaxHeads},
                          {"kv_heads", shape.kv_heads, 1, kMaxHeads}, {"seq_q", shape.seq_q, 1, kMaxRows},
                          {"seq_k", shape.seq_k, 1, kMaxRows},        {"head_dim", shape.head_dim, 1, 1024},
                          {"block_m", shape.block_m, 1, kMaxRows},    {"block_n", shape.block_n, 1, kMaxRows},
                          {"window", shape.window, 0, kMaxRows},      {"element_bytes", shape.element_bytes, 1, 4}};
  for (const Limit& limit : limits) {
    if (limit.value < limit.low || limit.value > limit.high)
      return invalid_argument(
          fmt::format("{} is {}: allowed is {}..{}", limit.name, limit.value, limit.low, limit.high));
  }
  if (shape.heads % shape.kv_heads != 0)
    return invalid_argument(
        fmt::format("kv_heads is {}: allowed are divisors of heads, which is {}", shape.kv_heads, shape.heads));
  if (shape.window > 0 && !shape.causal)
    return invalid_argument(fmt::format("window is {}: allowed is 0 without causal", shape.window));
  const std::int64_t works = std::int64_t{shape.batch} * shape.heads * query_blocks(shape);
  if (works > (1 << 24))
    return invalid_argument(
        fmt::format("batch * heads * query blocks is {}: allowed are at most {} works", works, 1 << 24));
  for (const int rows : {shape.block_m, shape.block_n}) {
    const std::int64_t bytes = std::int64_t{rows} * shape.head_dim * shape.element_bytes;
    if (bytes > (1 << 30))
      return invalid_argument(fmt::format("a tile has {} bytes: allowed are at most {}", bytes, 1 << 30));
  }
  return {};
}

TileRange kv_tiles(const PrefillShape& shape, int query_block) {
  const int all = (shape.seq_k + shape.block_n - 1) / shape.block_n;
  if (!shape.causal) return {0, all};
  const int first_row = query_block * shape.block_m + shape.seq_k - shape.seq_q;
  const int last_row = first_row + rows_of_block(shape, query_block) - 1;
  const int end = last_row < 0 ? 0 : std::min(all, last_row / shape.block_n + 1);
  const int from = shape.window > 0 ? std::max(0, first_row - shape.window + 1) / shape.block_n : 0;
  return {std::min(from, end), end - std::min(from, end)};
}

double flops_of(const PrefillShape& shape) {
  double rows = 0;  // of K, of all query blocks of a head
  for (int query_block = 0; query_block < query_blocks(shape); ++query_block) {
    const TileRange range = kv_tiles(shape, query_block);
    rows += std::min(range.count * shape.block_n, shape.seq_k - range.first * shape.block_n);
  }
  return 4.0 * shape.batch * shape.heads * shape.block_m * rows * shape.head_dim;
}

bool same_sharing(const PrefillShape& shape, Mapping one, Mapping other, bool folded, int xcds) {
  const WorkGrid grid = work_grid(one, folded, shape.batch, shape.heads, query_blocks(shape), xcds);
  const WorkGrid other_grid = work_grid(other, folded, shape.batch, shape.heads, query_blocks(shape), xcds);
  std::vector<int> partner(static_cast<std::size_t>(shape.batch) * static_cast<std::size_t>(shape.kv_heads), -1);
  std::vector<int> partner_of_other = partner;
  for (int work = 0; work < grid.works; ++work) {
    const WorkPlace place = place_of(grid, work), other_place = place_of(other_grid, work);
    const int kv_head = kv_head_of(shape, place), other_kv_head = kv_head_of(shape, other_place);
    int& expected = partner[static_cast<std::size_t>(kv_head)];
    int& other_expected = partner_of_other[static_cast<std::size_t>(other_kv_head)];
    if (expected < 0 && other_expected < 0) {
      expected = other_kv_head;
      other_expected = kv_head;
    }
    if (expected != other_kv_head || other_expected != kv_head) return false;
    const TileRange range = kv_tiles(shape, place.query_block);
    const TileRange other_range = kv_tiles(shape, other_place.query_block);
    if (range.first != other_range.first || range.count != other_range.count) return false;
    if (rows_of_block(shape, place.query_block) != rows_of_block(shape, other_place.query_block)) return false;
  }
  return true;
}

std::int64_t PrefillAccesses::accesses(std::int64_t workgroup) const {
  return 2 + 2 * kv_tiles(shape_, place_of(grid_, static_cast<int>(workgroup)).query_block).count;
}

void PrefillAccesses::read(std::int64_t workgroup, std::int64_t first, std::span<TileAccess> out) const {
  const WorkPlace place = place_of(grid_, static_cast<int>(workgroup));
  const TileRange range = kv_tiles(shape_, place.query_block);
  const int row_bytes = shape_.head_dim * shape_.element_bytes;
  const int rows = rows_of_block(shape_, place.query_block);
  const int kv_head = kv_head_of(shape_, place);
  const int head = place.batch * shape_.heads + place.head;
  const auto kv_objects = static_cast<std::uint32_t>(2 * shape_.batch * shape_.kv_heads);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::int64_t number = first + static_cast<std::int64_t>(i);
    TileAccess& access = out[i];
    if (number == 0 || number > 2 * range.count) {  // Q or O
      access.object = kv_objects + static_cast<std::uint32_t>(2 * head + (number == 0 ? 0 : 1));
      access.tile = static_cast<std::uint32_t>(place.query_block);
      access.bytes = rows * row_bytes;
      access.pitch = shape_.block_m * row_bytes;
      access.write = number != 0;
      access.flops = 0;
      continue;
    }
    const int tile = range.first + static_cast<int>(number - 1) / 2;
    const int kv_rows = std::min(shape_.block_n, shape_.seq_k - tile * shape_.block_n);
    access.object = static_cast<std::uint32_t>(2 * kv_head + (number % 2 == 1 ? 0 : 1));
    access.tile = static_cast<std::uint32_t>(tile);
    access.bytes = kv_rows * row_bytes;
    access.pitch = shape_.block_n * row_bytes;
    access.write = false;
    access.flops = 2.0 * shape_.block_m * kv_rows * shape_.head_dim;
  }
}

std::int64_t PrefillAccesses::tile_bytes() const {
  return std::int64_t{std::max(shape_.block_m, shape_.block_n)} * shape_.head_dim * shape_.element_bytes;
}

}  // namespace farwarp::attention
