// What every rank does in a check or a bench, whatever the operator.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "farwarp/harness/case.h"
#include "farwarp/harness/compare.h"
#include "farwarp/harness/timing.h"
#include "farwarp/world/host/world.h"

namespace farwarp::harness {

/// What was found in outputs.
struct Findings {
  Comparison comparison;
  std::string difference = {};  ///< the first element that is not written, not exact, or otherwise wrong by itself
};

/// One rank's World and stream, and its way to an outcome. The run of an operator derives from it and adds the operator, the buffers and the
/// oracle.
class RankRun {
 public:
  /// Adds how the call after recover() went, if a fault was injected and noticed.
  CheckOutcome outcome(const Status& status) const;

 protected:
  RankRun(std::shared_ptr<Bootstrap> bootstrap, const RunOptions& options, const Comparison& comparison);
  ~RankRun();
  RankRun(const RankRun&) = delete;
  RankRun& operator=(const RankRun&) = delete;

  /// Collective. `heap_bytes`: of the operator's buffers.
  Status open_world(std::int64_t heap_bytes);
  /// How long `launches` launches may take, each with its deadline and a delay before it, and the delay of RunOptions::fault.
  std::chrono::nanoseconds patience(int launches = 2, std::chrono::nanoseconds delay = {}) const;
  /// Waits for the stream. The World's status, if that has failed.
  Status wait(std::chrono::nanoseconds patience);
  /// Collective. Returns `mine`; if that is ok and another rank failed, kAborted.
  Status agree(const Status& mine);
  /// Collective, after the calls. If a rank failed, and by a fault that a World survives: recovers and makes one more call.
  Status recover_from_fault(const Status& status, const Work& call_again);
  /// Collective, at the end. Closes the operator if no rank failed: otherwise peers may still use its memory.
  Status close_operator(const Status& status, const Work& close);

  std::shared_ptr<Bootstrap> bootstrap_;
  RunOptions options_;
  int rank_, ranks_;
  std::optional<World> world_;
  std::optional<Stream> stream_;
  Findings findings_;
  std::string recovery_;  ///< how the call after recover() went

 private:
  Findings none_;
};

}  // namespace farwarp::harness
