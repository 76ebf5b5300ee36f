#include "farwarp/judge/process.h"

#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <cstring>
#include <thread>
#include <utility>
#include <vector>

namespace farwarp::judge {
namespace {

constexpr int kSocket = 3;  // of the rank's process
constexpr std::chrono::seconds kPatience{5};

}  // namespace

Result<Process> Process::start(std::vector<std::string> command) {
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
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, 2, 1);
  ::posix_spawn_file_actions_adddup2(&actions, theirs.get(), kSocket);
  ::posix_spawn_file_actions_addclosefrom_np(&actions, kSocket + 1);
  pid_t pid = -1;
  const int error = ::posix_spawnp(&pid, argv[0], &actions, nullptr, argv.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0)
    return unavailable(fmt::format("{} cannot be started for a submission: {}", command[0], std::strerror(error)));
  return Process(pid, std::move(ours));
}

Process::Process(Process&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), ended_(std::move(other.ended_)), connection_(std::move(other.connection_)) {}

Process::~Process() {
  if (pid_ < 0 || !ended_.empty()) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

void Process::keep(int status) {
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS) {
    ended_ =
        "was ended by the kernel: a submission may not start processes or programs, read other processes' memory or "
        "send signals";
  } else if (WIFSIGNALED(status)) {
    ended_ = fmt::format("crashed: {}", ::strsignal(WTERMSIG(status)));
  } else {
    ended_ = fmt::format("ended its process with exit status {}", WEXITSTATUS(status));
  }
}

Status Process::stop() {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  if (ended_.empty()) ::kill(pid_, SIGSTOP);
  while (ended_.empty()) {
    int status = 0;
    const pid_t changed = ::waitpid(pid_, &status, WUNTRACED | WNOHANG);
    if (changed == pid_ && WIFSTOPPED(status)) return {};
    if (changed == pid_) {
      keep(status);
    } else if (std::chrono::steady_clock::now() > deadline) {
      return internal_error(fmt::format("process {} does not stop", pid_));
    } else {
      std::this_thread::yield();
    }
  }
  return {StatusCode::kPeerLost, ended_};
}

void Process::resume() const {
  if (ended_.empty()) ::kill(pid_, SIGCONT);
}

std::string Process::how_it_ended(std::chrono::milliseconds longest) {
  const auto deadline = std::chrono::steady_clock::now() + longest;
  while (ended_.empty()) {
    int status = 0;
    if (::waitpid(pid_, &status, WNOHANG) == pid_) {
      keep(status);
    } else if (std::chrono::steady_clock::now() > deadline) {
      return {};
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  return ended_;
}

}  // namespace farwarp::judge
