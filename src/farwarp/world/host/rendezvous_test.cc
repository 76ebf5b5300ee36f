// Foreign processes at a rendezvous: some send nothing or another protocol, some belong to other users, some send
// random bytes.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "farwarp/world/host/bootstrap.h"
#include "farwarp/world/host/fork_ranks.h"
#include "farwarp/world/host/socket_owner.h"
#include "farwarp/world/host/unique_fd.h"

namespace farwarp {
namespace {

using namespace std::chrono_literals;

constexpr uid_t kAnotherUser = 65534;

/// Happens once; every process that is forked after its construction can wait for it.
class Event {
 public:
  Event() {
    int ends[2] = {-1, -1};
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    read_.reset(ends[0]);
    write_.reset(ends[1]);
  }
  void signal() const { EXPECT_EQ(::write(write_.get(), "x", 1), 1); }
  bool happened(std::chrono::milliseconds within = 0ms) const {
    pollfd end{read_.get(), POLLIN, 0};  // the byte stays there for the others
    return ::poll(&end, 1, static_cast<int>(within.count())) == 1;
  }
  void wait() const { EXPECT_TRUE(happened(20s)); }

 private:
  UniqueFd read_, write_;
};

/// The socket name of a rank.
class Place {
 public:
  Place(const std::string& rendezvous, int rank) {
    address_.sun_family = AF_UNIX;
    const std::string path = "farwarp/" + rendezvous + "/" + std::to_string(rank);
    std::memcpy(address_.sun_path + 1, path.data(), path.size());
    length_ = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + path.size());
  }

  /// Waits until some process listens there.
  UniqueFd dial() const {
    UniqueFd line(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    while (::connect(line.get(), reinterpret_cast<const sockaddr*>(&address_), length_) != 0)
      std::this_thread::sleep_for(1ms);
    return line;
  }
  UniqueFd bind() const {
    UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address_), length_), 0);
    return socket;
  }
  UniqueFd listen() const {
    UniqueFd listener = bind();
    EXPECT_EQ(::listen(listener.get(), 64), 0);
    return listener;
  }

 private:
  sockaddr_un address_{};
  socklen_t length_ = 0;
};

void become_another_user() {
  ASSERT_EQ(::setresgid(kAnotherUser, kAnotherUser, kAnotherUser), 0);
  ASSERT_EQ(::setresuid(kAnotherUser, kAnotherUser, kAnotherUser), 0);
}

void limit_descriptors(rlim_t most) {
  const rlimit limit{most, most};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
}

void send_all(const UniqueFd& line, const std::string& bytes) {
  (void)::send(line.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);  // short: fits, or the other side has closed
}

/// Receives `most` bytes; fewer if the other side closes.
std::string receive(const UniqueFd& line, std::size_t most) {
  std::string bytes(most, '\0');
  std::size_t have = 0;
  while (have < most) {
    const ssize_t count = ::recv(line.get(), bytes.data() + have, most - have, 0);
    if (count <= 0) break;
    have += static_cast<std::size_t>(count);
  }
  bytes.resize(have);
  return bytes;
}

void expect_group(int rank, const std::string& rendezvous) {
  auto group = make_process_bootstrap(rank, 2, rendezvous, 20s);
  ASSERT_TRUE(group.ok()) << group.status().to_string();
  const Status met = (*group)->barrier(10s);
  EXPECT_TRUE(met.ok()) << met.to_string();
}

// Foreign processes connect to the socket: one sends nothing, one sends another protocol.
TEST(Rendezvous, StrangersDoNoHarm) {
  const std::string rendezvous = fresh_rendezvous();
  const Event hung_up_on;
  expect_forked(3, [&](int process) {
    if (process == 1) hung_up_on.wait();
    if (process < 2) return expect_group(process, rendezvous);
    const UniqueFd silent = Place(rendezvous, 0).dial();
    const UniqueFd talker = Place(rendezvous, 0).dial();
    send_all(talker, "GET / HTTP/1.1\r\nHost: farwarp\r\nAccept: */*\r\n\r\n");
    EXPECT_EQ(receive(talker, 1), "");
    hung_up_on.signal();
    std::this_thread::sleep_for(500ms);
  });
}

class RendezvousOfUsers : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root, to become another user";
  }
  const std::string rendezvous_ = fresh_rendezvous();
  const Event ready_, done_;
};

