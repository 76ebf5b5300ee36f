#include "farwarp/world/host/socket_owner.h"

#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <array>
#include <cstdint>
#include <cstring>

#include "farwarp/world/host/unique_fd.h"

namespace farwarp {
namespace {

struct Request {
  nlmsghdr header;
  unix_diag_req what;
};

/// Asks for all sockets of this network namespace: there is no way to ask for one by its name.
bool ask(int netlink) {
  Request request{};
  request.header.nlmsg_len = sizeof(request);
  request.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  request.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  request.what.sdiag_family = AF_UNIX;
  request.what.udiag_states = ~0u;
  request.what.udiag_show = UDIAG_SHOW_NAME | UDIAG_SHOW_UID;
  return ::send(netlink, &request, sizeof(request), 0) == static_cast<ssize_t>(sizeof(request));
}

/// The owner that `message` reports, if it describes the socket with this name.
std::optional<uid_t> owner_in(const nlmsghdr* message, std::string_view name) {
  if (message->nlmsg_len < NLMSG_LENGTH(sizeof(unix_diag_msg))) return {};
  const auto* found = static_cast<const unix_diag_msg*>(NLMSG_DATA(message));
  const auto* attribute = reinterpret_cast<const rtattr*>(found + 1);
  auto left = static_cast<unsigned>(message->nlmsg_len - NLMSG_LENGTH(sizeof(unix_diag_msg)));
  bool same_name = false;
  std::optional<uid_t> owner;
  for (; RTA_OK(attribute, left); attribute = RTA_NEXT(attribute, left)) {
    const std::string_view value(static_cast<const char*>(RTA_DATA(attribute)), RTA_PAYLOAD(attribute));
    if (attribute->rta_type == UNIX_DIAG_NAME) same_name = value == name;
    if (attribute->rta_type == UNIX_DIAG_UID && value.size() == sizeof(std::uint32_t)) {
      std::uint32_t uid = 0;
      std::memcpy(&uid, value.data(), sizeof(uid));
      owner = uid;
    }
  }
  return same_name ? owner : std::nullopt;
}

}  // namespace

std::optional<uid_t> owner_of_socket_name(std::string_view name) {
  const UniqueFd netlink(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  const timeval longest{1, 0};  // the kernel answers at once
  if (!netlink || ::setsockopt(netlink.get(), SOL_SOCKET, SO_RCVTIMEO, &longest, sizeof(longest)) != 0) return {};
  if (!ask(netlink.get())) return {};
  alignas(nlmsghdr) std::array<char, 32768> buffer;
  for (;;) {
    const ssize_t count = ::recv(netlink.get(), buffer.data(), buffer.size(), 0);
    if (count <= 0) return {};
    auto left = static_cast<unsigned>(count);
    for (const auto* message = reinterpret_cast<const nlmsghdr*>(buffer.data()); NLMSG_OK(message, left);
         message = NLMSG_NEXT(message, left)) {
      if (message->nlmsg_type == NLMSG_DONE || message->nlmsg_type == NLMSG_ERROR) return {};
      if (const std::optional<uid_t> owner = owner_in(message, name)) return owner;
    }
  }
}

}  // namespace farwarp
