#include "farwarp/world/host/rendezvous.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <list>
#include <optional>
#include <random>
#include <thread>

#include "farwarp/world/host/bootstrap_detail.h"
#include "farwarp/world/host/socket_owner.h"

namespace farwarp {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint32_t kHelloKind = 0x6f6c6568;
constexpr std::chrono::milliseconds kRedialInterval{5};  // connecting to a peer that does not listen yet fails at once
constexpr int kMostAcceptedAtOnce = 64;                  // then checks the deadline and the other connections
constexpr std::size_t kMostWaitingCallers = 256;         // beyond them the oldest is closed; a rank connects again

/// The first message of both sides of a connection. The caller sends it once more after it has received the answer.
struct Hello {
  std::int32_t rank;
  std::int32_t size;
  std::uint64_t nonce;  // the sender's, drawn for this rendezvous
  std::uint64_t echo;   // the other side's nonce; 0 in a caller's first hello, which does not know it yet
  char rendezvous[72];
};

std::uint64_t random_nonce() {
  std::random_device random;
  return (static_cast<std::uint64_t>(random()) << 32 | random()) | 1;  // never 0
}

std::vector<std::byte> bytes_of(const Hello& hello) {
  const auto* bytes = reinterpret_cast<const std::byte*>(&hello);
  return {bytes, bytes + sizeof(hello)};
}

class Rendezvous {
 public:
  Rendezvous(int rank, int size, const std::string& name)
      : rank_(rank), size_(size), name_(name), peers_(size), dialled_(rank) {
    hello_.rank = rank;
    hello_.size = size;
    hello_.nonce = random_nonce();
    std::snprintf(hello_.rendezvous, sizeof(hello_.rendezvous), "%s", name.c_str());
    first_words_ = bytes_of(hello_);
  }

  Result<Mesh> connect(std::chrono::milliseconds timeout) {
    if (Status listening = listen(); !listening.ok()) return listening;
    const Clock::time_point deadline = detail::deadline_after(timeout);
    while (!missing_ranks().empty()) {
      for (int peer = 0; peer < rank_; ++peer) {
        if (peers_[peer] || dialled_[peer]) continue;
        if (Status dialled = dial(peer); !dialled.ok()) return dialled;
      }
      if (Clock::now() >= deadline) return late(timeout);
      poll_all(deadline);
      accept_callers();
      for (int peer = 0; peer < rank_; ++peer) {
        if (!dialled_[peer]) continue;
        if (Status answered = hear_answer(peer); !answered.ok()) return answered;
      }
      callers_.remove_if([this](Caller& caller) { return hear_caller(caller); });
    }
    // A process that connects from now on is no rank of this job. It is refused at once and does not wait for an answer.
    ::shutdown(listener_.get(), SHUT_RD);
    return Mesh{std::move(peers_), std::move(listener_)};
  }

