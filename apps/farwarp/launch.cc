#include "launch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <random>
#include <string_view>
#include <utility>

#include "farwarp/world/host/environment.h"
#include "farwarp/world/host/unique_fd.h"
#include "farwarp/world/view.h"
#include "line_relay.h"

namespace farwarp::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kUsageError = 2;
constexpr int kLacking = 3;      // what a rank has written cannot be written
constexpr int kSignalled = 128;  // plus the signal, as in shells

void complain(const std::string& message) { std::fprintf(stderr, "farwarp launch: %s\n", message.c_str()); }

/// Makes a pipe; exec closes both ends.
bool make_pipe(UniqueFd& read_end, UniqueFd& write_end) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return false;
  read_end.reset(ends[0]);
  write_end.reset(ends[1]);
  return true;
}

struct Rank {
  pid_t pid = 0;
  bool running = false;
  bool stopped = false;  // by SIGSTOP or a similar signal
  LineRelay out;
  LineRelay err;
};

/// The last --deadline-ms in a command, or the default of `farwarp check`. The command itself refuses a value that is
/// not a number.
std::chrono::milliseconds deadline_in(const std::vector<std::string>& command) {
  constexpr std::string_view kOption = "--deadline-ms";
  constexpr std::int64_t kLongest = 24 * 3'600'000;
  std::int64_t deadline_ms = 10'000;
  for (std::size_t i = 0; i < command.size(); ++i) {
    std::string_view text = command[i];
    if (!text.starts_with(kOption)) continue;
    text.remove_prefix(kOption.size());
    if (text.starts_with('=')) {
      text.remove_prefix(1);
    } else if (text.empty() && i + 1 < command.size()) {
      text = command[i + 1];
    }
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc() && end == text.data() + text.size() && value > 0) deadline_ms = std::min(value, kLongest);
  }
  return std::chrono::milliseconds(deadline_ms);
}

class Job {
 public:
  Job(std::chrono::milliseconds deadline, std::chrono::milliseconds report_time)
      : deadline_(deadline), report_time_(report_time) {
    take_signals();
  }

  ~Job() {
    for (Rank& rank : ranks_) {
      if (!rank.running) continue;
      ::kill(-rank.pid, SIGKILL);
      ::waitpid(rank.pid, nullptr, 0);
    }
    ::sigaction(SIGPIPE, &old_pipe_action_, nullptr);
    ::sigaction(SIGCHLD, &old_child_action_, nullptr);
    ::sigprocmask(SIG_SETMASK, &old_mask_, nullptr);
  }

  int run(int size, const std::vector<std::string>& command) {
    const std::string rendezvous = fresh_rendezvous();
    for (int rank = 0; rank < size; ++rank) {
      if (const int error = start(rank, size, rendezvous, command); error != 0) {
        complain(fmt::format("cannot run '{}': {}", command.front(), std::strerror(error)));
        return kUsageError;
      }
    }
    while (any_running()) {
      wait_for_events();
      apply_pressure();
    }
    drain_output();
    return interrupted_by_ != 0 ? kSignalled + interrupted_by_ : first_failure_;
  }

 private:
  /// Signals arrive through a descriptor, between the steps of the loop.
  void take_signals() {
    sigset_t signals;
    sigemptyset(&signals);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) sigaddset(&signals, signal);
    ::sigprocmask(SIG_BLOCK, &signals, &old_mask_);
    struct sigaction action {};
    action.sa_handler = SIG_DFL;
    ::sigaction(SIGCHLD, &action, &old_child_action_);  // if inherited as ignored, children could not be waited for
    action.sa_handler = SIG_IGN;
    ::sigaction(SIGPIPE, &action, &old_pipe_action_);
    signals_.reset(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  }

  static std::string fresh_rendezvous() {
    std::random_device random;
    return fmt::format("launch-{}-{:08x}{:08x}", ::getpid(), random(), random());
  }

  /// The rank's variables, then the environment of this process without variables of the same names, and without other
  /// launchers' ranks.
  static std::vector<std::string> environment_of(int rank, int size, const std::string& rendezvous) {
    std::vector<std::string> variables{fmt::format("RANK={}", rank), fmt::format("LOCAL_RANK={}", rank),
                                       fmt::format("WORLD_SIZE={}", size), fmt::format("LOCAL_WORLD_SIZE={}", size),
                                       "FARWARP_RENDEZVOUS=" + rendezvous};
    const std::size_t own = variables.size();
    const std::vector<std::string_view> others = rank_variables();
    for (char** variable = environ; *variable; ++variable) {
      const std::string_view inherited = *variable;
      const std::string_view name = inherited.substr(0, inherited.find('=') + 1);
      const auto replaces = [&](const std::string& ours) { return ours.starts_with(name); };
      const auto of_another = [&](std::string_view theirs) { return name == std::string(theirs) + "="; };
      if (std::none_of(variables.begin(), variables.begin() + static_cast<std::ptrdiff_t>(own), replaces) &&
          std::none_of(others.begin(), others.end(), of_another))
        variables.emplace_back(inherited);
    }
    return variables;
  }

