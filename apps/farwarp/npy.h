// A file of float32 numbers that NumPy reads (format version 1.0).
#pragma once

#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>

#include "farwarp/base/status.h"

namespace farwarp::cli {

/// The header is written by close(), so no reader takes a file that was not finished.
class NpyFile {
 public:
  /// Replaces a file that is there. An error names the path.
  static Result<NpyFile> create(const std::string& path);

  Status append(std::span<const float> numbers);
  /// `shape`: two dimensions or more, as many numbers as have been appended, last dimension innermost.
  Status close(std::initializer_list<std::int64_t> shape);

 private:
  struct Closer {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  NpyFile(std::string path, std::FILE* file) : path_(std::move(path)), file_(file) {}
  Status failed() const;

  std::string path_;
  std::unique_ptr<std::FILE, Closer> file_;
};

}  // namespace farwarp::cli
