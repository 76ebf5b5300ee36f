// What another process of this user sends to a rank that looks for its peers. The first byte says how: to rank 0 as a
// caller, to rank 1 as what has rank 0's name, or as frames to a Connection alone, which is fast. With 4 a frame's
// right header goes before the bytes, with 8 a right hello.
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "farwarp/world/host/rendezvous.h"
#include "folder.h"

using namespace farwarp;

namespace {

constexpr std::chrono::milliseconds kTimeout{4};

std::string with_header(unsigned flags, std::string_view bytes) {
  std::string all;
  if (flags & 4) {
    const std::uint64_t payload = flags & 8 ? 96 : bytes.size();
    const std::uint64_t magic = 0x3230707261777266, sequence = 0;
    const std::uint32_t kind = 0x6f6c6568, fd = 0;
    for (const auto& [from, size] :
         {std::pair<const void*, std::size_t>(&magic, 8), {&kind, 4}, {&fd, 4}, {&sequence, 8}, {&payload, 8}})
      all.append(static_cast<const char*>(from), size);
  }
  return all.append(bytes);
}

void send_all(int socket, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent <= 0) return;
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
}

socklen_t address_of(const std::string& name, int rank, sockaddr_un& address) {
  const std::string path = "farwarp/" + name + "/" + std::to_string(rank);
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, path.data(), path.size());
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + path.size());
}

/// Both ends in this thread: what is written is read to its end.
void read_frames(std::string_view bytes) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0) std::abort();
  Connection connection{UniqueFd(ends[0])};
  UniqueFd other(ends[1]);
  send_all(other.get(), bytes);
  other.reset();
  for (int frames = 0; frames < 100; ++frames) {
    connection.start_receive(1 << 16);
    Connection::Progress progress = Connection::Progress::kWaiting;
    for (int tries = 0; progress == Connection::Progress::kWaiting; ++tries) {
      if (tries > 100) std::abort();  // all has come, and the other end is closed
      progress = connection.continue_receive();
    }
    if (progress == Connection::Progress::kClosed) return;
    if (connection.take().payload.size() > bytes.size()) std::abort();
  }
}

/// A mesh that forms is a mistake: no right hello can be guessed.
void meet(int rank, std::string_view bytes) {
  static std::atomic<int> number = 0;
  const std::string name = "fuzz-" + std::to_string(getpid()) + "-" + std::to_string(number++);
  UniqueFd listener;
  sockaddr_un address{};
  const socklen_t length = address_of(name, 0, address);
  if (rank == 1) {
    listener.reset(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) std::abort();
    if (::listen(listener.get(), 8) != 0) std::abort();
  }
  std::atomic<bool> over = false;
  std::thread other([&] {
    while (!over) {
      UniqueFd socket(rank == 0 ? ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)
                                : ::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
      const bool there = rank == 1 ? static_cast<bool>(socket)
                                   : ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), length) == 0;
      if (there) {
        send_all(socket.get(), bytes.substr(0, bytes.size() / 2));
        send_all(socket.get(), bytes.substr(bytes.size() / 2));
        pollfd end{socket.get(), POLLIN, 0};
        (void)::poll(&end, 1, 1);
        return;
      }
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  });
  const auto start = std::chrono::steady_clock::now();
  const auto mesh = connect_mesh(rank, 2, name, kTimeout);
  over = true;
  other.join();
  if (mesh.ok()) std::abort();
  if (std::chrono::steady_clock::now() - start > std::chrono::seconds(5))
    std::abort();  // the timeout, on a busy machine
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const unsigned flags = data[0];
  const std::string bytes = with_header(flags, fuzz::text_of(data + 1, size - 1));
  if ((flags & 0x70) != 0) {
    read_frames(bytes);
  } else {
    meet(flags & 1, bytes);
  }
  return 0;
}
