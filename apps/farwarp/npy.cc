#include "npy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

namespace farwarp::cli {
namespace {

constexpr std::size_t kHeaderBytes = 128;  // a multiple of 64 that has room for any shape

}  // namespace

Result<NpyFile> NpyFile::create(const std::string& path) {
  std::error_code error;
  const auto type = std::filesystem::status(path, error).type();
  if (type != std::filesystem::file_type::regular && type != std::filesystem::file_type::not_found)
    return invalid_argument(fmt::format("{} is no regular file", path));
  std::FILE* const file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) return invalid_argument(fmt::format("cannot write {}: {}", path, std::strerror(errno)));
  NpyFile created(path, file);
  const std::string no_header(kHeaderBytes, '\0');
  if (std::fwrite(no_header.data(), 1, kHeaderBytes, file) != kHeaderBytes) return created.failed();
  return created;
}

Status NpyFile::failed() const { return unavailable(fmt::format("cannot write {}: {}", path_, std::strerror(errno))); }

Status NpyFile::append(std::span<const float> numbers) {
  return std::fwrite(numbers.data(), 4, numbers.size(), file_.get()) == numbers.size() ? Status() : failed();
}

Status NpyFile::close(std::initializer_list<std::int64_t> shape) {
  constexpr std::size_t kText = kHeaderBytes - 10;  // after the magic, the version and the text's length
  std::string header("\x93NUMPY\x01\x00", 8);
  header += static_cast<char>(kText);
  header += '\0';
  header += fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}), }}", fmt::join(shape, ", "));
  header.resize(kHeaderBytes - 1, ' ');
  header += '\n';
  std::FILE* const file = file_.get();
  if (std::fseek(file, 0, SEEK_SET) != 0 || std::fwrite(header.data(), 1, kHeaderBytes, file) != kHeaderBytes)
    return failed();
  return std::fclose(file_.release()) == 0 ? Status() : failed();
}

}  // namespace farwarp::cli
