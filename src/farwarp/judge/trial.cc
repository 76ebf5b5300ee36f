#include "farwarp/judge/trial.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>

#include <algorithm>
#include <utility>

#include "farwarp/harness/params.h"
#include "farwarp/judge/descendants.h"
#include "farwarp/submission.h"

namespace farwarp::judge {
namespace {

using Clock = std::chrono::steady_clock;
using harness::Argument;
using nlohmann::json;

constexpr std::chrono::minutes kHostPatience{10};
constexpr std::chrono::seconds kEndPatience{2};
constexpr std::chrono::milliseconds kStartPatience{60'000};
constexpr const char* kLoading = "loading and create()";
constexpr std::size_t kMaxAnswer = 64 << 10;
constexpr int kTries = 20, kFirstTries = 4;  // the first ones load kernels
/// The device takes turns of some milliseconds between this process, which copies, and the rank's.
constexpr std::uint64_t kLeastHoldNs = 20'000'000;

/// What a submission must not do.
Status misuse(std::string what) { return {StatusCode::kMisuse, std::move(what)}; }

double microseconds(Clock::duration duration) { return std::chrono::duration<double, std::micro>(duration).count(); }

json shapes(const std::vector<Argument>& tensors) {
  json list = json::array();
  for (const Argument& tensor : tensors)
    list.push_back({{"name", tensor.name},
                    {"dtype", harness::name_of(tensor.type)},
                    {"shape", tensor.most.empty() ? tensor.shape : tensor.most}});
  return list;
}

}  // namespace

Result<std::unique_ptr<Trial>> Trial::start(const harness::CaseRequest& request, const TrialOptions& options) {
  std::unique_ptr<Trial> trial(new Trial(request, options));
  const int ranks = request.options.ranks;
  if (Status status = options.is_python ? adopt_orphans() : Status(); !status.ok()) return status;
  trial->statuses_.resize(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    auto process = Process::start(options.command, fmt::format("[submission, rank {}] ", rank));
    if (!process.ok()) return process.status();
    trial->ranks_.push_back({.arena = {},
                             .stream = {},
                             .process = std::move(*process),
                             .inputs = {},
                             .outputs = {},
                             .message = {},
                             .frame = {},
                             .answer = {}});
  }
  return trial;
}

Status Trial::call(Bootstrap& bootstrap, Device& device, Stream stream, const std::vector<Argument>& inputs,
                   const std::vector<Argument>& outputs) {
  const auto number = static_cast<std::size_t>(bootstrap.rank());
  Rank& rank = ranks_[number];
  // All ranks of one step succeed, or none goes on.
  const auto together = [&](Status mine) -> Status {
    const auto all_ok = harness::true_on_all(bootstrap, mine.ok());
    if (!mine.ok()) return mine;
    if (!all_ok.ok()) return all_ok.status();
    return *all_ok ? Status() : Status{StatusCode::kAborted, "another rank failed"};
  };
  Status status;
  rank.stream = stream;
  if (!rank.arena) {
    auto arena = Arena::create(device, inputs, outputs, !options_.is_python);
    if (arena.ok()) rank.arena.emplace(std::move(*arena));
    rank.inputs = inputs;
    rank.outputs = outputs;
    status = arena.ok() ? rank.arena->prepare(stream, inputs, outputs, withholds_inputs()) : arena.status();
    status = together(status);
    if (status.ok()) status = bootstrap.barrier(kHostPatience);
    if (status.ok() && number == 0) open();
    if (status.ok()) status = bootstrap.barrier(kHostPatience);
    if (status.ok()) status = statuses_[number];
  }
  if (status.ok()) {
    rank.inputs = inputs;
    rank.outputs = outputs;
    status = rank.arena->prepare(stream, inputs, outputs, withholds_inputs());
  }
  status = together(status);
  if (status.ok() && number == 0) call_all();
  if (status.ok()) status = bootstrap.barrier(kHostPatience);
  if (status.ok()) status = statuses_[number];
  if (!status.ok()) return status;
  std::string difference;
  status = rank.arena->collect(stream, inputs, outputs, difference);
  if (status.ok() && !difference.empty()) status = misuse(fmt::format("call {}: {}", calls_ - 1, difference));
  return together(status);
}

void Trial::fail(int rank, Status status) {
  failed_ = true;
  for (std::size_t i = 0; i < statuses_.size(); ++i) {
    if (static_cast<int>(i) == rank)
      statuses_[i] = std::move(status);
    else if (statuses_[i].ok())
      statuses_[i] = {StatusCode::kAborted, "another rank failed"};
  }
}

std::string Trial::case_json(const Rank& rank) const {
  json params = json::object();
  for (const harness::ParamInfo& info : request_.op->params) {
    const auto found = request_.params.find(info.name);
    params[info.name] = found == request_.params.end() ? info.default_value : found->second;
  }
  return json{{"op", request_.op->name},
              {"params", params},
              {"ranks", request_.options.ranks},
              {"inputs", shapes(rank.inputs)},
              {"outputs", shapes(rank.outputs)}}
      .dump(-1, ' ', false, json::error_handler_t::replace);
}

/// Before the submission is loaded, the processes have nothing to hide; from then on they run only while they must.
void Trial::open() {
  opened_ = true;
  const std::string rendezvous = fmt::format("farwarp-submission-{:08x}{:08x}", random_(), random_());
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    const MemoryHandle& memory = ranks_[i].arena->handle();
    ranks_[i].message = to_bytes(json{{"rank", i},
                                      {"ranks", ranks_.size()},
                                      {"target", static_cast<int>(request_.options.target)},
                                      {"submission", options_.submission},
                                      {"rendezvous", rendezvous},
                                      {"op", request_.op->name},
                                      {"case", case_json(ranks_[i])},
                                      {"kind", static_cast<int>(memory.kind)},
                                      {"bytes", memory.bytes},
                                      {"ipc", std::vector<int>(std::begin(memory.ipc), std::end(memory.ipc))},
                                      {"inputs", ranks_[i].inputs.size()}});
  }
  send(kSetup);
  expect(kReady, 0, "before the submission was loaded");
  if (!failed() && !is_emulated(request_.options.target)) try_out();
  for (Rank& rank : ranks_) rank.message.clear();
  loaded_ = true;
  if (!failed()) send(kLoad);
  if (!failed()) expect(kCreated, 0, kLoading);
  stop_all(kLoading);
}

void Trial::try_out() {
  const std::string what = "before the submission was loaded";
  std::vector<double> us, release_us;
  for (int i = 0; i < kTries && !failed(); ++i) {
    // The inputs of the first call come once in each of these, too, and are replaced before that call.
    const Clock::time_point release_began = Clock::now();
    for (Rank& rank : ranks_) {
      if (Status status = withholds_inputs() ? rank.arena->release_inputs(rank.stream) : Status(); !status.ok())
        return fail(0, status);
    }
    release_us.push_back(microseconds(Clock::now() - release_began));
    hold_ns_ = kLeastHoldNs + static_cast<std::uint64_t>(3e3 * *std::max_element(release_us.begin(), release_us.end()));
    for (Rank& rank : ranks_) rank.message = to_bytes(json{{"hold_ns", hold_ns_}});
    us.push_back(timed(kTryOut, 0, what));
  }
  resume_all();
  us.erase(us.begin(), us.begin() + std::min<std::ptrdiff_t>(kFirstTries, std::ssize(us)));
  overhead_ = overhead_of(us);
}

double Trial::timed(Kind kind, std::uint64_t sequence, const std::string& what) {
  stop_all(what);
  const Clock::time_point began = Clock::now();
  resume_all();
  if (!failed()) send(kind, sequence);
  if (!failed()) expect(kDone, sequence, what);
  stop_all(what);  // what a thread of a submission has not done yet comes too late
  return microseconds(Clock::now() - began);
}

void Trial::call_all() {
  const std::string what = fmt::format("call {}", calls_++);
  for (Rank& rank : ranks_) {
    json places = json::array(), shapes = json::array();
    for (const std::size_t offset : rank.arena->offsets()) places.push_back(offset);
    for (const auto* list : {&rank.inputs, &rank.outputs}) {
      for (const Argument& tensor : *list) shapes.push_back(tensor.shape);
    }
    rank.message = to_bytes(json{{"hold_ns", hold_ns_}, {"places", places}, {"shapes", shapes}});
  }
  CallTime time{.judged_us = timed(kCall, std::uint64_t{random_()} << 32 | random_(), what)};
  if (!failed() && options_.is_python) refuse_descendants(what);
  if (failed()) return;
  for (const Rank& rank : ranks_) {
    time.claimed_us = std::max(time.claimed_us, rank.answer.us);
    time.late = time.late || rank.answer.late;
  }
  times_.push_back(time);
}

void Trial::resume_all() {
  for (std::size_t i = 0; i < ranks_.size() && !failed(); ++i) {
    if (Status stayed = ranks_[i].process.resume(); !stayed.ok())
      fail(static_cast<int>(i), misuse(fmt::format("between calls: the submission {}", stayed.message())));
  }
}

/// Gives each rank its message. A rank that is gone shows when its answer is expected.
void Trial::send(Kind kind, std::uint64_t sequence) {
  for (Rank& rank : ranks_) send_to(rank, kind, sequence);
}

void Trial::send_to(Rank& rank, Kind kind, std::uint64_t sequence) {
  Connection& connection = rank.process.connection();
  connection.start_send(kind, sequence, rank.message, kind == kSetup ? rank.arena->handle().fd : -1);
  const auto deadline = Clock::now() + kEndPatience;
  while (connection.continue_send() == Connection::Progress::kWaiting && Clock::now() < deadline) {
    pollfd ready{connection.socket(), POLLOUT, 0};
    ::poll(&ready, 1, 100);
  }
}

void Trial::expect(Kind kind, std::uint64_t sequence, const std::string& what) {
  const std::chrono::milliseconds limit = loaded_ ? options_.limit : kStartPatience;
  const auto deadline = Clock::now() + limit;
  for (Rank& rank : ranks_) rank.process.connection().start_receive(kMaxAnswer);
  while (!failed()) {
    std::vector<int> waiting, gathering, returned;
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      const bool receives = ranks_[i].process.connection().receiving();
      (receives ? waiting : ranks_[i].frame.kind == kGather ? gathering : returned).push_back(static_cast<int>(i));
    }
    if (waiting.empty() && gathering.empty()) break;
    if (!gathering.empty() && !returned.empty())
      return fail(returned[0], misuse(fmt::format("{}: this rank returned while rank {} is in allgather() or barrier()",
                                                  what, gathering[0])));
    if (waiting.empty()) {
      serve_gather(what);
      continue;
    }
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    if (left.count() <= 0) {
      for (const int number : waiting) {
        fail(number, {StatusCode::kDeadline,
                      fmt::format("{}: the submission did not return within {:g} s{}", what,
                                  std::chrono::duration<double>(limit).count(), loaded_ ? " (--time-limit-s)" : "")});
      }
      return;
    }
    poll_ranks(std::min(left, std::chrono::milliseconds(1000)));
    for (const int number : waiting) {
      if (!failed()) take(number, kind, sequence, what);
    }
  }
  for (Rank& rank : ranks_) rank.process.show_output();
}

