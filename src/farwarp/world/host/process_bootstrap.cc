// Ranks as processes of one host. Every rank has a connection to every other, so that each detects at once, by itself,
// that a peer is gone.
#include <fmt/format.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string_view>
#include <system_error>
#include <thread>

#include "farwarp/base/host_activity.h"
#include "farwarp/world/host/bootstrap.h"
#include "farwarp/world/host/bootstrap_detail.h"
#include "farwarp/world/host/rendezvous.h"

namespace farwarp {
namespace {

using detail::CollectiveKind;
using Clock = std::chrono::steady_clock;

/// Sent by a rank that gives up, in place of its next frame: a StatusCode, then the message.
constexpr std::uint32_t kFailureKind = 0x6c696166;

/// A sign of life, sent between frames by a thread that does nothing else. So a rank that computes gives signs, and a
/// stopped process does not. Not counted as a collective call.
constexpr std::uint32_t kSignKind = 0x6e676973;
constexpr std::chrono::milliseconds kSignInterval{100};
/// A host with more threads than cores may delay a sign.
constexpr std::chrono::milliseconds kSignSlack{500};

class ProcessBootstrap : public Bootstrap {
 public:
  ProcessBootstrap(int rank, Mesh mesh) : rank_(rank), mesh_(std::move(mesh)), heard_(mesh_.peers.size()) {}
  ~ProcessBootstrap() override {
    if (::getpid() != process_) {  // a copy in a forked child has no such thread, which may have held the lock
      if (signs_.joinable()) signs_.detach();
      return;
    }
    {
      std::lock_guard lock(mutex_);
      leaving_ = true;
    }
    left_.notify_all();
    if (signs_.joinable()) signs_.join();
  }

  /// Call once, before the first collective.
  Status start_signs() {
    sigset_t all, before;
    sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);  // the new thread must not handle the caller's signals
    Status started;
    try {
      signs_ = std::thread([this] { give_signs(); });
    } catch (const std::system_error& error) {
      started = unavailable(fmt::format("cannot start the thread that gives signs of life: {}", error.what()));
    }
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return started;
  }

  void set_longest_silence(std::chrono::milliseconds longest) override {
    constexpr std::chrono::milliseconds kNever = std::chrono::hours(24 * 365);
    longest_silence_ = std::clamp(longest, std::chrono::milliseconds(0), kNever) + kSignSlack;
  }

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(mesh_.peers.size()); }
  bool same_process() const override { return size() == 1; }

  Result<std::vector<std::vector<std::byte>>> allgather(const std::vector<std::byte>& mine,
                                                        std::chrono::milliseconds timeout) override {
    if (mine.size() > Connection::kMaxPayload) {
      return invalid_argument(
          fmt::format("allgather: {} bytes; allowed: up to {}", mine.size(), Connection::kMaxPayload));
    }
    auto frames = exchange(CollectiveKind::kAllgather, mine, -1, timeout);
    if (!frames.ok()) return frames.status();
    std::vector<std::vector<std::byte>> all;
    for (Frame& frame : *frames) all.push_back(std::move(frame.payload));
    all[rank_] = mine;
    return all;
  }

  Result<std::vector<int>> allgather_fds(int mine, std::chrono::milliseconds timeout) override {
    auto frames = exchange(CollectiveKind::kAllgatherFds, {}, mine, timeout);
    if (!frames.ok()) return frames.status();
    std::vector<int> all;
    for (Frame& frame : *frames) all.push_back(frame.fd.release());
    all[rank_] = duplicate(mine).release();
    return all;
  }

 private:
  /// Sends this rank's frame to every peer and receives theirs. A failure is final.
  Result<std::vector<Frame>> exchange(CollectiveKind kind, const std::vector<std::byte>& payload, int fd,
                                      std::chrono::milliseconds timeout) {
    std::unique_lock lock(mutex_);
    if (broken_) return *broken_;
    ++sequence_;
    const Clock::time_point deadline = detail::deadline_after(timeout);
    std::fill(heard_.begin(), heard_.end(), Clock::now());
    for (Connection& peer : mesh_.peers) {
      if (!peer) continue;
      peer.start_send(static_cast<std::uint32_t>(kind), sequence_, payload, fd);
      peer.start_receive();
    }
    std::vector<Frame> frames(size());
    HostBlockedScope blocked;
    while (busy()) {
      if (Clock::now() >= deadline) return break_group(late(timeout));
      if (Status silence = silent_ranks(); !silence.ok()) return break_group(silence);
      wait_for_events(lock, deadline);
      for (int peer = 0; peer < size(); ++peer) {
        if (Status moved = move_on(peer, frames); !moved.ok()) return break_group(moved);
      }
    }
    frames[rank_].kind = static_cast<std::uint32_t>(kind);
    std::vector<CollectiveKind> kinds;
    for (const Frame& frame : frames) kinds.push_back(static_cast<CollectiveKind>(frame.kind));
    if (Status same = detail::check_same_collective(kinds); !same.ok()) return same;
    return frames;
  }

  bool busy() const {
    for (const Connection& peer : mesh_.peers) {
      if (peer.events() != 0) return true;
    }
    return false;
  }

  /// Releases `lock` while it waits, so that the other thread can send signs. Only this thread opens and closes
  /// sockets.
  void wait_for_events(std::unique_lock<std::mutex>& lock, Clock::time_point until) const {
    std::vector<pollfd> sockets;
    for (int peer = 0; peer < size(); ++peer) {
      const Connection& line = mesh_.peers[peer];
      if (line.events() == 0) continue;
      sockets.push_back({line.socket(), line.events(), 0});
      if (longest_silence_) until = std::min(until, heard_[peer] + *longest_silence_);
    }
    const auto wait = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
    lock.unlock();
    ::poll(sockets.data(), sockets.size(), static_cast<int>(std::clamp<std::int64_t>(wait.count(), 0, 1'000'000)));
    lock.lock();
  }

