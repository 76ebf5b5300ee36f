#include "farwarp/world/host/connection.h"

#include <fmt/format.h>
#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace farwarp {
namespace {

bool would_block() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

/// Room for one SCM_RIGHTS message with one descriptor.
union FdMessage {
  cmsghdr header;
  char bytes[CMSG_SPACE(sizeof(int))];
};

}  // namespace

Connection::Connection(UniqueFd socket) : socket_(std::move(socket)) {
  ucred credentials{};
  socklen_t length = sizeof(credentials);
  if (::getsockopt(socket_.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &length) == 0) {
    peer_pid_ = credentials.pid;
    peer_uid_ = credentials.uid;
  }
}

bool Connection::same_user() const { return peer_uid_ == ::geteuid(); }

std::string Connection::describe_peer() const {
  return fmt::format("process {} of user {}", peer_pid_, peer_uid_ ? std::to_string(*peer_uid_) : "unknown");
}

short Connection::events() const { return static_cast<short>((sending_ ? POLLOUT : 0) | (receiving_ ? POLLIN : 0)); }

void Connection::start_send(std::uint32_t kind, std::uint64_t sequence, const std::vector<std::byte>& payload, int fd) {
  out_header_ = {kMagic, kind, fd >= 0 ? 1u : 0u, sequence, payload.size()};
  out_payload_ = payload.data();
  out_fd_ = fd;
  sent_ = 0;
  sending_ = true;
}

void Connection::start_receive(std::size_t max_payload) {
  in_ = {};
  received_ = 0;
  max_payload_ = max_payload;
  too_many_fds_ = false;
  receiving_ = true;
}

Connection::Progress Connection::continue_send() {
  const std::size_t total = sizeof(Header) + out_header_.payload_bytes;
  while (sent_ < total) {
    const std::size_t header_left = sent_ < sizeof(Header) ? sizeof(Header) - sent_ : 0;
    iovec parts[2];
    parts[0] = {reinterpret_cast<char*>(&out_header_) + sizeof(Header) - header_left, header_left};
    const std::size_t payload_sent = sent_ + header_left - sizeof(Header);
    parts[1] = {const_cast<std::byte*>(out_payload_) + payload_sent, out_header_.payload_bytes - payload_sent};
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = 2;
    FdMessage control{};
    if (sent_ == 0 && out_fd_ >= 0) {  // the descriptor is sent with the first byte
      message.msg_control = control.bytes;
      message.msg_controllen = sizeof(control.bytes);
      cmsghdr* rights = CMSG_FIRSTHDR(&message);
      rights->cmsg_level = SOL_SOCKET;
      rights->cmsg_type = SCM_RIGHTS;
      rights->cmsg_len = CMSG_LEN(sizeof(int));
      std::memcpy(CMSG_DATA(rights), &out_fd_, sizeof(int));
    }
    const ssize_t count = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count < 0) return would_block() ? Progress::kWaiting : Progress::kClosed;
    sent_ += static_cast<std::size_t>(count);
    moved_ += static_cast<std::uint64_t>(count);
  }
  sending_ = false;
  return Progress::kDone;
}

void Connection::send_if_all_is_read(std::uint32_t kind) {
  int unread = 0;
  if (::ioctl(socket_.get(), SIOCOUTQ, &unread) == 0 && unread != 0) return;
  const Header header{kMagic, kind, 0, 0, 0};
  const ssize_t count = ::send(socket_.get(), &header, sizeof(header), MSG_NOSIGNAL | MSG_DONTWAIT);
  // The kernel accepts so few bytes completely or not at all. If only a part was sent, the stream could not be parsed
  // any more.
  if (count > 0 && count != static_cast<ssize_t>(sizeof(header))) ::shutdown(socket_.get(), SHUT_RDWR);
}

Connection::Progress Connection::receive_header() {
  iovec part{reinterpret_cast<char*>(&in_header_) + received_, sizeof(Header) - received_};
  FdMessage control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  message.msg_controllen = sizeof(control.bytes);
  const ssize_t count = ::recvmsg(socket_.get(), &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  if (count < 0) return would_block() ? Progress::kWaiting : Progress::kClosed;
  if (count == 0) return Progress::kClosed;
  for (cmsghdr* rights = CMSG_FIRSTHDR(&message); rights; rights = CMSG_NXTHDR(&message, rights)) {
    if (rights->cmsg_level != SOL_SOCKET || rights->cmsg_type != SCM_RIGHTS) continue;
    // Alignment leaves room for a second descriptor. A peer that sent more than one uses another protocol.
    for (std::size_t at = CMSG_LEN(0); at + sizeof(int) <= rights->cmsg_len; at += sizeof(int)) {
      int fd = -1;
      std::memcpy(&fd, reinterpret_cast<const char*>(rights) + at, sizeof(int));
      too_many_fds_ |= static_cast<bool>(in_.fd);
      in_.fd.reset(fd);
    }
  }
  received_ += static_cast<std::size_t>(count);
  moved_ += static_cast<std::uint64_t>(count);
  if (received_ < sizeof(Header)) return Progress::kWaiting;
  const bool valid = in_header_.magic == kMagic && !too_many_fds_ && in_header_.payload_bytes <= max_payload_ &&
                     (in_header_.carries_fd != 0) == static_cast<bool>(in_.fd);
  if (!valid) return Progress::kClosed;
  in_.kind = in_header_.kind;
  in_.sequence = in_header_.sequence;
  in_.payload.resize(in_header_.payload_bytes);
  return Progress::kDone;
}

Connection::Progress Connection::continue_receive() {
  while (received_ < sizeof(Header)) {
    if (const Progress progress = receive_header(); progress != Progress::kDone) return progress;
  }
  while (received_ < sizeof(Header) + in_.payload.size()) {
    const std::size_t have = received_ - sizeof(Header);
    const ssize_t count = ::recv(socket_.get(), in_.payload.data() + have, in_.payload.size() - have, MSG_DONTWAIT);
    if (count < 0) return would_block() ? Progress::kWaiting : Progress::kClosed;
    if (count == 0) return Progress::kClosed;
    received_ += static_cast<std::size_t>(count);
    moved_ += static_cast<std::uint64_t>(count);
  }
  receiving_ = false;
  return Progress::kDone;
}

Frame Connection::take() { return std::move(in_); }

}  // namespace farwarp
