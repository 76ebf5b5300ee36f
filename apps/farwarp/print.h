// Text for people. A stream that cannot be written to keeps that in mind, and main() asks it at the end: fmt::print would throw.
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