  /// kDeadline naming the ranks that are missing and have given no sign of life for too long.
  Status silent_ranks() const {
    if (!longest_silence_) return {};
    const Clock::time_point now = Clock::now();
    std::vector<int> silent;
    for (int peer = 0; peer < size(); ++peer) {
      if (mesh_.peers[peer].events() != 0 && now - heard_[peer] >= *longest_silence_) silent.push_back(peer);
    }
    if (silent.empty()) return {};
    return {
        StatusCode::kDeadline,
        fmt::format("{} did not come to a collective call and gave no sign of life for {} ms: stopped, as by SIGSTOP "
                    "or a debugger?",
                    detail::name_ranks(silent), longest_silence_->count())};
  }

  void give_signs() {
    std::unique_lock lock(mutex_);
    while (!leaving_) {
      for (Connection& peer : mesh_.peers) {
        if (peer && !peer.sending()) peer.send_if_all_is_read(kSignKind);
      }
      left_.wait_for(lock, kSignInterval, [this] { return leaving_; });
    }
  }

  /// Sends and receives as much as is possible without blocking.
  Status move_on(int peer, std::vector<Frame>& frames) {
    Connection& line = mesh_.peers[peer];
    const std::uint64_t moved = line.moved();
    if (line.sending() && line.continue_send() == Connection::Progress::kClosed) return why_closed(peer);
    while (line.receiving()) {
      const Connection::Progress progress = line.continue_receive();
      if (progress == Connection::Progress::kClosed) return why_closed(peer);
      if (progress == Connection::Progress::kWaiting) break;
      frames[peer] = line.take();
      if (frames[peer].kind == kSignKind) line.start_receive();
    }
    if (line.moved() != moved) heard_[peer] = Clock::now();
    if (line.receiving() || frames[peer].kind == 0) return {};
    if (frames[peer].kind == kFailureKind) return failure_in(frames[peer]);
    if (frames[peer].sequence == sequence_) return {};
    return {StatusCode::kMismatch, fmt::format("rank {} is in its collective number {}, rank {} in {}", peer,
                                               frames[peer].sequence, rank_, sequence_)};
  }

  /// The failure that a peer sent before it closed the connection. If it sent none, the peer itself is gone.
  Status why_closed(int peer) {
    Connection& line = mesh_.peers[peer];
    for (;;) {
      if (!line.receiving()) line.start_receive();
      if (line.continue_receive() != Connection::Progress::kDone) break;
      if (const Frame frame = line.take(); frame.kind == kFailureKind) return failure_in(frame);
    }
    return {StatusCode::kPeerLost, fmt::format("rank {} (process {}) left or died", peer, line.peer_pid())};
  }

  static Status failure_in(const Frame& frame) {
    if (frame.payload.empty()) return internal_error("a peer gave up without a word");
    const std::string_view message(reinterpret_cast<const char*>(frame.payload.data()) + 1, frame.payload.size() - 1);
    return {static_cast<StatusCode>(frame.payload.front()), std::string(message)};
  }

  Status late(std::chrono::milliseconds timeout) const {
    std::vector<int> missing;
    for (int peer = 0; peer < size(); ++peer) {
      if (mesh_.peers[peer].events() != 0) missing.push_back(peer);
    }
    return detail::ranks_did_not_come(missing, "a collective call", timeout);
  }

  /// Sends every peer the reason, so that all name the same culprit, and closes the connections.
  Status break_group(Status status) {
    std::vector<std::byte> words{static_cast<std::byte>(status.code())};
    for (const char character : status.message()) words.push_back(static_cast<std::byte>(character));
    for (Connection& peer : mesh_.peers) {
      if (peer && peer.may_start_send()) {  // else the peer only sees the connection close
        peer.start_send(kFailureKind, sequence_, words);
        (void)peer.continue_send();
      }
      peer = Connection();
    }
    broken_ = status;
    return status;
  }

  const int rank_;
  std::mutex mutex_;  // of mesh_
  Mesh mesh_;
  std::uint64_t sequence_ = 0;
  std::optional<Status> broken_;
  std::vector<Clock::time_point> heard_;  // by rank: the last byte received or sent, or else the start of the call
  std::optional<std::chrono::milliseconds> longest_silence_;

  const pid_t process_ = ::getpid();
  std::thread signs_;
  std::condition_variable left_;
  bool leaving_ = false;
};

}  // namespace

Result<std::shared_ptr<Bootstrap>> make_process_bootstrap(int rank, int size, const std::string& rendezvous,
                                                          std::chrono::milliseconds timeout) {
  if (size < 1) return invalid_argument(fmt::format("size is {}; allowed: 1 or more", size));
  if (rank < 0 || rank >= size) return invalid_argument(fmt::format("rank is {}; allowed: 0 to {}", rank, size - 1));
  if (size == 1) {
    Mesh alone;
    alone.peers.resize(1);
    return std::shared_ptr<Bootstrap>(std::make_shared<ProcessBootstrap>(0, std::move(alone)));
  }
  HostBlockedScope blocked;
  auto mesh = connect_mesh(rank, size, rendezvous, timeout);
  if (!mesh.ok()) return mesh.status();
  const auto group = std::make_shared<ProcessBootstrap>(rank, std::move(*mesh));
  if (Status started = group->start_signs(); !started.ok()) return started;
  return std::shared_ptr<Bootstrap>(group);
}

}  // namespace farwarp
