#include "farwarp/judge/trial.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>

#include <algorithm>
#include <utility>

#include "farwarp/judge/descendants.h"
#include "farwarp/submission.h"

namespace farwarp::judge {
namespace {

using Clock = std::chrono::steady_clock;
using harness::Argument;
using nlohmann::json;

constexpr std::chrono::minutes kHostPatience{10};
constexpr std::chrono::seconds kEndPatience{2};
constexpr std::size_t kMaxAnswer = 64 << 10;
constexpr int kTries = 21;

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
    auto process = Process::start(options.command);
    if (!process.ok()) return process.status();
    trial->ranks_.push_back(
        {.process = std::move(*process), .arena = {}, .inputs = {}, .outputs = {}, .message = {}, .answer = {}});
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
  if (!rank.arena) {
    auto arena = Arena::create(device, inputs, outputs);
    if (arena.ok()) rank.arena.emplace(std::move(*arena));
    status = together(arena.status());
    rank.inputs = inputs;
    rank.outputs = outputs;
    if (status.ok()) status = bootstrap.barrier(kHostPatience);
    if (status.ok() && number == 0) open();
    if (status.ok()) status = bootstrap.barrier(kHostPatience);
    if (status.ok()) status = statuses_[number];
  }
  if (status.ok()) {
    rank.inputs = inputs;
    rank.outputs = outputs;
    status = rank.arena->prepare(stream, inputs, outputs);
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
  expect(kReady, 0, "before it was loaded");
  take_errors("");
  if (!failed() && !is_emulated(request_.options.target)) try_out();
  for (Rank& rank : ranks_) rank.message.clear();
  if (!failed()) send(kLoad);
  if (!failed()) expect(kCreated, 0, "create()", true);
  if (!failed()) take_errors("create()");
  stop_all("create()");
}

void Trial::try_out() {
  std::vector<double> us;
  for (int i = 0; i < kTries && !failed(); ++i) {
    stop_all("before it was loaded");
    if (failed()) return;
    const Clock::time_point began = Clock::now();
    for (const Rank& rank : ranks_) rank.process.resume();
    for (Rank& rank : ranks_) rank.message.clear();
    send(kTryOut);
    if (!failed()) expect(kDone, 0, "before it was loaded");
    stop_all("before it was loaded");
    us.push_back(microseconds(Clock::now() - began));
  }
  for (const Rank& rank : ranks_) rank.process.resume();
  std::sort(us.begin(), us.end());
  overhead_us_ = harness::quantile(us, 0.9);
}

void Trial::call_all() {
  const std::string what = fmt::format("call {}", calls_++);
  for (Rank& rank : ranks_) {
    json places = json::array();
    std::size_t i = 0;
    for (const auto* list : {&rank.inputs, &rank.outputs}) {
      for (const Argument& tensor : *list) places.push_back({rank.arena->offsets()[i++], tensor.shape});
    }
    rank.message = to_bytes(places);
  }
  const std::uint64_t secret = std::uint64_t{random_()} << 32 | random_();
  const Clock::time_point began = Clock::now();
  for (const Rank& rank : ranks_) rank.process.resume();
  send(kCall, secret);
  if (!failed()) expect(kDone, secret, what);
  stop_all(what);  // what a thread of a submission has not done yet comes too late
  const double us = microseconds(Clock::now() - began);
  if (!failed()) take_errors(what);
  if (!failed() && options_.is_python) refuse_descendants(what);
  if (failed()) return;
  CallTime time{.judged_us = us};
  for (const Rank& rank : ranks_)
    time.claimed_us = std::max(time.claimed_us, to_json(rank.answer.payload).value("us", 0.0));
  times_.push_back(time);
}

/// Gives each rank its message. A rank that is gone shows when its answer is expected.
void Trial::send(Kind kind, std::uint64_t sequence) {
  for (Rank& rank : ranks_) {
    Connection& connection = rank.process.connection();
    connection.start_send(kind, sequence, rank.message, kind == kSetup ? rank.arena->handle().fd : -1);
    const auto deadline = Clock::now() + kEndPatience;
    while (connection.continue_send() == Connection::Progress::kWaiting && Clock::now() < deadline) {
      pollfd ready{connection.socket(), POLLOUT, 0};
      ::poll(&ready, 1, 100);
    }
  }
}

void Trial::expect(Kind kind, std::uint64_t sequence, const std::string& what, bool gathers) {
  const auto deadline = Clock::now() + options_.limit;
  for (Rank& rank : ranks_) rank.process.connection().start_receive(kMaxAnswer);
  while (!failed()) {
    std::vector<pollfd> waiting;
    std::vector<int> numbers;
    int gathering = 0;
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      Connection& connection = ranks_[i].process.connection();
      if (connection.receiving()) {
        waiting.push_back({connection.socket(), POLLIN, 0});
        numbers.push_back(static_cast<int>(i));
      } else if (ranks_[i].answer.kind == kGather) {
        ++gathering;
      }
    }
    if (waiting.empty() && gathering == 0) return;
    if (gathering > 0 && gathering + waiting.size() < ranks_.size())
      return fail(0, misuse(fmt::format("{}: a rank returned while another is in allgather() or barrier()", what)));
    if (waiting.empty()) {
      serve_gather(what);
      continue;
    }
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) {
      for (const int number : numbers) {
        fail(number, {StatusCode::kDeadline, fmt::format("{}: the submission did not return within {:g} s", what,
                                                         std::chrono::duration<double>(options_.limit).count())});
      }
      return;
    }
    ::poll(waiting.data(), waiting.size(), static_cast<int>(std::min<std::int64_t>(left, 1000)));
    for (std::size_t i = 0; i < waiting.size() && !failed(); ++i) {
      if (waiting[i].revents == 0) continue;
      Rank& rank = ranks_[static_cast<std::size_t>(numbers[i])];
      const auto progress = rank.process.connection().continue_receive();
      if (progress == Connection::Progress::kWaiting) continue;
      const bool arrived = progress == Connection::Progress::kDone;
      if (arrived) rank.answer = rank.process.connection().take();
      const bool expected = arrived && ((rank.answer.kind == kind && rank.answer.sequence == sequence) ||
                                        (gathers && rank.answer.kind == kGather));
      if (expected) continue;
      const std::string ended = arrived ? "" : rank.process.how_it_ended(kEndPatience);
      fail(numbers[i], misuse(ended.empty() ? fmt::format("{}: what came from the rank's process is not the answer to "
                                                          "the call: a submission wrote to the judge's socket",
                                                          what)
                                            : fmt::format("{}: the submission {}", what, ended)));
    }
  }
}

