// A folder in memory that a fuzzer writes a model's files to.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace farwarp::fuzz {

inline const std::string& folder() {
  static const std::string& kFolder = *new std::string([] {
    const std::string path = "/dev/shm/farwarp_fuzz_" + std::to_string(getpid());
    std::filesystem::create_directories(path);
    std::atexit([] { std::filesystem::remove_all(folder()); });
    return path;
  }());
  return kFolder;
}

inline void write(const std::string& name, std::string_view bytes) {
  std::ofstream(folder() + "/" + name, std::ios::binary | std::ios::trunc) << bytes;
}

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

}  // namespace farwarp::fuzz
