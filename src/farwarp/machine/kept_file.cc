#include "farwarp/machine/kept_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>

namespace farwarp {
namespace {

namespace fs = std::filesystem;

std::string slug_of(std::string_view device_name) {
  std::string slug;
  for (const char c : device_name) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte)) {
      slug += static_cast<char>(std::tolower(byte));
    } else if (!slug.empty() && slug.back() != '-') {
      slug += '-';
    }
  }
  if (slug.ends_with('-')) slug.pop_back();
  return slug;
}

}  // namespace

Result<fs::path> kept_file(std::string_view what, std::string_view device_name, int ranks) {
  const auto set = [](const char* variable) {
    const char* const value = std::getenv(variable);
    return value != nullptr && *value == '/' ? fs::path(value) : fs::path();  // XDG: relative paths are to be ignored
  };
  fs::path cache = set("XDG_CACHE_HOME");
  if (cache.empty() && !set("HOME").empty()) cache = set("HOME") / ".cache";
  if (cache.empty())
    return unavailable(fmt::format("no folder to keep {} in: neither XDG_CACHE_HOME nor HOME is a path", what));
  return cache / "farwarp" / fmt::format("{}-{}-x{}.json", what, slug_of(device_name), ranks);
}

Result<std::string> read_text(const fs::path& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return unavailable("it is no file that can be read");  // a pipe would block
  std::ifstream file(path);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file) return unavailable("it cannot be read");
  return text;
}

Status replace_text(const fs::path& path, std::string_view text) {
  const auto failed = [](const fs::path& where, const std::string& why) {
    return unavailable(fmt::format("cannot write {}: {}", where.string(), why));
  };
  std::error_code error;
  if (path.has_parent_path()) fs::create_directories(path.parent_path(), error);
  if (error) return failed(path.parent_path(), error.message());
  const fs::path fresh = fmt::format("{}.{}", path.string(), getpid());
  std::ofstream file(fresh, std::ios::trunc);
  file << text << std::flush;
  const bool written = static_cast<bool>(file);
  const int why = errno;
  file.close();
  if (written) fs::rename(fresh, path, error);
  if (written && !error) return {};
  const Status status = failed(written ? path : fresh, written ? error.message() : std::strerror(why));
  fs::remove(fresh, error);
  return status;
}

}  // namespace farwarp
