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
constexpr std::chrono::milliseconds kReconnectInterval{
    5};                                          // connecting to a peer that does not listen yet fails at once
constexpr int kMaxAcceptedAtOnce = 64;           // then checks the deadline and the other connections
constexpr std::size_t kMaxWaitingClients = 256;  // beyond them the oldest is closed; a rank connects again

/// The first message of both sides of a connection. The client sends it once more after it has received the answer.
struct Hello {
  std::int32_t rank;
  std::int32_t size;
  std::uint64_t nonce;  // the sender's, drawn for this rendezvous
  std::uint64_t echo;   // the other side's nonce; 0 in a client's first hello, which does not know it yet
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
      : rank_(rank), size_(size), name_(name), peers_(size), outgoing_(rank) {
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
        if (peers_[peer] || outgoing_[peer]) continue;
        if (Status started = start_connection(peer); !started.ok()) return started;
      }
      if (Clock::now() >= deadline) return late(timeout);
      poll_all(deadline);
      accept_clients();
      for (int peer = 0; peer < rank_; ++peer) {
        if (!outgoing_[peer]) continue;
        if (Status answered = read_answer(peer); !answered.ok()) return answered;
      }
      clients_.remove_if([this](Client& client) { return read_client(client); });
    }
    // A process that connects from now on is no rank of this job. It is refused at once and does not wait for an
    // answer.
    ::shutdown(listener_.get(), SHUT_RD);
    return Mesh{std::move(peers_), std::move(listener_)};
  }

 private:
  /// An accepted connection. `rank` is set once the client has sent its rank and was answered.
  struct Client {
    Connection connection;
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
  Connection connect_to(int peer) {
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

  /// kUnavailable if the name of `rank` is another user's.
  Status taken_by_another_user(int rank) {
    if (const Connection holder = connect_to(rank)) return same_user(rank, holder);
    socklen_t length = 0;  // its socket does not listen, or there is none
    const sockaddr_un own = address(name_, rank, &length);
    const std::optional<uid_t> owner = owner_of_socket_name({own.sun_path, length - offsetof(sockaddr_un, sun_path)});
    if (!owner || *owner == ::geteuid()) return {};
    return taken(rank, fmt::format("a process of user {}", *owner));
  }

  Status same_user(int rank, const Connection& holder) const {
    return holder.same_user() ? Status{} : taken(rank, holder.describe_peer());
  }

  Status taken(int rank, const std::string& holder) const {
    return unavailable(
        fmt::format("rendezvous '{}' is taken: the place of rank {} is held by {}, and this is user {}; nothing was "
                    "sent there; choose another FARWARP_RENDEZVOUS or MASTER_PORT",
                    name_, rank, holder, ::geteuid()));
  }

  Status start_connection(int peer) {
    Connection connection = connect_to(peer);
    if (!connection) return {};  // will be tried again
    // Before a byte is sent: this connection will carry the handle of this rank's memory.
    if (Status theirs = same_user(peer, connection); !theirs.ok()) return theirs;
    outgoing_[peer] = std::move(connection);
    outgoing_[peer].start_send(kHelloKind, 0, first_words_);
    outgoing_[peer].start_receive(sizeof(Hello));
    (void)outgoing_[peer].continue_send();
    return {};
  }

  void accept_clients() {
    for (int accepted = 0; accepted < kMaxAcceptedAtOnce; ++accepted) {
      UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!socket) {
        if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) note_error("cannot accept a call");
        return;
      }
      Connection connection(std::move(socket));
      if (!connection.same_user()) {  // closed at once: other users must not use up this process's descriptors
        last_refusal_ =
            fmt::format("; a call from {} was refused, as this is user {}", connection.describe_peer(), ::geteuid());
        continue;
      }
      if (clients_.size() == kMaxWaitingClients) clients_.pop_front();
      connection.start_receive(sizeof(Hello));
      clients_.push_back({std::move(connection)});
    }
  }

  /// Notes what may explain a rank that is missing at the deadline. The cause may be temporary: descriptors can become
  /// free again.
  void note_error(const char* what) {
    last_refusal_ = fmt::format("; {}: {}", what, std::strerror(errno));
    std::this_thread::sleep_for(kReconnectInterval);  // poll() would report the same connection again at once
  }

  void poll_all(Clock::time_point deadline) const {
    std::vector<pollfd> sockets{{listener_.get(), POLLIN, 0}};
    bool reconnect = false;
    for (int peer = 0; peer < rank_; ++peer) {
      if (outgoing_[peer]) sockets.push_back({outgoing_[peer].socket(), outgoing_[peer].events(), 0});
      reconnect |= !peers_[peer] && !outgoing_[peer];
    }
    for (const Client& client : clients_)
      sockets.push_back({client.connection.socket(), client.connection.events(), 0});
    auto wait = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    if (reconnect) wait = std::min(wait, kReconnectInterval);
    ::poll(sockets.data(), sockets.size(), static_cast<int>(std::clamp<std::int64_t>(wait.count(), 0, 1'000'000)));
  }

  /// The received message, if it is a Hello of this rendezvous.
  std::optional<Hello> hello_from(Connection& connection, Connection::Progress progress) const {
    if (progress != Connection::Progress::kDone) return {};
    const Frame frame = connection.take();
    if (frame.kind != kHelloKind || frame.sequence != 0 || frame.fd || frame.payload.size() != sizeof(Hello)) return {};
    Hello hello;
    std::memcpy(&hello, frame.payload.data(), sizeof(hello));
    if (std::memcmp(hello.rendezvous, hello_.rendezvous, sizeof(hello.rendezvous)) != 0) return {};
    return hello;
  }

  /// Sends a Hello with the other side's nonce; true if it was sent. It fits into the socket's buffer.
  bool reply(Connection& connection, std::uint64_t nonce) const {
    Hello hello = hello_;
    hello.echo = nonce;
    const std::vector<std::byte> bytes = bytes_of(hello);
    connection.start_send(kHelloKind, 0, bytes);
    return connection.continue_send() == Connection::Progress::kDone;
  }

  /// Reads a lower rank's answer to this rank's connection.
  Status read_answer(int peer) {
    Connection& connection = outgoing_[peer];
    if (connection.sending()) (void)connection.continue_send();
    const Connection::Progress progress = connection.continue_receive();
    if (progress == Connection::Progress::kWaiting) return {};
    const std::optional<Hello> hello = hello_from(connection, progress);
    const bool answer = hello && hello->rank == peer && hello->echo == hello_.nonce;
    if (answer && hello->size != size_) {
      return {StatusCode::kMismatch,
              fmt::format("WORLD_SIZE is {} on rank {} and {} on rank {} (process {}) at rendezvous '{}'", size_, rank_,
                          hello->size, peer, connection.peer_pid(), name_)};
    }
    if (answer && reply(connection, hello->nonce)) {
      peers_[peer] = std::exchange(connection, Connection());
      return {};
    }
    // It closed the connection, as a job that is ending does, or it is no rank of this job: connect again.
    if (progress == Connection::Progress::kDone)
      last_refusal_ = fmt::format("; what process {} answered as rank {} was no answer", connection.peer_pid(), peer);
    connection = Connection();
    std::this_thread::sleep_for(kReconnectInterval);
    return {};
  }

  /// Reads a client's Hello. True if the client is to be removed: it has become a peer, or was refused.
  bool read_client(Client& client) {
    Connection& connection = client.connection;
    const Connection::Progress progress = connection.continue_receive();
    if (progress == Connection::Progress::kWaiting) return false;
    const std::optional<Hello> hello = hello_from(connection, progress);
    if (client.rank >= 0) {
      // Only a client that has read the answer knows the nonce. So copied bytes of an earlier connection do not pass,
      // nor does a client that is gone.
      if (hello && hello->rank == client.rank && hello->size == size_ && hello->echo == hello_.nonce) {
        peers_[client.rank] = std::move(connection);
      } else {
        last_refusal_ =
            fmt::format("; process {} called as rank {} and did not confirm it", connection.peer_pid(), client.rank);
      }
      return true;
    }
    if (!hello || hello->nonce == 0 || hello->echo != 0) {
      last_refusal_ = fmt::format("; a call from process {} was no hello of this rendezvous", connection.peer_pid());
      return true;
    }
    // A client with another size is answered, too, so that it can report what is wrong.
    const bool answered = reply(connection, hello->nonce);
    if (hello->size != size_ || hello->rank <= rank_ || hello->rank >= size_) {
      last_refusal_ =
          fmt::format("; process {} called as rank {} of {}", connection.peer_pid(), hello->rank, hello->size);
      return true;
    }
    if (!answered) return true;
    client.rank = hello->rank;
    connection.start_receive(sizeof(Hello));
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
      if (peers_[peer] || outgoing_[peer]) continue;
      if (Status taken = taken_by_another_user(peer); !taken.ok()) return taken;
    }
    const Status late = detail::ranks_did_not_come(missing_ranks(), fmt::format("rendezvous '{}'", name_), timeout);
    return {late.code(), late.message() + last_refusal_};
  }

  const int rank_;
  const int size_;
  const std::string name_;
  Hello hello_{};                       // this rank's; `echo` is filled in for each reply
  std::vector<std::byte> first_words_;  // hello_ as bytes, for connections that this rank makes
  UniqueFd listener_;
  std::vector<Connection> peers_;     // by rank; empty until both sides have exchanged hellos
  std::vector<Connection> outgoing_;  // by rank; waiting for the answer
  std::list<Client> clients_;         // this rank waits for their hello, then for its confirmation
  std::string last_refusal_;          // why the last client was refused, for the message at the deadline
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
