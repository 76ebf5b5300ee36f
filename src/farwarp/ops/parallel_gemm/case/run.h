// One rank's run of the check of a parallel product.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "farwarp/harness/case.h"
#include "farwarp/harness/compare.h"
#include "farwarp/harness/device_buffer.h"
#include "farwarp/harness/rank_run.h"
#include "farwarp/ops/gemm/case/oracle.h"
#include "farwarp/ops/parallel_gemm/case/inputs.h"
#include "farwarp/ops/parallel_gemm/case/operator.h"

namespace farwarp::parallel_gemm {

struct CheckConfig {
  CaseKind kind;
  ParallelGemmDesc desc;
  Path path = Path::kOwn;
  gemm::InputKind inputs = gemm::InputKind::kAuto;
  bool graph = false;  ///< each call from a captured graph
  int burst = 1;       ///< calls enqueued without waiting
  int repeat = 1;      ///< how often a burst is made, with the same inputs and other delays
  std::uint64_t longest_delay_ns = 0;
};

using harness::Findings;

class RankRun : public harness::RankRun {
 public:
  RankRun(const CheckConfig& config, std::shared_ptr<Bootstrap> bootstrap, const harness::RunOptions& options);
  virtual ~RankRun() = default;

  /// Allocates `sets` sets of inputs and outputs.
  Status open(int sets);
  /// The calls of the check. After an injected fault that a World can survive, also recover() and one more call.
  Status all_calls();
  /// Collective.
  Status close(const Status& status);
  harness::CheckOutcome outcome(const Status& status) const;

 protected:
  /// What one call reads and writes.
  struct Buffers {
    harness::DeviceBuffer x, w, bias, y, all_x;
    std::unique_ptr<Graph> graph;
    std::vector<std::uint16_t> first;  ///< y of the first repetition
  };

  Status create_world();
  virtual Result<std::int64_t> heap_bytes(const Device& device, const ParallelGemmDesc& desc) const;
  Result<std::unique_ptr<CaseOperator>> create(const ParallelGemmDesc& desc);
  Status create_operator();
  Status provoke_mismatch();
  Status allocate_buffers(int sets);
  Status fill(Buffers& set, int call);
  Status upload_rows(const harness::DeviceBuffer& buffer, Operand operand, int call, int rows, int columns);
  Status burst(int first, int count);
  Status inject_fault();
  Status enqueue(const Buffers& set);
  Status launch(Buffers& set);
  std::chrono::nanoseconds patience_for_burst() const;
  Status verify(const harness::DeviceBuffer& y, int call, int roundings, Findings& findings,
                std::vector<std::uint16_t>& got);
  void* all_x_of(const Buffers& set) const { return config_.desc.return_x ? set.all_x.get() : nullptr; }
  Status poison(const Buffers& set);
  Status verify_returned_x(const Buffers& set, int call, Findings& findings) const;
  Status compare_with_first(const Buffers& set, int call, int repeat);

  CheckConfig config_;
  Problem problem_;
  std::unique_ptr<CaseOperator> op_;
  std::vector<Buffers> sets_;
  Status refused_;  // --fault mismatch: how the first creation ended
  bool right_after_refusal_ = false;
};

}  // namespace farwarp::parallel_gemm
