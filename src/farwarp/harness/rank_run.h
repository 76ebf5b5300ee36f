// What a rank does in a check or a bench of any operator.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "farwarp/harness/case.h"
#include "farwarp/harness/compare.h"
#include "farwarp/harness/timing.h"
#include "farwarp/world/host/world.h"

namespace farwarp::harness {

/// The errors found in outputs.
struct Findings {
  Comparison comparison;
  std::string difference = {};  ///< the first element that is not written, not exact, or otherwise wrong by itself
};

/// One rank's World, stream and findings. The run of an operator derives from it and adds the operator, the buffers and
/// the oracle.
class RankRun {
 public:
  /// This rank's outcome. If it failed, and the World was recovered from a fault, the detail says whether the next call
  /// was right.
  CheckOutcome outcome(const Status& status) const;

 protected:
  RankRun(std::shared_ptr<Bootstrap> bootstrap, const RunOptions& options, const Comparison& comparison);
  ~RankRun();
  RankRun(const RankRun&) = delete;
  RankRun& operator=(const RankRun&) = delete;

  /// Collective. Opens the World and the stream. `heap_bytes`: for the operator's buffers.
  Status open_world(std::int64_t heap_bytes);
  /// How long `launches` launches may take: a deadline and `delay` for each, the delay of RunOptions::fault, and 10 s.
  std::chrono::nanoseconds patience(int launches = 2, std::chrono::nanoseconds delay = {}) const;
  /// Waits for the stream. Returns the World's status if it is not ok, else that of the stream.
  Status wait(std::chrono::nanoseconds patience);
  /// Collective. Returns `mine`; if that is ok and another rank failed, kAborted.
  Status agree(const Status& mine);
  /// Captures what `enqueue` does in `graph`, unless there is one.
  Status capture_once(std::unique_ptr<Graph>& graph, const Work& enqueue);
  /// Enqueues the calls of burst number `number` without a wait in between, each after a random delay of this rank, up
  /// to `longest_us` microseconds. Then waits for all.
  Status make_burst(int number, int calls, int longest_us, const Work& enqueue_call);
  /// `work`; if it is the `last` of a case, farwarp trace records it (tracing.h). Collective then.
  Status record(bool last, const Work& work);
  /// Makes the calls 0 to max(least, RunOptions::calls) - 1 by `call_once(number)`, until one fails, then
  /// recover_from_fault().
  Status make_calls(int least, const std::function<Status(int)>& call_once);
  /// Collective, after the calls. If a rank failed by a fault that a World survives (any but kKill), recovers and makes
  /// one more call. It still returns the failure.
  Status recover_from_fault(const Status& status, const Work& call_again);
  /// Collective, at the end. Closes the operator if no rank failed. If one did, peers may still use the operator's
  /// memory.
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
