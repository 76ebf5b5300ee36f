// A Case is one operator with one set of parameters, as the command line and suites see it. The harness knows nothing
// else about operators. Each operator registers a factory from its case.cc.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "farwarp/base/machine_shape.h"
#include "farwarp/base/status.h"
#include "farwarp/harness/compare.h"
#include "farwarp/harness/taxes.h"
#include "farwarp/harness/timing.h"
#include "farwarp/world/host/bootstrap.h"

namespace farwarp::harness {

/// Parameter values as text, as in --set key=value or a suite's JSON.
using Params = std::map<std::string, std::string>;

struct ParamInfo {
  std::string name;
  std::string default_value;
  std::string allowed;  ///< for --help and error messages: "a multiple of 8", "uniform|zipf|one_expert"
};

/// --fault, parsed.
struct Fault {
  enum class Kind : std::uint8_t { kNone, kDropPut, kDelay, kKill, kMismatch };
  Kind kind = Kind::kNone;
  int rank = -1;            ///< kDelay, kKill, kMismatch
  std::int64_t amount = 0;  ///< kDropPut: which put (from 1); kDelay: milliseconds
};

struct RunOptions {
  TargetKind target = TargetKind::kEmuSm90;
  int ranks = 8;
  std::uint64_t seed = 0;
  int calls = 1;            ///< calls of the operator per check, fresh inputs each
  bool adversarial = true;  ///< emulator only: ScheduleOptions::adversarial
  std::chrono::milliseconds deadline{10'000};
  Fault fault;
};

struct CheckOutcome {
  bool pass = false;
  std::string detail;     ///< empty, or why it failed
  Status status;          ///< of the calls; a failed call is not a wrong result
  double rel_err = 0;     ///< relative Frobenius error
  double max_share = 0;   ///< the largest error of an element, as a share of what roundings allow; see Verdict
  double tile_share = 0;  ///< the same for a tile
};

/// The outcome of a check. The detail begins with `where` ("rank 3"). `difference` is an error that the verdict does
/// not include, or empty; it takes precedence in the detail.
CheckOutcome judge(const std::string& where, const Status& status, const Verdict& verdict,
                   const std::string& difference);

/// Collective: whether `mine` is true on every rank. Waits up to 10 minutes for a rank that is alive, because it may
/// still prepare or verify full-size data. Waits less for a silent rank: see Bootstrap::set_longest_silence.
Result<bool> true_on_all(Bootstrap& bootstrap, bool mine);

/// Applies `fault` to rank `rank` before its first call. kDelay enqueues a delay on `stream`. kKill kills the process;
/// if all ranks share one process, it waits for the stream and returns kAborted. Does nothing for faults of other ranks
/// and for those that operators inject.
Status apply_fault(const Fault& fault, int rank, const Bootstrap& bootstrap, Device& device, Stream stream);

struct BenchOptions {
  int samples = 40;
  bool baselines = true;
  std::optional<PlantedTax> taxes = {};  ///< measure the taxes of the baseline, and nothing else
};

/// One way of doing the Case's work, timed.
struct Measurement {
  std::string name;  ///< "fused", "split", "NCCL 2.28.9, sorted"
  bool ours = true;
  bool part = false;           ///< of the work alone, as an exchange without its product: no rival of the whole
  int algorithm = 0;           ///< of a baseline: number of the library's fastest algorithm, from 0
  Timing time_us;              ///< cold L2, enqueued in advance, slowest rank of each sample
  double graph_us = 0;         ///< the same from a CUDA graph, median; 0: not measured
  double back_to_back_us = 0;  ///< per call in a train of calls, warm, slowest rank; 0: not measured
};

/// The least time that the machine's ceilings allow.
struct Floor {
  double us = 0;         ///< 0: the ceilings are not known
  std::string bound_by;  ///< the resource, with its figures
};

/// The floor on a machine that we do not have, by its data sheet.
struct ModelFloor {
  std::string machine;
  Floor floor;
};

struct BenchOutcome {
  CheckOutcome check;                     ///< of the outputs of the timed calls
  std::vector<Measurement> measurements;  ///< the first is the operator's own result
  Floor floor;
  std::vector<ModelFloor> models;
  std::string plan;
  std::string no_baseline;     ///< why there is no baseline
  std::optional<Taxes> taxes;  ///< with BenchOptions::taxes, if there is a baseline
};

class Case {
 public:
  virtual ~Case() = default;
  virtual std::string describe() const = 0;
  /// Runs as one rank: called on every rank of `bootstrap`. Collective. Every rank returns its own outcome.
  virtual CheckOutcome check(std::shared_ptr<Bootstrap> bootstrap, const RunOptions& options) = 0;
  /// Times the operator on real inputs and verifies the outputs of the timed calls. Collective, as check() is. All
  /// ranks return the same measurements. kUnavailable if the Case has no bench.
  virtual BenchOutcome bench(std::shared_ptr<Bootstrap> bootstrap, const RunOptions& options,
                             const BenchOptions& bench_options);
};

/// Which sizes among an operator's parameters depend on the number of ranks, by their names.
struct Spread {
  std::vector<std::string> of_all;   ///< sizes of the whole that ranks divide: each rank has a part, as of k of gemm-rs
  std::vector<std::string> of_each;  ///< sizes that each rank has of its own, as max_num_tokens of moe-a2a
};

struct OperatorInfo {
  std::string name;  ///< "moe-a2a"
  std::string summary;
  std::vector<ParamInfo> params;
  /// kInvalidArgument names the parameter, its value and what is allowed.
  std::function<Result<std::unique_ptr<Case>>(const Params&)> make;
  /// The faults that its Case injects when RunOptions::fault asks for them. Any other fault is an error of usage.
  std::vector<Fault::Kind> faults = {};
  /// Makes a suite's shape smaller for the emulator, where the full shape would take hours. Null: the emulator runs the
  /// full shape.
  std::function<Params(const Params&, int ranks)> scaled_down = nullptr;
  /// The cases of a check that is given neither a suite nor settings: together all that the operator computes. Empty:
  /// one, with the defaults.
  std::vector<Params> plain = {};
  /// Null: no size depends on the number of ranks.
  std::function<Spread(const Params&)> spread = nullptr;
  /// Whether its bench has a baseline of several kernels, of which BenchOptions::taxes measures the taxes.
  bool has_taxes = false;
  /// The values that parameters have in cases of somebody else's kernel (submission.h). Null: it takes none.
  std::optional<Params> submission = std::nullopt;
};

/// Sorted by name.
const std::vector<OperatorInfo>& registered_ops();
/// nullptr if no such operator is linked in.
const OperatorInfo* find_operator(std::string_view name);
void register_operator(OperatorInfo info);

}  // namespace farwarp::harness