TEST_F(RendezvousOfUsers, WhoTookThePlaceOfRank0IsToldNothing) {
  expect_forked(2, [&](int process) {
    if (process == 1) {
      ready_.wait();
      const Status status = make_process_bootstrap(1, 2, rendezvous_, 20s).status();
      EXPECT_EQ(status.code(), StatusCode::kUnavailable);
      EXPECT_NE(status.message().find("the place of rank 0 is held by process "), std::string::npos)
          << status.message();
      EXPECT_NE(status.message().find(" of user 65534, and this is user 0"), std::string::npos) << status.message();
      return;
    }
    become_another_user();
    const UniqueFd listener = Place(rendezvous_, 0).listen();
    ready_.signal();
    const UniqueFd line(::accept(listener.get(), nullptr, nullptr));
    EXPECT_EQ(receive(line, 1), "");
  });
}

bool kernel_tells_owners() {
  const std::string rendezvous = fresh_rendezvous();
  const UniqueFd place = Place(rendezvous, 0).bind();
  return owner_of_socket_name(std::string(1, '\0') + "farwarp/" + rendezvous + "/0") == ::geteuid();
}

// Rank 0, whose name is taken, gets the error at once; rank 1 gets it when it connects, or at its deadline.
TEST_F(RendezvousOfUsers, ATakenPlaceIsToldByWhom) {
  for (const bool listens : {true, false}) {
    if (!listens && !kernel_tells_owners()) GTEST_SKIP() << "this kernel has no sock_diag that tells sockets' owners";
    const std::string rendezvous = fresh_rendezvous();
    const Event ready, done[2];
    expect_forked(3, [&](int process) {
      if (process < 2) {
        ready.wait();
        const Status status = make_process_bootstrap(process, 2, rendezvous, 500ms).status();
        EXPECT_EQ(status.code(), StatusCode::kUnavailable);
        EXPECT_NE(status.message().find("the place of rank 0 is held by "), std::string::npos) << status.message();
        EXPECT_NE(status.message().find(" of user 65534, and this is user 0"), std::string::npos) << status.message();
        return done[process].signal();
      }
      become_another_user();
      const UniqueFd place = listens ? Place(rendezvous, 0).listen() : Place(rendezvous, 0).bind();
      ready.signal();
      for (const Event& event : done) event.wait();
    });
  }
}

TEST_F(RendezvousOfUsers, ItsStalledConnectionsUseUpNothing) {
  expect_forked(3, [&](int process) {
    if (process == 1) ready_.wait();
    if (process < 2) {
      limit_descriptors(256);
      expect_group(process, rendezvous_);
      if (process == 1) done_.signal();
      return;
    }
    limit_descriptors(2000);
    become_another_user();
    std::vector<UniqueFd> lines;
    for (int i = 0; i < 1500; ++i) lines.push_back(Place(rendezvous_, 0).dial());
    ready_.signal();
    done_.wait();
  });
}

TEST_F(RendezvousOfUsers, ItsCallsAreNotTakenForARank) {
  expect_forked(2, [&](int process) {
    if (process == 1) {
      const Status status = make_process_bootstrap(0, 2, rendezvous_, 1s).status();
      EXPECT_EQ(status.code(), StatusCode::kDeadline);
      EXPECT_NE(status.message().find("rank 1 did not come"), std::string::npos) << status.message();
      EXPECT_NE(status.message().find(" of user 65534 was refused"), std::string::npos) << status.message();
      return;
    }
    become_another_user();
    EXPECT_EQ(make_process_bootstrap(1, 2, rendezvous_, 20s).status().code(), StatusCode::kUnavailable);
  });
}

// ---- random bytes

/// What a program may send that does not use the protocol, or breaks off in it; `messages` are valid ones.
class RandomStreams {
 public:
  RandomStreams(unsigned seed, std::vector<std::string> messages) : random_(seed), messages_(std::move(messages)) {}

  std::string next() {
    switch (below(4)) {
      case 0: return random_bytes(below(400));
      case 1: return truncated();
      case 2: return mutated();
      default: return messages_[below(messages_.size())] + (below(2) ? random_bytes(below(200)) : mutated());
    }
  }
  std::size_t below(std::size_t end) { return std::uniform_int_distribution<std::size_t>(0, end - 1)(random_); }

 private:
  std::string random_bytes(std::size_t count) {
    std::string bytes(count, '\0');
    for (char& byte : bytes) byte = static_cast<char>(below(256));
    return bytes;
  }
  std::string truncated() {
    const std::string& message = messages_[below(messages_.size())];
    return message.substr(0, below(message.size()));
  }
  std::string mutated() {
    std::string message = messages_[below(messages_.size())];
    for (std::size_t changes = 1 + below(4); changes > 0; --changes)
      message[below(message.size())] = static_cast<char>(below(256));
    return message;
  }

  std::mt19937 random_;
  std::vector<std::string> messages_;
};