void Trial::poll_ranks(std::chrono::milliseconds longest) {
  std::vector<pollfd> files;
  for (Rank& rank : ranks_) {
    if (rank.process.connection().receiving()) files.push_back({rank.process.connection().socket(), POLLIN, 0});
    files.push_back({rank.process.output(), POLLIN, 0});
  }
  ::poll(files.data(), files.size(), static_cast<int>(longest.count()));
  for (Rank& rank : ranks_) rank.process.show_output();
}

void Trial::take(int number, Kind kind, std::uint64_t sequence, const std::string& what) {
  Rank& rank = ranks_[static_cast<std::size_t>(number)];
  const auto progress = rank.process.connection().continue_receive();
  if (progress == Connection::Progress::kWaiting) return;
  if (progress != Connection::Progress::kDone) {
    const std::string ended = rank.process.how_it_ended(kEndPatience);
    const std::string how = ended.empty() ? "wrote to the judge's socket, or closed it" : ended;
    return fail(number, misuse(loaded_ ? fmt::format("{}: the submission {}", what, how)
                                       : fmt::format("{}: {} {}", what,
                                                     options_.is_python ? options_.command[0] : "farwarp", how)));
  }
  rank.frame = rank.process.connection().take();
  const Frame& frame = rank.frame;
  const bool in_call = kind == kDone && frame.sequence == sequence && !frame.fd && frame.payload.empty();
  if (in_call && withholds_inputs() && frame.kind == kRelease) {
    const Status served = rank.arena->release_inputs(rank.stream);
    if (!served.ok()) return fail(number, served);
    rank.message.clear();
    send_to(rank, kGo, sequence);
    return rank.process.connection().start_receive(kMaxAnswer);
  }
  if (kind == kCreated && frame.kind == kGather && !frame.fd) return;
  const auto answer = read_answer(frame.payload);
  if (frame.kind != kind || frame.sequence != sequence || frame.fd || !answer)
    return fail(number, misuse(fmt::format("{}: what came from the rank's process is not the answer to the call: a "
                                           "submission wrote to the judge's socket",
                                           what)));
  rank.answer = *answer;
  if (answer->status.ok()) return;
  // What a submission may say.
  const StatusCode code = answer->status.code();
  const bool credible =
      !loaded_ || code == StatusCode::kDeadline || (kind == kCreated && code == StatusCode::kInvalidArgument);
  fail(number, Status{credible ? code : StatusCode::kMisuse,
                      fmt::format("{}: {}", what, harness::one_line(answer->status.message()))});
}

