#include "farwarp/world/host/rendezvous.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <list>
#include <optional>
#include <thread>

#include "farwarp/world/host/bootstrap_detail.h"

namespace farwarp {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint32_t kHelloKind = 0x6f6c6568;
constexpr std::chrono::milliseconds kRedialInterval{5};  // a peer that is not there yet refuses the call at once

/// What both sides of a call say first.
struct Hello {
  std::int32_t rank;
  std::int32_t size;
  char rendezvous[72];
};

class Rendezvous {
 public:
  Rendezvous(int rank, int size, const std::string& name)
      : rank_(rank), size_(size), name_(name), peers_(size), dialled_(rank) {
    Hello hello{rank, size, {}};
    std::snprintf(hello.rendezvous, sizeof(hello.rendezvous), "%s", name.c_str());
    const auto* bytes = reinterpret_cast<const std::byte*>(&hello);
    hello_.assign(bytes, bytes + sizeof(hello));
  }

  Result<Mesh> connect(std::chrono::milliseconds timeout) {
    if (Status listening = listen(); !listening.ok()) return listening;
    const Clock::time_point deadline = detail::deadline_after(timeout);
    while (!missing_ranks().empty()) {
      for (int peer = 0; peer < rank_; ++peer) {
        if (!peers_[peer] && !dialled_[peer]) dial(peer);
      }
      if (Clock::now() >= deadline) return late(timeout);
      poll_all(deadline);
      accept_callers();
      for (int peer = 0; peer < rank_; ++peer) {
        if (!dialled_[peer]) continue;
        if (Status answered = hear_answer(peer); !answered.ok()) return answered;
      }
      callers_.remove_if([this](Connection& caller) { return hear_caller(caller); });
    }
    // Who calls from now on is no rank of this job, and is refused at once instead of waiting for an answer.
    ::shutdown(listener_.get(), SHUT_RD);
    return Mesh{std::move(peers_), std::move(listener_)};
  }