  static std::vector<char*> pointers_to(std::vector<std::string>& strings) {
    std::vector<char*> pointers;
    for (std::string& text : strings) pointers.push_back(text.data());
    pointers.push_back(nullptr);
    return pointers;
  }

  /// Starts one rank; returns 0, or the errno of what failed.
  int start(int number, int size, const std::string& rendezvous, std::vector<std::string> command) {
    UniqueFd out_read, out_write, err_read, err_write, exec_read, exec_write;
    if (!make_pipe(out_read, out_write) || !make_pipe(err_read, err_write) || !make_pipe(exec_read, exec_write))
      return errno;
    std::vector<std::string> environment = environment_of(number, size, rendezvous);
    const std::vector<char*> argv = pointers_to(command);
    const std::vector<char*> envp = pointers_to(environment);
    const pid_t launcher = ::getpid();
    std::fflush(nullptr);
    const pid_t child = ::fork();
    if (child < 0) return errno;
    if (child == 0) {
      become_rank(launcher, out_write.get(), err_write.get());
      ::execvpe(argv[0], argv.data(), envp.data());
      const int error = errno;
      (void)!::write(exec_write.get(), &error, sizeof(error));
      ::_exit(kUsageError);
    }
    ::setpgid(child, child);  // parent and child both call it, so that it is done before either continues
    ranks_.push_back({child, true, false, LineRelay(std::move(out_read), STDOUT_FILENO, number),
                      LineRelay(std::move(err_read), STDERR_FILENO, number)});
    exec_write.reset();
    int error = 0;  // if exec succeeds, it closes the pipe and nothing is read
    return ::read(exec_read.get(), &error, sizeof(error)) == static_cast<ssize_t>(sizeof(error)) ? error : 0;
  }

