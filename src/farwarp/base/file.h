// Files that a caller names. Each is a regular one, or an error says what it is; nothing here waits for another
// process.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

#include "farwarp/base/status.h"

namespace farwarp {

/// What is longest of a file of JSON that people or tools write: a configuration, a suite, a table.
inline constexpr std::size_t kMaxJsonBytes = std::size_t{1} << 20;

/// The content. kInvalidArgument says why there is none, without the path: "is a folder; allowed: a regular file".
Result<std::string> read_file(const std::filesystem::path& path, std::size_t most_bytes);

/// A regular file's bytes, read-only. They are read where they are touched.
class MappedFile {
 public:
  /// As read_file().
  static Result<MappedFile> open(const std::filesystem::path& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  explicit MappedFile(std::span<const std::byte> bytes) : bytes_(bytes) {}
  std::span<const std::byte> bytes_;
};

/// Whether both are there and are one file, under whatever names.
bool same_file(const std::filesystem::path& one, const std::filesystem::path& other);

/// Ends in "is a pipe; allowed: a regular file" and the like if `path` is there and is no regular file.
Status check_regular(const std::filesystem::path& path);

}  // namespace farwarp