 private:
  /// An accepted connection. `rank` is set once the caller has sent its rank and was answered.
  struct Caller {
    Connection line;
    int rank = -1;
  };

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
      return in_use();
    }
    if (::listen(listener_.get(), SOMAXCONN) != 0)
      return internal_error(fmt::format("cannot listen at '{}': {}", name_, std::strerror(errno)));
    return {};
  }

  /// A connection to the name of `peer`, or none.
  Connection call(int peer) {
    UniqueFd socket = make_socket();
    socklen_t length = 0;
    const sockaddr_un theirs = address(name_, peer, &length);
    if (!socket) note_error("cannot make a socket");
    if (!socket || ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&theirs), length) != 0) return {};
    return Connection(std::move(socket));
  }

  /// Why this rank's name is not available.
  Status in_use() {
    if (Status taken = taken_by_another_user(rank_); !taken.ok()) return taken;
    return unavailable(
        fmt::format("rendezvous '{}' is in use: another process on this host is its rank {}; end it, or choose another "
                    "FARWARP_RENDEZVOUS or MASTER_PORT",
                    name_, rank_));
  }

  /// kUnavailable if the name of `place` is another user's.
  Status taken_by_another_user(int place) {
    if (const Connection holder = call(place)) return same_user(place, holder);
    socklen_t length = 0;  // its socket does not listen, or there is none
    const sockaddr_un own = address(name_, place, &length);
    const std::optional<uid_t> owner = owner_of_socket_name({own.sun_path, length - offsetof(sockaddr_un, sun_path)});
    if (!owner || *owner == ::geteuid()) return {};
    return taken(place, fmt::format("a process of user {}", *owner));
  }

  Status same_user(int place, const Connection& holder) const {
    return holder.same_user() ? Status{} : taken(place, holder.describe_peer());
  }

  Status taken(int place, const std::string& holder) const {
    return unavailable(
        fmt::format("rendezvous '{}' is taken: the place of rank {} is held by {}, and this is user {}; nothing was "
                    "sent there; choose another FARWARP_RENDEZVOUS or MASTER_PORT",
                    name_, place, holder, ::geteuid()));
  }

  Status dial(int peer) {
    Connection line = call(peer);
    if (!line) return {};  // will be tried again
    // Before a byte is sent: this connection will carry the handle of this rank's memory.
    if (Status theirs = same_user(peer, line); !theirs.ok()) return theirs;
    dialled_[peer] = std::move(line);
    dialled_[peer].start_send(kHelloKind, 0, first_words_);
    dialled_[peer].start_receive(sizeof(Hello));
    (void)dialled_[peer].continue_send();
    return {};
  }

  void accept_callers() {
    for (int accepted = 0; accepted < kMostAcceptedAtOnce; ++accepted) {
      UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!socket) {
        if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) note_error("cannot accept a call");
        return;
      }
      Connection line(std::move(socket));
      if (!line.same_user()) {  // closed at once: other users must not use up this process's descriptors
        turned_away_ =
            fmt::format("; a call from {} was refused, as this is user {}", line.describe_peer(), ::geteuid());
        continue;
      }
      if (callers_.size() == kMostWaitingCallers) callers_.pop_front();
      line.start_receive(sizeof(Hello));
      callers_.push_back({std::move(line)});
    }
  }

  /// Notes what may explain a rank that is missing at the deadline. The cause may be temporary: descriptors can become free again.
  void note_error(const char* what) {
    turned_away_ = fmt::format("; {}: {}", what, std::strerror(errno));
    std::this_thread::sleep_for(kRedialInterval);  // poll() would report the same connection again at once
  }

  void poll_all(Clock::time_point deadline) const {
    std::vector<pollfd> sockets{{listener_.get(), POLLIN, 0}};
    bool redial = false;
    for (int peer = 0; peer < rank_; ++peer) {
      if (dialled_[peer]) sockets.push_back({dialled_[peer].socket(), dialled_[peer].events(), 0});
      redial |= !peers_[peer] && !dialled_[peer];
    }
    for (const Caller& caller : callers_) sockets.push_back({caller.line.socket(), caller.line.events(), 0});
    auto wait = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    if (redial) wait = std::min(wait, kRedialInterval);
    ::poll(sockets.data(), sockets.size(), static_cast<int>(std::clamp<std::int64_t>(wait.count(), 0, 1'000'000)));
  }

  /// The received message, if it is a Hello of this rendezvous.
  std::optional<Hello> hello_from(Connection& line, Connection::Progress progress) const {
    if (progress != Connection::Progress::kDone) return {};
    const Frame frame = line.take();
    if (frame.kind != kHelloKind || frame.sequence != 0 || frame.fd || frame.payload.size() != sizeof(Hello)) return {};
    Hello hello;
    std::memcpy(&hello, frame.payload.data(), sizeof(hello));
    if (std::memcmp(hello.rendezvous, hello_.rendezvous, sizeof(hello.rendezvous)) != 0) return {};
    return hello;
  }

  /// Sends a Hello with the other side's nonce; true if it was sent. It fits into the socket's buffer.
  bool reply(Connection& line, std::uint64_t nonce) const {
    Hello hello = hello_;
    hello.echo = nonce;
    const std::vector<std::byte> bytes = bytes_of(hello);
    line.start_send(kHelloKind, 0, bytes);
    return line.continue_send() == Connection::Progress::kDone;
  }

  /// Reads a lower rank's answer to this rank's connection.
  Status hear_answer(int peer) {
    Connection& line = dialled_[peer];
    if (line.sending()) (void)line.continue_send();
    const Connection::Progress progress = line.continue_receive();
    if (progress == Connection::Progress::kWaiting) return {};
    const std::optional<Hello> hello = hello_from(line, progress);
    const bool answer = hello && hello->rank == peer && hello->echo == hello_.nonce;
    if (answer && hello->size != size_) {
      return {StatusCode::kMismatch,
              fmt::format("WORLD_SIZE is {} on rank {} and {} on rank {} (process {}) at rendezvous '{}'", size_, rank_,
                          hello->size, peer, line.peer_pid(), name_)};
    }
    if (answer && reply(line, hello->nonce)) {
      peers_[peer] = std::exchange(line, Connection());
      return {};
    }
    // It closed the connection, as a job that is ending does, or it is no rank of this job: connect again.
    if (progress == Connection::Progress::kDone)
      turned_away_ = fmt::format("; what process {} answered as rank {} was no answer", line.peer_pid(), peer);
    line = Connection();
    std::this_thread::sleep_for(kRedialInterval);
    return {};
  }

  /// Reads a caller's Hello. True if the caller is to be removed: it has become a peer, or was refused.
  bool hear_caller(Caller& caller) {
    Connection& line = caller.line;
    const Connection::Progress progress = line.continue_receive();
    if (progress == Connection::Progress::kWaiting) return false;
    const std::optional<Hello> hello = hello_from(line, progress);
    if (caller.rank >= 0) {
      // Only a caller that has read the answer knows the nonce. So copied bytes of an earlier connection do not pass, nor does a caller
      // that is gone.
      if (hello && hello->rank == caller.rank && hello->size == size_ && hello->echo == hello_.nonce) {
        peers_[caller.rank] = std::move(line);
      } else {
        turned_away_ =
            fmt::format("; process {} called as rank {} and did not confirm it", line.peer_pid(), caller.rank);
      }
      return true;
    }
    if (!hello || hello->nonce == 0 || hello->echo != 0) {
      turned_away_ = fmt::format("; a call from process {} was no hello of this rendezvous", line.peer_pid());
      return true;
    }
    // A caller with another size is answered, too, so that it can report what is wrong.
    const bool answered = reply(line, hello->nonce);
    if (hello->size != size_ || hello->rank <= rank_ || hello->rank >= size_) {
      turned_away_ = fmt::format("; process {} called as rank {} of {}", line.peer_pid(), hello->rank, hello->size);
      return true;
    }
    if (!answered) return true;
    caller.rank = hello->rank;
    line.start_receive(sizeof(Hello));
    return false;
  }

  std::vector<int> missing_ranks() const {
    std::vector<int> missing;
    for (int peer = 0; peer < size_; ++peer) {
      if (peer != rank_ && !peers_[peer]) missing.push_back(peer);
    }
    return missing;
  }

  Status late(std::chrono::milliseconds timeout) {
    for (int peer = 0; peer < rank_; ++peer) {
      if (peers_[peer] || dialled_[peer]) continue;
      if (Status taken = taken_by_another_user(peer); !taken.ok()) return taken;
    }
    const Status late = detail::ranks_did_not_come(missing_ranks(), fmt::format("rendezvous '{}'", name_), timeout);
    return {late.code(), late.message() + turned_away_};
  }

  const int rank_;
  const int size_;
  const std::string name_;
  Hello hello_{};                       // this rank's; `echo` is filled in for each reply
  std::vector<std::byte> first_words_;  // hello_ as bytes, for connections that this rank makes
  UniqueFd listener_;
  std::vector<Connection> peers_;    // by rank; empty until both sides have exchanged hellos
  std::vector<Connection> dialled_;  // by rank; waiting for the answer
  std::list<Caller> callers_;        // this rank waits for their hello, then for its confirmation
  std::string turned_away_;          // why the last caller was refused, for the message at the deadline
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
