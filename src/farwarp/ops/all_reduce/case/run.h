// One rank's run of the check and the bench of the all-reduce.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "farwarp/harness/case.h"
#include "farwarp/harness/contest.h"
#include "farwarp/harness/device_buffer.h"
#include "farwarp/harness/rank_run.h"
#include "farwarp/machine/ceilings.h"
#include "farwarp/ops/all_reduce/all_reduce.h"
#include "farwarp/ops/all_reduce/case/oracle.h"
#include "farwarp/world/host/nccl_group.h"

namespace farwarp::all_reduce {

struct CheckConfig {
  AllReduceDesc desc;
  std::int64_t elements = 0;
  bool varied = false;  ///< calls have different numbers of elements, up to `elements`
  bool in_place = false;
  InputKind inputs = InputKind::kAuto;
  bool graph = false;  ///< each call from a captured graph
  int burst = 1;       ///< calls enqueued without waiting
  int delay_us = 0;    ///< the longest delay of a rank before a call of a burst
};

class RankRun : public harness::RankRun {
 public:
  RankRun(const CheckConfig& config, std::shared_ptr<Bootstrap> bootstrap, const harness::RunOptions& options);

  Status open();
  Status all_calls();
  /// Collective.
  Status close(const Status& status);
  harness::BenchOutcome bench(const harness::BenchOptions& bench_options);

 private:
  int element_bytes() const { return bytes_of(config_.desc.dtype); }
  std::size_t tensor_bytes() const { return static_cast<std::size_t>(config_.elements * element_bytes()); }
  /// Of call number `call`.
  std::int64_t elements_of(int call) const;
  const harness::DeviceBuffer& result() const { return config_.in_place ? in_ : out_; }
  Status fill(int call);
  Status enqueue();
  Status call_once(int call);
  Status verify();
  void compare(const std::vector<std::byte>& got, int times);
  void compare_in_any_order(const std::vector<std::byte>& got, const char* whose);
  // bench.cc
  Status measure(const harness::BenchOptions& bench_options);
  Status open_nccl();
  Status enqueue_nccl();
  Status verify_nccl();
  harness::Floor floor(const Ceilings& ceilings);

  CheckConfig config_;
  Inputs inputs_;
  std::optional<AllReduce> op_;
  harness::DeviceBuffer in_, out_, nccl_out_;
  int call_ = 0;
  std::int64_t elements_ = 0;  ///< of this call
  std::unique_ptr<Graph> graph_;
  std::int64_t graph_elements_ = -1;
  harness::BenchOutcome outcome_;
  std::vector<std::unique_ptr<Graph>> bench_graphs_;
  std::optional<NcclGroup> nccl_;  // the last member, so that it is destroyed before the memory
};

}  // namespace farwarp::all_reduce
