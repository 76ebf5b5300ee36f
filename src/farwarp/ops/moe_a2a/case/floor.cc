#include "farwarp/ops/moe_a2a/case/floor.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace farwarp::moe {
namespace {

/// Rows of one rank in a dispatch; combine sends a sum for each the other way.
struct Traffic {
  double tokens = 0;
  double sent = 0, received = 0;  ///< over links
  double worked_on = 0;           ///< received, its own included
};

std::vector<Traffic> count_traffic(const MoeAllToAllDesc& desc, std::span<const Routing> routings) {
  const int ranks = static_cast<int>(routings.size());
  std::vector<Traffic> traffic(routings.size());
  for (int source = 0; source < ranks; ++source) {
    const Routing& routing = routings[static_cast<std::size_t>(source)];
    traffic[static_cast<std::size_t>(source)].tokens = routing.tokens;
    for (int token = 0; token < routing.tokens; ++token) {
      unsigned owners = 0;
      for (int j = 0; j < desc.experts_per_token; ++j) {
        const int expert = routing.experts[static_cast<std::size_t>(token * desc.experts_per_token + j)];
        if (expert >= 0) owners |= 1u << moe_rank_of(expert, ranks, desc.num_experts);
      }
      for (int owner = 0; owner < ranks; ++owner) {
        if (!(owners >> owner & 1)) continue;
        traffic[static_cast<std::size_t>(owner)].worked_on += 1;
        if (owner == source) continue;
        traffic[static_cast<std::size_t>(source)].sent += 1;
        traffic[static_cast<std::size_t>(owner)].received += 1;
      }
    }
  }
  return traffic;
}

}  // namespace

harness::Floor floor_of(const MoeAllToAllDesc& desc, std::span<const Routing> routings, const Ceilings& ceilings) {
  const double link = std::max(ceilings.link_all_store_gb_s, ceilings.link_all_bulk_gb_s);
  if (link <= 0) return {};
  const double row_kb = 2e-3 * desc.hidden;  // GB/s are KB/us
  // Size of a dispatched row, in rows of the dtype; sums return in the dtype.
  const double out = desc.fp8_dispatch ? (1 + 4.0 / 128) / 2 : 1;
  double busiest_link = 0, busiest_memory = 0;
  for (const Traffic& rank : count_traffic(desc, routings)) {
    // A link carries both directions at once. Rows that are sent share a direction with the sums of rows that were
    // received.
    busiest_link = std::max(busiest_link, std::max(rank.sent * out + rank.received, rank.received * out + rank.sent));
    // x is read and the result written. Each row is written and read at its owner, and its sum at its source.
    busiest_memory = std::max(
        busiest_memory, 2 * rank.tokens + 2 * out * rank.worked_on + 2 * (rank.sent + rank.worked_on - rank.received));
  }
  const double link_us = busiest_link * row_kb / link;
  const double memory_us = ceilings.hbm_copy_gb_s > 0 ? busiest_memory * row_kb / ceilings.hbm_copy_gb_s : 0;
  const double latency_us = 2 * ceilings.packet_us;
  const bool by_link = link_us >= memory_us;
  return {
      std::max(link_us, memory_us) + latency_us,
      fmt::format("{} {:.1f} us ({:.0f} KB at {:.0f} GB/s), two latencies {:.1f} us; {}", by_link ? "link" : "memory",
                  std::max(link_us, memory_us), (by_link ? busiest_link : busiest_memory) * row_kb,
                  by_link ? link : ceilings.hbm_copy_gb_s, latency_us, ceilings.source)};
}

}  // namespace farwarp::moe
