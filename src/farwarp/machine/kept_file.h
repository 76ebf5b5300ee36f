// What was measured on a machine and is kept for later: one JSON file for each kind of device and number of ranks.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "farwarp/base/status.h"

namespace farwarp {

/// farwarp/<what>-<device>-x<ranks>.json in $XDG_CACHE_HOME, or in $HOME/.cache; kUnavailable if neither is set.
Result<std::filesystem::path> kept_file(std::string_view what, std::string_view device_name, int ranks);

/// kUnavailable if it cannot be read.
Result<std::string> read_text(const std::filesystem::path& path);

/// Makes the folders. Whoever reads meanwhile finds the old file or the new one, never half of one. An error names the path.
Status replace_text(const std::filesystem::path& path, std::string_view text);

}  // namespace farwarp