void Trial::serve_gather(const std::string& what) {
  std::vector<std::byte> all;
  for (const Rank& rank : ranks_) {
    const std::vector<std::byte>& mine = rank.answer.payload;
    if (mine.size() != ranks_[0].answer.payload.size())
      return fail(0, misuse(fmt::format("{}: ranks give allgather() {} and {} bytes: allowed is one size", what,
                                        ranks_[0].answer.payload.size(), mine.size())));
    all.insert(all.end(), mine.begin(), mine.end());
  }
  for (Rank& rank : ranks_) {
    rank.message = all;
    rank.answer = {};
    rank.process.connection().start_receive(kMaxAnswer);
  }
  send(kGathered);
}

void Trial::take_errors(const std::string& what) {
  for (std::size_t i = 0; i < ranks_.size() && !failed(); ++i) {
    const json answer = to_json(ranks_[i].answer.payload);
    const std::string error = answer.is_object() ? answer.value("error", std::string()) : "an answer that is no JSON";
    if (error.empty()) continue;
    const int code = answer.is_object() ? answer.value("code", 0) : 0;
    fail(static_cast<int>(i), Status{code == 0 ? StatusCode::kMisuse : static_cast<StatusCode>(code),
                                     what.empty() ? error : fmt::format("{}: {}", what, error)});
  }
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
  for (Rank& rank : ranks_) {
    rank.message.clear();
    rank.process.resume();
  }
  send(kFinish);
  expect(kFinished, 0, "destroy()");
  for (std::size_t i = 0; i < statuses_.size(); ++i) {
    if (!statuses_[i].ok() && statuses_[i].code() != StatusCode::kAborted)
      return {statuses_[i].code(), fmt::format("rank {}: {}", i, statuses_[i].message())};
  }
  return {};
}

}  // namespace farwarp::judge
