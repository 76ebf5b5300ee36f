// Prints text for people. fmt::print would throw if a stream cannot be written; here the stream's error flag is set,
// which main() checks.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <utility>

namespace farwarp::cli {

template <class... Args>
void print_text(std::FILE* stream, fmt::format_string<Args...> format, Args&&... args) {
  const std::string text = fmt::format(format, std::forward<Args>(args)...);
  std::fwrite(text.data(), 1, text.size(), stream);
}

template <class... Args>
void print_text(fmt::format_string<Args...> format, Args&&... args) {
  print_text(stdout, format, std::forward<Args>(args)...);
}

}  // namespace farwarp::cli
