// Whose a name of the abstract socket namespace is, also when its socket takes no calls.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string_view>

namespace farwarp {

/// The user that bound the name (given with its leading zero byte); nothing if the name is free or the kernel does not
/// tell (before Linux 5.3, or without sock_diag).
std::optional<uid_t> owner_of_socket_name(std::string_view name);

}  // namespace farwarp