  /// In the child: makes a process group of its own, arranges to be killed when the launcher dies, and restores the
  /// signal actions and the mask that the launcher had at its start.
  void become_rank(pid_t launcher, int out, int err) const {
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != launcher) ::_exit(kSignalled + SIGKILL);  // the launcher died before prctl()
    const int null = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    ::dup2(null, STDIN_FILENO);  // N processes cannot share a terminal's input
    ::dup2(out, STDOUT_FILENO);
    ::dup2(err, STDERR_FILENO);
    ::sigaction(SIGPIPE, &old_pipe_action_, nullptr);
    ::sigaction(SIGCHLD, &old_child_action_, nullptr);
    ::sigprocmask(SIG_SETMASK, &old_mask_, nullptr);
  }

  bool any_running() const {
    return std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.running; });
  }

  void signal_all(int signal) const {
    for (const Rank& rank : ranks_) {
      if (rank.running) ::kill(-rank.pid, signal);
    }
  }

  void wait_for_events() {
    poll_output(signals_.get(), next_step_);
    signalfd_siginfo info;
    while (::read(signals_.get(), &info, sizeof(info)) == static_cast<ssize_t>(sizeof(info))) {
      if (info.ssi_signo != SIGCHLD) forward(static_cast<int>(info.ssi_signo));
    }
    for (std::size_t number = 0; number < ranks_.size(); ++number) reap(static_cast<int>(number));
    if (first_failure_ != 0 && only_stopped_run() && next_signal_ != SIGKILL) {
      complain(fmt::format("the ranks that are left are stopped; they have {} ms", report_time_.count()));
      press(SIGKILL, report_time_);
    }
  }

  bool only_stopped_run() const {
    return any_running() &&
           std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return !rank.running || rank.stopped; });
  }

  /// Forwards what ranks have written; returns at `until` at the latest.
  void poll_output(int extra_fd, std::optional<Clock::time_point> until) {
    std::vector<pollfd> fds;
    std::vector<LineRelay*> relays;
    for (Rank& rank : ranks_) {
      for (LineRelay* relay : {&rank.out, &rank.err}) {
        if (!relay->open()) continue;
        fds.push_back({relay->fd(), POLLIN, 0});
        relays.push_back(relay);
      }
    }
    fds.push_back({extra_fd, POLLIN, 0});  // -1 is skipped
    int timeout_ms = -1;
    if (until)
      timeout_ms = static_cast<int>(
          std::max<std::int64_t>(0, std::chrono::ceil<std::chrono::milliseconds>(*until - Clock::now()).count()));
    if (::poll(fds.data(), fds.size(), timeout_ms) <= 0) return;
    for (std::size_t i = 0; i < relays.size(); ++i) {
      if (fds[i].revents == 0) continue;
      relays[i]->pass_on();
      if (relays[i]->error() != 0) lose(*relays[i]);
    }
  }

  /// The first loss counts as the failure; a rank that it ends has not failed by itself.
  void lose(const LineRelay& relay) {
    if (std::exchange(output_lost_, true)) return;
    complain(fmt::format("what a rank has written cannot be written to the standard {}: {}",
                         relay.to() == STDOUT_FILENO ? "output" : "error", std::strerror(relay.error())));
    if (first_failure_ == 0) first_failure_ = kLacking;
  }

  void forward(int signal) {
    if (interrupted_by_ != 0) {  // the second signal kills at once
      signal_all(SIGKILL);
      return;
    }
    interrupted_by_ = signal;
    signal_all(signal);
    press(SIGKILL, report_time_);
  }

  void press(int signal, std::chrono::milliseconds after) {
    next_signal_ = signal;
    next_step_ = Clock::now() + after;
  }

  void reap(int number) {
    Rank& rank = ranks_[static_cast<std::size_t>(number)];
    if (!rank.running) return;
    siginfo_t info{};
    if (::waitid(P_PID, static_cast<id_t>(rank.pid), &info, WSTOPPED | WCONTINUED | WNOHANG) == 0 && info.si_pid != 0)
      rank.stopped = info.si_code != CLD_CONTINUED;
    info = {};
    // Until the rank is waited for its pid is not reused, so its process group cannot be another's.
    if (::waitid(P_PID, static_cast<id_t>(rank.pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0)
      return;
    ::kill(-rank.pid, SIGKILL);  // processes that the rank has left
    ::waitpid(rank.pid, nullptr, 0);
    rank.running = false;
    const bool by_signal = info.si_code != CLD_EXITED;
    const int code = by_signal ? kSignalled + info.si_status : info.si_status;
    if (first_failure_ == 0) first_failure_ = code;
    if (code == 0 || interrupted_by_ != 0 || next_signal_ != 0 || !any_running()) return;
    // The other ranks' kernels wait for it until their deadline; then they report.
    const std::chrono::milliseconds grace = deadline_ + report_time_;
    const std::string how =
        by_signal ? fmt::format("was ended by signal {} ({})", info.si_status, ::strsignal(info.si_status))
                  : fmt::format("has failed with exit status {}", code);
    complain(fmt::format("rank {} {}; the others have {} ms, then SIGTERM, and {} ms later SIGKILL", number, how,
                         grace.count(), report_time_.count()));
    press(SIGTERM, grace);
  }

  /// Sends SIGTERM, and later SIGKILL, to ranks that still run when their time is over.
  void apply_pressure() {
    if (!next_step_ || Clock::now() < *next_step_) return;
    signal_all(next_signal_);
    press(SIGKILL, report_time_);
  }

  /// Forwards what is still in the pipes. Does not wait for a process that has left its rank's group and holds a pipe
  /// open.
  void drain_output() {
    constexpr std::chrono::seconds kLongest{1};
    const Clock::time_point deadline = Clock::now() + kLongest;
    const auto any_open = [&] {
      return std::any_of(ranks_.begin(), ranks_.end(),
                         [](const Rank& rank) { return rank.out.open() || rank.err.open(); });
    };
    while (any_open() && Clock::now() < deadline) poll_output(-1, deadline);
    for (Rank& rank : ranks_) {
      for (LineRelay* relay : {&rank.out, &rank.err}) {
        relay->close();
        if (relay->error() != 0) lose(*relay);
      }
    }
  }

  const std::chrono::milliseconds deadline_;
  const std::chrono::milliseconds report_time_;
  std::vector<Rank> ranks_;
  UniqueFd signals_;
  sigset_t old_mask_{};
  struct sigaction old_pipe_action_ {};
  struct sigaction old_child_action_ {};
  int first_failure_ = 0;
  bool output_lost_ = false;
  int interrupted_by_ = 0;
  int next_signal_ = 0;
  std::optional<Clock::time_point> next_step_;
};

}  // namespace

int launch_command(int ranks, const std::vector<std::string>& command, const LaunchOptions& options) {
  if (ranks < 1 || ranks > kMaxRanks) {
    complain(fmt::format("-n is {}; allowed: 1 to {}", ranks, kMaxRanks));
    return kUsageError;
  }
  if (command.empty() || command.front().empty()) {
    complain("there is no command; usage: farwarp launch -n N -- COMMAND ...");
    return kUsageError;
  }
  return Job(options.deadline.value_or(deadline_in(command)), options.report_time).run(ranks, command);
}

}  // namespace farwarp::cli
