#include "farwarp/judge/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <array>
#include <cctype>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "farwarp/judge/frames.h"

namespace farwarp::judge {
namespace {

constexpr int kSocket = 3;  // of the rank's process
constexpr std::chrono::seconds kPatience{5};
constexpr std::size_t kMaxLine = 400, kMaxShown = 64 << 10, kMaxLastLines = 10;

}  // namespace

Result<Process> Process::start(std::vector<std::string> command, const std::string& mark) {
  int sockets[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, sockets) != 0)
    return unavailable(fmt::format("no socket for a submission: {}", std::strerror(errno)));
  UniqueFd ours(sockets[0]), theirs(sockets[1]);
  // A descriptor that is duplicated onto itself would be closed by exec.
  if (theirs.get() == kSocket) theirs = duplicate(kSocket);
  command.push_back(std::to_string(kSocket));
  std::vector<char*> argv;
  for (std::string& argument : command) argv.push_back(argument.data());
  argv.push_back(nullptr);
  int pipe[2];
  if (::pipe2(pipe, O_CLOEXEC) != 0)
    return unavailable(fmt::format("no pipe for a submission: {}", std::strerror(errno)));
  UniqueFd output(pipe[0]), written(pipe[1]);
  ::fcntl(output.get(), F_SETFL, O_NONBLOCK);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  // written may be kSocket: it is duplicated before kSocket is.
  ::posix_spawn_file_actions_adddup2(&actions, written.get(), 1);
  ::posix_spawn_file_actions_adddup2(&actions, written.get(), 2);
  ::posix_spawn_file_actions_adddup2(&actions, theirs.get(), kSocket);
  ::posix_spawn_file_actions_addclosefrom_np(&actions, kSocket + 1);
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
  pid_t pid = -1;
  const int error = ::posix_spawnp(&pid, argv[0], &actions, &attributes, argv.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::posix_spawnattr_destroy(&attributes);
  if (error != 0)
    return unavailable(fmt::format("{} cannot be started for a submission: {}", command[0], std::strerror(error)));
  return Process(pid, std::move(ours), std::move(output), mark);
}

Process::Process(Process&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      ended_(std::move(other.ended_)),
      connection_(std::move(other.connection_)),
      stopped_(other.stopped_),
      output_(std::move(other.output_)),
      mark_(std::move(other.mark_)),
      line_(std::move(other.line_)),
      shown_bytes_(other.shown_bytes_),
      last_lines_(std::move(other.last_lines_)) {}

Process::~Process() {
  if (pid_ < 0) return;
  if (ended_.empty()) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  show_rest();
}

void Process::keep(int status) {
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS) {
    ended_ =
        "was ended by the kernel: a submission may not start processes or programs, read other processes' memory or "
        "send signals";
  } else if (WIFSIGNALED(status)) {
    ended_ = fmt::format("crashed: {}", ::strsignal(WTERMSIG(status)));
  } else if (WEXITSTATUS(status) == kLostJudge) {
    ended_ = "wrote to the judge's socket, or closed it (descriptor 3)";
  } else {
    ended_ = fmt::format("ended its process with exit status {}", WEXITSTATUS(status));
  }
}

Status Process::has_stayed_stopped() {
  int status = 0;
  const pid_t changed = ::waitpid(pid_, &status, WUNTRACED | WCONTINUED | WNOHANG);
  if (changed == 0) return {};
  if (changed == pid_ && (WIFEXITED(status) || WIFSIGNALED(status))) {
    keep(status);
    return {StatusCode::kPeerLost, ended_};
  }
  stopped_ = false;
  return {StatusCode::kMisuse, "ran while it was stopped"};
}

Status Process::stop() {
  if (stopped_ && ended_.empty()) return has_stayed_stopped();
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  if (ended_.empty()) ::kill(pid_, SIGSTOP);
  while (ended_.empty()) {
    int status = 0;
    const pid_t changed = ::waitpid(pid_, &status, WUNTRACED | WNOHANG);
    if (changed == pid_ && WIFSTOPPED(status)) {
      stopped_ = true;
      return {};
    }
    if (changed != 0) {
      keep(changed == pid_ ? status : 0);
    } else if (std::chrono::steady_clock::now() > deadline) {
      return internal_error(fmt::format("process {} does not stop", pid_));
    } else {
      std::this_thread::yield();
    }
  }
  return {StatusCode::kPeerLost, ended_};
}

Status Process::resume() {
  if (!ended_.empty() || !stopped_) return {};
  Status stayed = has_stayed_stopped();
  stopped_ = false;
  if (ended_.empty()) ::kill(pid_, SIGCONT);
  return stayed;
}

void Process::show_output() {
  std::array<char, 4096> bytes;
  for (ssize_t count; (count = ::read(output_.get(), bytes.data(), bytes.size())) > 0;) {
    for (const char c : std::string_view(bytes.data(), static_cast<std::size_t>(count))) {
      if (c == '\n')
        end_line();
      else if (line_.size() < kMaxLine)
        line_ += std::iscntrl(static_cast<unsigned char>(c)) != 0 ? '?' : c;
      else if (line_.size() == kMaxLine)
        line_ += "...";
    }
  }
}

void Process::end_line() {
  const std::string line = mark_ + line_;
  line_.clear();
  shown_bytes_ += line.size() + 1;
  if (shown_bytes_ <= kMaxShown) {
    std::fprintf(stderr, "%s\n", line.c_str());
    return;
  }
  last_lines_.push_back(line);
  if (last_lines_.size() > kMaxLastLines) last_lines_.pop_front();
}

void Process::show_rest() {
  show_output();
  if (!line_.empty()) end_line();
  if (last_lines_.empty()) return;
  std::fprintf(stderr, "%sof %zu bytes the first %zu are shown, and the last lines:\n", mark_.c_str(), shown_bytes_,
               kMaxShown);
  for (const std::string& line : last_lines_) std::fprintf(stderr, "%s\n", line.c_str());
}

std::string Process::how_it_ended(std::chrono::milliseconds longest) {
  const auto deadline = std::chrono::steady_clock::now() + longest;
  while (ended_.empty()) {
    int status = 0;
    const pid_t changed = ::waitpid(pid_, &status, WNOHANG);
    if (changed != 0) {
      keep(changed == pid_ ? status : 0);
    } else if (std::chrono::steady_clock::now() > deadline) {
      return {};
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  return ended_;
}

}  // namespace farwarp::judge