 private:
  /// "\0farwarp/<rendezvous>/<rank>": abstract names vanish with their socket and are never stale.
  static sockaddr_un address(const std::string& name, int rank, socklen_t* length) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string path = fmt::format("farwarp/{}/{}", name, rank);
    std::memcpy(address.sun_path + 1, path.data(), std::min(path.size(), sizeof(address.sun_path) - 1));
    *length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + path.size());
    return address;
  }

  static UniqueFd make_socket() { return UniqueFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)); }

  Status listen() {
    listener_ = make_socket();
    if (!listener_) return internal_error(fmt::format("cannot make a socket: {}", std::strerror(errno)));
    socklen_t length = 0;
    const sockaddr_un own = address(name_, rank_, &length);
    if (::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&own), length) != 0) {
      if (errno != EADDRINUSE)
        return internal_error(fmt::format("cannot bind rendezvous '{}': {}", name_, std::strerror(errno)));
      return unavailable(fmt::format(
          "rendezvous '{}' is in use: another process on this host is its rank {}; end it, or choose another "
          "FARWARP_RENDEZVOUS or MASTER_PORT",
          name_, rank_));
    }
    if (::listen(listener_.get(), 64) != 0)
      return internal_error(fmt::format("cannot listen at '{}': {}", name_, std::strerror(errno)));
    return {};
  }

  void dial(int peer) {
    UniqueFd socket = make_socket();
    socklen_t length = 0;
    const sockaddr_un theirs = address(name_, peer, &length);
    if (!socket || ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&theirs), length) != 0)
      return;  // again, soon
    dialled_[peer] = Connection(std::move(socket));
    dialled_[peer].start_send(kHelloKind, 0, hello_);
    dialled_[peer].start_receive(sizeof(Hello));
    (void)dialled_[peer].continue_send();
  }

  void accept_callers() {
    for (;;) {
      UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!socket) return;
      callers_.emplace_back(std::move(socket));
      callers_.back().start_receive(sizeof(Hello));
    }
  }

  void poll_all(Clock::time_point deadline) const {
    std::vector<pollfd> sockets{{listener_.get(), POLLIN, 0}};
    bool redial = false;
    for (int peer = 0; peer < rank_; ++peer) {
      if (dialled_[peer]) sockets.push_back({dialled_[peer].socket(), dialled_[peer].events(), 0});
      redial |= !peers_[peer] && !dialled_[peer];
    }
    for (const Connection& caller : callers_) sockets.push_back({caller.socket(), caller.events(), 0});
    auto wait = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    if (redial) wait = std::min(wait, kRedialInterval);
    ::poll(sockets.data(), sockets.size(), static_cast<int>(std::clamp<std::int64_t>(wait.count(), 0, 1'000'000)));
  }

  /// What a line has received, if it is a Hello.
  static std::optional<Hello> hello_from(Connection& line, Connection::Progress progress) {
    if (progress != Connection::Progress::kDone) return {};
    const Frame frame = line.take();
    if (frame.kind != kHelloKind || frame.payload.size() != sizeof(Hello)) return {};
    Hello hello;
    std::memcpy(&hello, frame.payload.data(), sizeof(hello));
    return hello;
  }

  /// A lower rank's answer to the call of this one.
  Status hear_answer(int peer) {
    Connection& line = dialled_[peer];
    if (line.sending()) (void)line.continue_send();
    const Connection::Progress progress = line.continue_receive();
    if (progress == Connection::Progress::kWaiting) return {};
    const std::optional<Hello> hello = hello_from(line, progress);
    if (!hello) {
      line = Connection();  // it hung up, as a job that is ending does: dial again
      std::this_thread::sleep_for(kRedialInterval);
      return {};
    }
    if (hello->size != size_) {
      return {StatusCode::kMismatch,
              fmt::format("WORLD_SIZE is {} on rank {} and {} on rank {} (process {}) at rendezvous '{}'", size_, rank_,
                          hello->size, peer, line.peer_pid(), name_)};
    }
    peers_[peer] = std::exchange(line, Connection());
    return {};
  }

  /// A caller's Hello; true if its line is done with: it has become a peer, or was sent away.
  bool hear_caller(Connection& caller) {
    const Connection::Progress progress = caller.continue_receive();
    if (progress == Connection::Progress::kWaiting) return false;
    const std::optional<Hello> hello = hello_from(caller, progress);
    const bool mine = caller.peer_uid() == ::geteuid() || caller.peer_uid() == 0;
    if (!hello || !mine || std::strncmp(hello->rendezvous, name_.c_str(), sizeof(hello->rendezvous)) != 0) {
      turned_away_ = fmt::format("; a call from process {} was no hello of this rendezvous", caller.peer_pid());
      return true;
    }
    // The answer fits into the socket's buffer. One for another size is sent, too: it tells the caller what is wrong.
    caller.start_send(kHelloKind, 0, hello_);
    const bool answered = caller.continue_send() == Connection::Progress::kDone;
    if (hello->size != size_ || hello->rank <= rank_ || hello->rank >= size_) {
      turned_away_ = fmt::format("; process {} called as rank {} of {}", caller.peer_pid(), hello->rank, hello->size);
    } else if (answered) {
      peers_[hello->rank] = std::move(caller);
    }
    return true;
  }

  std::vector<int> missing_ranks() const {
    std::vector<int> missing;
    for (int peer = 0; peer < size_; ++peer) {
      if (peer != rank_ && !peers_[peer]) missing.push_back(peer);
    }
    return missing;
  }

  Status late(std::chrono::milliseconds timeout) const {
    const Status late = detail::ranks_did_not_come(missing_ranks(), fmt::format("rendezvous '{}'", name_), timeout);
    return {late.code(), late.message() + turned_away_};
  }

  const int rank_;
  const int size_;
  const std::string name_;
  std::vector<std::byte> hello_;
  UniqueFd listener_;
  std::vector<Connection> peers_;    // by rank; empty until both sides have said hello
  std::vector<Connection> dialled_;  // by rank; waiting for the answer
  std::list<Connection> callers_;    // waiting for their hello
  std::string turned_away_;          // the last one, in words
};

}  // namespace

Result<Mesh> connect_mesh(int rank, int size, const std::string& rendezvous, std::chrono::milliseconds timeout) {
  constexpr std::size_t kLongestName = sizeof(Hello::rendezvous) - 1;
  if (rendezvous.empty() || rendezvous.size() > kLongestName) {
    return invalid_argument(fmt::format("rendezvous is '{}' ({} characters); allowed: 1 to {} characters", rendezvous,
                                        rendezvous.size(), kLongestName));
  }
  return Rendezvous(rank, size, rendezvous).connect(timeout);
}

}  // namespace farwarp
