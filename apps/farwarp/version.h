#pragma once

#include <map>
#include <string>

namespace farwarp::cli {

/// The keys version, commit and targets, with their values.
std::map<std::string, std::string> build_description();
/// "farwarp 0.1.0, commit 0123456789ab, targets emu_sm90 emu_gfx942".
std::string version_line();

}  // namespace farwarp::cli
