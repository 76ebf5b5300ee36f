// Part of `farwarp launch`: what ranks write.
#pragma once

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

#include "farwarp/world/host/unique_fd.h"

namespace farwarp::cli {

/// Forwards one stream of a rank in whole lines.
class LineRelay {
 public:
  LineRelay() = default;
  LineRelay(UniqueFd from, int to, int rank) : from_(std::move(from)), to_(to), prefix_(fmt::format("[{}] ", rank)) {
    const char* no_color = std::getenv("NO_COLOR");
    if (::isatty(to) && !(no_color && *no_color)) prefix_ = fmt::format("\x1b[{}m[{}]\x1b[0m ", 31 + rank % 6, rank);
  }

  int fd() const { return from_.get(); }
  int to() const { return to_; }
  /// Why something that the rank has written was lost; 0: nothing was.
  int error() const { return error_; }
  bool open() const { return static_cast<bool>(from_); }

  /// Call when poll() reports the descriptor.
  void pass_on() {
    char buffer[16384];
    const ssize_t count = ::read(from_.get(), buffer, sizeof(buffer));
    if (count < 0 && errno == EINTR) return;
    if (count <= 0) return close();
    line_.append(buffer, static_cast<std::size_t>(count));
    std::string lines;
    std::size_t begin = 0;
    for (std::size_t end; (end = line_.find('\n', begin)) != std::string::npos; begin = end + 1) {
      lines += prefix_;
      lines.append(line_, begin, end + 1 - begin);
    }
    line_.erase(0, begin);
    write_out(lines);
  }

  void close() {
    if (!line_.empty()) write_out(prefix_ + line_ + "\n");
    line_.clear();
    from_.reset();
  }

 private:
  /// Where nothing can be written any more, nothing is read: a rank that writes on gets SIGPIPE, as without the
  /// launcher.
  void write_out(std::string_view text) {
    while (!text.empty() && error_ == 0) {
      const ssize_t count = ::write(to_, text.data(), text.size());
      if (count >= 0) {
        text.remove_prefix(static_cast<std::size_t>(count));
      } else if (errno == EAGAIN) {  // another process has made the open file non-blocking
        pollfd room{to_, POLLOUT, 0};
        (void)::poll(&room, 1, -1);
      } else if (errno != EINTR) {
        error_ = errno;
        from_.reset();
      }
    }
  }

  UniqueFd from_;
  int to_ = -1;
  int error_ = 0;
  std::string prefix_;
  std::string line_;  // the part of the next line that has been read
};

}  // namespace farwarp::cli
