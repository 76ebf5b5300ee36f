// The bench of moe_layer.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <span>

#include "farwarp/harness/floors.h"
#include "farwarp/ops/gemm/case/product_floor.h"
#include "farwarp/ops/moe_layer/case/run.h"

namespace farwarp::moe_layer {

using harness::Contender;

harness::BenchOutcome RankRun::bench(const harness::BenchOptions& bench_options) {
  outcome_.no_baseline = "no library here has a fused MoE layer; unfused=1 times dispatch, products and combine";
  Status status = open();
  if (status.ok()) status = fill(sets_[0], 0);
  if (status.ok()) status = measure(bench_options);
  if (status.ok())
    harness::set_floors(outcome_, world_->device().model(), ranks_,
                        [this](const Ceilings& ceilings) { return floor(ceilings); });
  if (op_) outcome_.plan = op_->plan().to_string();
  if (timer_ && status.ok()) status = timer_->close();
  graphs_.clear();
  outcome_.check = outcome(close(status));
  return std::move(outcome_);
}

Status RankRun::measure(const harness::BenchOptions& bench_options) {
  auto timer = harness::DeviceTimer::create(*world_, *stream_);
  if (!timer.ok()) return timer.status();
  timer_.emplace(std::move(*timer));
  CallBuffers& set = sets_[0];
  harness::Contest contest(
      *world_, *stream_, *timer_, bench_options.samples, 1, [](int) {}, [&](bool) { return set.out.poison(*stream_); });
  std::vector<harness::Work> works = {[&] { return (*op_)(tensors_of(set), *stream_); }};
  std::vector<std::string> names = {"moe_layer"};
  if (config_.unfused) {
    works.push_back([&] { return unfused_.enqueue(tensors_of(set), unfused_out_.get(), *stream_); });
    names.push_back("without fusion");
  }
  std::vector<Contender> contenders;
  for (std::size_t i = 0; i < works.size(); ++i) {
    auto captured = contest.capture(works[i]);
    if (!captured.ok()) return captured.status();
    for (auto& graph : *captured) graphs_.push_back(std::move(graph));
  }
  const std::size_t of_each = graphs_.size() / works.size();
  for (std::size_t i = 0; i < works.size(); ++i) {
    contenders.push_back({names[i], works[i], true});
    contenders.push_back({names[i] + ", graph",
                          [this, at = i * of_each] { return world_->device().launch(*graphs_[at], *stream_); }, true,
                          true});
  }
  auto measured = contest.in_turn(contenders);
  if (!measured.ok()) return measured.status();
  outcome_.measurements = std::move(*measured);
  for (std::size_t i = 0; i < works.size(); ++i)
    outcome_.measurements[2 * i].graph_us = outcome_.measurements[2 * i + 1].time_us.median;
  for (std::size_t i = 0; i < contenders.size(); ++i) {
    const auto train_us = contest.in_train(contenders[i]);
    if (!train_us.ok()) return train_us.status();
    outcome_.measurements[i].back_to_back_us = *train_us;
  }
  // Contenders with other outputs were the last to run.
  Status status = set.out.poison(*stream_);
  if (status.ok()) status = works[0]();
  if (status.ok()) status = wait(patience());
  if (status.ok()) status = verify(set);
  return status.ok() && config_.unfused ? verify_unfused(set) : status;
}

/// The busiest rank's. Memory reads the weights of each expert that has rows; flops are of all rows; a link carries a
/// row to each other rank that has a token's experts, and as many sums back.
harness::Floor RankRun::floor(const Ceilings& ceilings) const {
  const MoeLayerDesc& desc = config_.desc;
  double most_gigaflops = 0, most_megabytes = 0, most_sent = 0;
  for (int rank = 0; rank < ranks_; ++rank) {
    std::vector<bool> used(static_cast<std::size_t>(desc.num_experts));
    double rows = 0, sent = 0, received = 0;
    for (int source = 0; source < ranks_; ++source) {
      const moe::Routing& routing = sets_[0].routings[static_cast<std::size_t>(source)];
      const std::size_t k = static_cast<std::size_t>(desc.experts_per_token);
      for (std::size_t first = 0; first < routing.experts.size(); first += k) {
        std::uint32_t owners = 0;
        for (const std::int32_t expert : std::span(routing.experts).subspan(first, k)) {
          if (expert < 0) continue;
          const int owner = moe_rank_of(expert, ranks_, desc.num_experts);
          owners |= 1u << owner;
          if (owner != rank) continue;
          ++rows;
          used[static_cast<std::size_t>(expert)] = true;
        }
        if (source == rank) sent += std::popcount(owners & ~(1u << rank));
        if (source != rank) received += static_cast<double>(owners >> rank & 1);
      }
    }
    const double matrix = static_cast<double>(desc.hidden) * desc.intermediate;
    const auto experts = static_cast<double>(std::ranges::count(used, true));
    most_gigaflops = std::max(most_gigaflops, 6e-9 * rows * matrix);
    most_megabytes = std::max(most_megabytes, 1e-6 * 2 * (3 * experts * matrix + 2.0 * desc.max_tokens * desc.hidden));
    most_sent = std::max(most_sent, sent + received);
  }
  const harness::Floor floor = gemm::product_floor(ceilings, most_gigaflops, most_megabytes, false);
  const double link = std::max(ceilings.link_all_store_gb_s, ceilings.link_all_bulk_gb_s);
  const double link_us = link > 0 ? 2e-3 * most_sent * desc.hidden / link : 0;
  if (link_us <= floor.us) return floor;
  return {link_us,
          fmt::format("link ({:.0f} KB at {:.0f} GB/s); {}", 2e-3 * most_sent * desc.hidden, link, ceilings.source)};
}

}  // namespace farwarp::moe_layer