/// Sends two descriptors; a frame has at most one.
void send_with_descriptors(const UniqueFd& line, std::string bytes) {
  iovec part{bytes.data(), bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* rights = CMSG_FIRSTHDR(&message);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(2 * sizeof(int));
  const int descriptors[] = {line.get(), line.get()};
  std::memcpy(CMSG_DATA(rights), descriptors, sizeof(descriptors));
  (void)::sendmsg(line.get(), &message, MSG_NOSIGNAL);
}

/// The first message of rank 1 to rank 0, recorded under rank 0's name.
std::string record_hello(const UniqueFd& listener) {
  const UniqueFd line(::accept(listener.get(), nullptr, nullptr));
  std::string hello(4096, '\0');
  const ssize_t count = ::recv(line.get(), hello.data(), hello.size(), 0);  // all of it, as it was sent at once
  EXPECT_GT(count, 0);
  hello.resize(static_cast<std::size_t>(std::max<ssize_t>(count, 1)));
  return hello;
}

std::size_t open_descriptors() {
  std::size_t count = 0;
  for (int fd = 0; fd < 1024; ++fd) count += ::fcntl(fd, F_GETFD) >= 0;
  return count;
}

// Rank 1 connects to a program with rank 0's name that answers random bytes, and then to the real rank 0.
TEST(Rendezvous, RandomAnswersDoNoHarm) {
  const std::string rendezvous = fresh_rendezvous();
  const Event place_is_free;
  expect_forked(3, [&](int process) {
    if (process == 0) place_is_free.wait();
    if (process < 2) {
      const std::size_t descriptors = open_descriptors();
      expect_group(process, rendezvous);
      EXPECT_EQ(open_descriptors(), descriptors);
      return;
    }
    UniqueFd listener = Place(rendezvous, 0).listen();
    const std::string hello = record_hello(listener);
    RandomStreams streams(1, {hello});
    for (int i = 0; i < 50; ++i) {
      const UniqueFd line(::accept(listener.get(), nullptr, nullptr));
      EXPECT_EQ(receive(line, hello.size()).size(), hello.size()) << "rank 1 calls again";
      send_all(line, streams.next());
    }
    listener.reset();
    place_is_free.signal();
  });
}

// Rank 0 gets 200 foreign connections, some with copies of a real rank's bytes, before its peer connects.
TEST(Rendezvous, RandomCallsDoNoHarm) {
  const std::string rendezvous = fresh_rendezvous();
  const Event recorded, place_is_free, all_called, connected;
  const auto be_rank_0 = [&] {
    place_is_free.wait();
    const std::size_t descriptors = open_descriptors();
    auto group = make_process_bootstrap(0, 2, rendezvous, 20s);
    connected.signal();
    ASSERT_TRUE(group.ok()) << group.status().to_string();
    const Status met = (*group)->barrier(10s);
    EXPECT_TRUE(met.ok()) << met.to_string();
    group->reset();
    EXPECT_EQ(open_descriptors(), descriptors);
  };
  const auto call_rank_0 = [&] {
    std::string hello;
    {
      const UniqueFd listener = Place(rendezvous, 0).listen();
      hello = record_hello(listener);
      recorded.wait();
    }
    place_is_free.signal();
    std::vector<UniqueFd> lines;  // stay open
    lines.push_back(Place(rendezvous, 0).dial());
    send_all(lines.back(), hello);
    const std::string answer = receive(lines.back(), hello.size());
    EXPECT_EQ(answer.size(), hello.size());
    send_all(lines.back(), hello);  // this does not confirm the answer
    RandomStreams streams(2, {hello, answer, hello + answer});
    for (int i = 0; i < 200; ++i) {
      lines.push_back(Place(rendezvous, 0).dial());
      const std::size_t way = streams.below(8);
      if (way == 0) {
        send_with_descriptors(lines.back(), streams.next());
      } else {
        send_all(lines.back(), streams.next());
      }
      if (way == 1) ::shutdown(lines.back().get(), SHUT_WR);
      if (way == 2) lines.pop_back();
    }
    all_called.signal();
    connected.wait();
  };
  expect_forked(4, [&](int process) {
    if (process == 0) return be_rank_0();
    if (process == 2) return call_rank_0();
    if (process == 3) {  // its hello is recorded
      EXPECT_EQ(make_process_bootstrap(1, 2, rendezvous, 300ms).status().code(), StatusCode::kDeadline);
      return recorded.signal();
    }
    all_called.wait();
    EXPECT_FALSE(connected.happened()) << "rank 0 took another process for rank 1";
    expect_group(1, rendezvous);
  });
}

}  // namespace
}  // namespace farwarp
