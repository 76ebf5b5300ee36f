// The three taxes of a way of several kernels (arXiv 2511.02168): launches, bulk synchronisation, and locality between
// kernels. Each is measured by an experiment that changes nothing else; what they leave unexplained is stated.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "farwarp/base/status.h"
#include "farwarp/harness/timing.h"
#include "farwarp/world/host/world.h"

namespace farwarp::harness {

/// Memory of the device.
struct DeviceSpan {
  const void* memory = nullptr;
  std::size_t bytes = 0;
};

/// One of the kernels, or several that always go together.
struct Stage {
  std::string name;                    ///< "cuBLASLt", "NCCL, all-reduce"
  bool exchange = false;               ///< waits for what other ranks do in the same stage
  Work enqueue;                        ///< on the stream of measure_taxes(); can be captured
  std::vector<DeviceSpan> reads = {};  ///< what earlier stages wrote and this one reads
};

/// The bulk-synchronous way of doing a case's work: its stages one after the other.
struct Staged {
  std::string name;
  std::vector<Stage> stages;
  bool in_order = false;  ///< a stage hangs or fails without the ones before it
};

/// A stage that is timed alone, from a common start of all ranks. Microseconds.
struct StageTimes {
  std::string name;
  bool exchange = false;
  std::size_t launches = 0;
  double us = 0;          ///< as the stages before it leave the caches
  double warm_us = 0;     ///< what it reads of earlier stages was read just before
  double flushed_us = 0;  ///< the L2 was flushed just before
  double skew_us = 0;     ///< exchange: between the first and the last rank's arrival
  double waiting_us = 0;  ///< exchange: what ranks that arrive so cost, beside ranks that arrive together
};

/// Microseconds, medians. baseline = start + work + launch + ranks + order + locality + rest.
struct Taxes {
  std::string baseline_name;
  double baseline_us = 0;    ///< all stages as one graph, cold
  double eager_us = 0;       ///< each stage launched by itself
  double start_us = 0;       ///< an empty kernel between the two events: what any way pays
  double launch_us = 0;      ///< of launches beyond the first
  double ranks_us = 0;       ///< bulk synchronisation: waiting for ranks that arrive late
  double order_us = 0;       ///< bulk synchronisation: what is saved if no stage waits for another's last tile
  double locality_us = 0;    ///< intermediate results that are no longer in the L2
  double work_us = 0;        ///< the stages without any of these
  double rest_us = 0;        ///< unexplained
  double us_per_launch = 0;  ///< the slope over added empty kernels
  std::size_t launches = 0;  ///< of the baseline
  double fused_us = 0;       ///< the operator, cold
  std::size_t fused_launches = 0;
  std::string no_order;  ///< why order_us was not measured
  std::vector<StageTimes> stages;

  double bulk_us() const { return ranks_us + order_us; }
};

/// A tax that is added on purpose, before the last exchange: the test of the method.
struct PlantedTax {
  enum class Kind : std::uint8_t { kNone, kSleep, kFlush, kLaunches };
  Kind kind = Kind::kNone;
  double sleep_us = 0;  ///< kSleep: of the last rank
  int launches = 0;     ///< kLaunches: empty kernels
};

struct TaxOptions {
  int samples = 20;
  PlantedTax planted = {};
};

/// Collective. `fused` is the operator. At least one stage. The stages' results are right afterwards: all have run in
/// order.
Result<Taxes> measure_taxes(World& world, Stream stream, DeviceTimer& timer, const Staged& baseline, const Work& fused,
                            const TaxOptions& options);

}  // namespace farwarp::harness
