#pragma once

#include <map>
#include <string>

namespace farwarp::cli {

/// version, commit, targets.
std::map<std::string, std::string> build_description();
/// "farwarp 0.1.0, commit 0123456789ab, targets emu_sm90 emu_gfx942".
std::string version_line();

}  // namespace farwarp::cli
