#include "farwarp/machine/kept_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "farwarp/base/file.h"

namespace farwarp {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxTextBytes = std::size_t{64} << 20;  // prompts of 64 sequences, too

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
  auto text = read_file(path, kMaxTextBytes);
  return text.ok() ? std::move(text) : unavailable("it " + text.status().message());
}

Status replace_text(const fs::path& path, std::string_view text) {
  const auto failed = [](const fs::path& where, const std::string& why) {
    return unavailable(fmt::format("cannot write {}: {}", where.string(), why));
  };
  std::error_code error;
  if (path.has_parent_path()) fs::create_directories(path.parent_path(), error);
  if (error) return failed(path.parent_path(), error.message());
  const std::string fresh = fmt::format("{}.{}", path.string(), getpid());
  unlink(fresh.c_str());  // of a process that was killed, or a link or pipe that another has put there
  const int fd = open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0) return failed(fresh, std::strerror(errno));
  int why = 0;
  while (why == 0 && !text.empty()) {
    const ssize_t count = write(fd, text.data(), text.size());
    if (count > 0) text.remove_prefix(static_cast<std::size_t>(count));
    if (count < 0 && errno != EINTR) why = errno;
  }
  if (close(fd) != 0 && why == 0) why = errno;
  if (why == 0 && std::rename(fresh.c_str(), path.c_str()) != 0) why = errno;
  if (why == 0) return {};
  unlink(fresh.c_str());
  return failed(path, std::strerror(why));
}

}  // namespace farwarp
