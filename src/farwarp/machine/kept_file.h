// Measurements that are kept for later: one JSON file for each kind of device and number of ranks.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "farwarp/base/status.h"

namespace farwarp {

/// farwarp/<what>-<device>-x<ranks>.json in $XDG_CACHE_HOME, or in $HOME/.cache; kUnavailable if neither is set.
Result<std::filesystem::path> kept_file(std::string_view what, std::string_view device_name, int ranks);

/// kUnavailable if it is no regular file, is larger than 64 MiB, or cannot be read.
Result<std::string> read_text(const std::filesystem::path& path);

/// Creates the folders. Replaces the file atomically: a concurrent reader sees the old text or the new one. An error
/// names the path.
Status replace_text(const std::filesystem::path& path, std::string_view text);

}  // namespace farwarp
