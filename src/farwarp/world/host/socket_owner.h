// Which user owns a name of the abstract socket namespace, even if its socket accepts no connections.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string_view>

namespace farwarp {

/// The user that bound the name (given with its leading zero byte). Empty if the name is free or the kernel does not
/// report owners (before Linux 5.3, or without sock_diag).
std::optional<uid_t> owner_of_socket_name(std::string_view name);

}  // namespace farwarp