void Trial::serve_gather(const std::string& what) {
  std::vector<std::byte> all;
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    const std::vector<std::byte>& mine = ranks_[i].frame.payload;
    if (mine.size() != ranks_[0].frame.payload.size())
      return fail(static_cast<int>(i),
                  misuse(fmt::format("{}: ranks 0 and {} give allgather() {} and {} bytes: allowed is one size", what,
                                     i, ranks_[0].frame.payload.size(), mine.size())));
    all.insert(all.end(), mine.begin(), mine.end());
  }
  for (Rank& rank : ranks_) {
    rank.message = all;
    rank.frame = {};
    rank.process.connection().start_receive(kMaxAnswer);
  }
  send(kGathered);
}

void Trial::stop_all(const std::string& what) {
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    Status stopped = ranks_[i].process.stop();
    if (stopped.ok() || failed()) continue;
    fail(static_cast<int>(i), misuse(fmt::format("{}: the submission {}", what, stopped.message())));
  }
}

Trial::~Trial() {
  if (!options_.is_python) return;
  const auto left = descendants();
  for (std::size_t i = 0; left.ok() && i < left->size(); ++i) ::kill((*left)[i], SIGKILL);
}

Result<std::vector<pid_t>> Trial::descendants() const {
  std::vector<pid_t> ranks;
  for (const Rank& rank : ranks_) ranks.push_back(rank.process.pid());
  return descendants_of(ranks);
}

void Trial::refuse_descendants(const std::string& what) {
  const auto found = descendants();
  if (!found.ok()) return fail(0, found.status());
  if (found->empty()) return;
  fail(0, misuse(fmt::format("{}: process {} of the submission still runs when the call has ended: programs may run "
                             "before the first call",
                             what, found->front())));
}

Status Trial::finish() {
  if (!opened_ || failed()) return {};
  for (Rank& rank : ranks_) rank.message.clear();
  resume_all();
  if (!failed()) send(kFinish);
  if (!failed()) expect(kFinished, 0, "destroy()");
  for (std::size_t i = 0; i < statuses_.size(); ++i) {
    if (!statuses_[i].ok() && statuses_[i].code() != StatusCode::kAborted)
      return {statuses_[i].code(), fmt::format("rank {}: {}", i, statuses_[i].message())};
  }
  return {};
}

}  // namespace farwarp::judge
