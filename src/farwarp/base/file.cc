#include "farwarp/base/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace farwarp {
namespace {

Status no_file(int error) { return invalid_argument(fmt::format("cannot be read: {}", std::strerror(error))); }

Status check_kind(const struct stat& found) {
  if (S_ISREG(found.st_mode)) return {};
  const char* const kind = S_ISDIR(found.st_mode)    ? "a folder"
                           : S_ISFIFO(found.st_mode) ? "a pipe"
                           : S_ISSOCK(found.st_mode) ? "a socket"
                                                     : "a device";
  return invalid_argument(fmt::format("is {}; allowed: a regular file", kind));
}

/// An open file that closes itself.
class OpenFile {
 public:
  explicit OpenFile(int fd) : fd_(fd) {}
  OpenFile(OpenFile&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  OpenFile& operator=(OpenFile&&) = delete;
  ~OpenFile() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

/// Asks what it is before it is opened, because opening a device may do something; and again after, because it may be
/// another by then.
Result<OpenFile> open_regular(const std::filesystem::path& path, struct stat& found) {
  if (::stat(path.c_str(), &found) != 0) return no_file(errno);
  if (Status status = check_kind(found); !status.ok()) return status;
  OpenFile file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (file.get() < 0 || ::fstat(file.get(), &found) != 0) return no_file(errno);
  if (Status status = check_kind(found); !status.ok()) return status;
  return file;
}

}  // namespace

Result<std::string> read_file(const std::filesystem::path& path, std::size_t most_bytes) {
  struct stat found {};
  const auto file = open_regular(path, found);
  if (!file.ok()) return file.status();
  const auto too_large = [&](auto bytes) {
    return invalid_argument(fmt::format("has {} bytes; allowed: up to {}", bytes, most_bytes));
  };
  if (static_cast<std::uint64_t>(found.st_size) > most_bytes) return too_large(found.st_size);
  std::string text;
  char buffer[1 << 16];
  while (true) {
    const ssize_t count = ::read(file->get(), buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return no_file(errno);
    if (count == 0) return text;
    text.append(buffer, static_cast<std::size_t>(count));
    if (text.size() > most_bytes) return too_large("more");  // it has grown, or is one of those that have no size
  }
}

Result<MappedFile> MappedFile::open(const std::filesystem::path& path) {
  struct stat found {};
  const auto file = open_regular(path, found);
  if (!file.ok()) return file.status();
  const auto size = static_cast<std::size_t>(found.st_size);
  if (size == 0) return MappedFile({});  // which mmap() refuses
  void* const address = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file->get(), 0);
  if (address == MAP_FAILED) return no_file(errno);
  return MappedFile({static_cast<const std::byte*>(address), size});
}

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

bool same_file(const std::filesystem::path& one, const std::filesystem::path& other) {
  struct stat a {
  }, b{};
  return ::stat(one.c_str(), &a) == 0 && ::stat(other.c_str(), &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

Status check_regular(const std::filesystem::path& path) {
  struct stat found {};
  return ::stat(path.c_str(), &found) == 0 ? check_kind(found) : Status();
}

}  // namespace farwarp
