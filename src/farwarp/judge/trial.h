// A case in which a submission makes the calls. The harness makes the data and judges the results in this process; the
// submission runs in others.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "farwarp/harness/runner.h"
#include "farwarp/harness/submission.h"
#include "farwarp/judge/arena.h"
#include "farwarp/judge/claims.h"
#include "farwarp/judge/frames.h"
#include "farwarp/judge/process.h"

namespace farwarp::judge {

struct TrialOptions {
  std::vector<std::string> command;         ///< starts a program that calls rank_main()
  bool is_python = false;                   ///< the program is Python: it may start others in create()
  std::string submission;                   ///< the shared object
  std::chrono::milliseconds limit{30'000};  ///< of create(), of each run() and of destroy()
};

class Trial : public harness::Submission {
 public:
  /// Starts a process for each rank. They end with the calling thread.
  static Result<std::unique_ptr<Trial>> start(const harness::CaseRequest& request, const TrialOptions& options);
  ~Trial() override;
  Status call(Bootstrap& bootstrap, Device& device, Stream stream, const std::vector<harness::Argument>& inputs,
              const std::vector<harness::Argument>& outputs) override;
  /// After the case: lets the submission destroy what it made.
  Status finish();

  /// Of the calls that ended.
  const std::vector<CallTime>& times() const { return times_; }
  /// Measured before the submission is loaded. 0 on the emulator.
  const Overhead& overhead() const { return overhead_; }

 private:
  struct Rank {
    std::optional<Arena> arena;  ///< before the process: it is released when its importer has ended
    Stream stream;               ///< of the Case
    Process process;
    std::vector<harness::Argument> inputs, outputs;
    std::vector<std::byte> message;  ///< that is being sent
    Frame frame;                     ///< that was received last
    Answer answer;
  };
  Trial(const harness::CaseRequest& request, const TrialOptions& options) : request_(request), options_(options) {}

  // By rank 0's thread, while the others wait. The statuses are by rank.
  void open();
  void call_all();
  void send(Kind kind, std::uint64_t sequence = 0);
  /// Waits for an answer of this kind of each rank, and serves what ranks ask for meanwhile. The first error of a rank
  /// ends it.
  void expect(Kind kind, std::uint64_t sequence, const std::string& what);
  void poll_ranks(std::chrono::milliseconds longest);
  /// Takes the frame of a rank that has arrived.
  void take(int rank, Kind kind, std::uint64_t sequence, const std::string& what);
  void send_to(Rank& rank, Kind kind, std::uint64_t sequence);
  void serve_gather(const std::string& what);
  void try_out();
  /// A call of all ranks. Returns how long it took, in microseconds.
  double timed(Kind kind, std::uint64_t sequence, const std::string& what);
  void stop_all(const std::string& what);
  /// What a submission in Python has started may not run in a call.
  void refuse_descendants(const std::string& what);
  Result<std::vector<pid_t>> descendants() const;
  std::string case_json(const Rank& rank) const;
  void fail(int rank, Status status);
  void resume_all();
  /// On a GPU the stream of a shared object's call is held: its inputs come when the work is enqueued.
  bool withholds_inputs() const { return !is_emulated(request_.options.target) && !options_.is_python; }
  bool failed() const { return failed_; }

  harness::CaseRequest request_;
  TrialOptions options_;
  std::vector<Rank> ranks_;
  std::vector<Status> statuses_;
  bool opened_ = false, loaded_ = false, failed_ = false;
  int calls_ = 0;
  std::random_device random_;
  std::vector<CallTime> times_;
  Overhead overhead_;
  std::uint64_t hold_ns_ = 0;  ///< of the streams, while inputs are copied
};

}  // namespace farwarp::judge
