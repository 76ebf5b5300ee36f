#include "farwarp/judge/sandbox.h"

#include <asm/ioctls.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <linux/sockios.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace farwarp::judge {
namespace {

#if defined(__x86_64__)
constexpr std::uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr std::uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#else
#error "which AUDIT_ARCH is it?"
#endif

Status failed(const char* call) {
  return unavailable(fmt::format("a submission cannot be confined: {}: {}", call, std::strerror(errno)));
}

/// A filter of system calls, written from its first instruction to its last.
class Filter {
 public:
  Filter() {
    load(offsetof(seccomp_data, arch));
    // Another architecture's calls have other numbers.
    unless_equal_then_kill(kArchitecture);
    load(offsetof(seccomp_data, nr));
#if defined(__x86_64__)
    add(BPF_JMP | BPF_JGE | BPF_K, 0x4000'0000, 0, 1);  // x32
    kill();
#endif
  }
  void forbid(long number) {
    add(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(number), 0, 1);
    kill();
  }
  void fail(long number, int error) {
    add(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(number), 0, 1);
    give(SECCOMP_RET_ERRNO | static_cast<std::uint32_t>(error));
  }
  /// Allowed if argument 0 has one of `bits`.
  void need_bits(long number, std::uint32_t bits) {
    add(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(number), 0, 4);
    load(argument(0));
    add(BPF_JMP | BPF_JSET | BPF_K, bits, 1, 0);
    kill();
    give(SECCOMP_RET_ALLOW);
  }
  /// Allowed if argument 0 is one of `values`.
  void need_value(long number, const std::vector<std::uint32_t>& values) {
    of_call(number, 2 * values.size() + 2);
    load(argument(0));
    for (const std::uint32_t value : values) if_equal(value, SECCOMP_RET_ALLOW);
    kill();
  }
  /// Fails with EPERM if argument `index` is one of `values`.
  void refuse_values(long number, int index, const std::vector<std::uint32_t>& values) {
    of_call(number, 2 * values.size() + 2);
    load(argument(index));
    for (const std::uint32_t value : values) if_equal(value, SECCOMP_RET_ERRNO | EPERM);
    give(SECCOMP_RET_ALLOW);
  }
  Status install() {
    give(SECCOMP_RET_ALLOW);
    const sock_fprog program{static_cast<unsigned short>(code_.size()), code_.data()};
    if (::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) != 0)
      return failed("seccomp");
    return {};
  }

 private:
  /// Its lower half: little-endian.
  static constexpr std::uint32_t argument(int index) {
    return static_cast<std::uint32_t>(offsetof(seccomp_data, args) + sizeof(std::uint64_t) * index);
  }
  /// The next `instructions` are for this call.
  void of_call(long number, std::size_t instructions) {
    add(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(number), 0, static_cast<int>(instructions));
  }
  void if_equal(std::uint32_t value, std::uint32_t result) {
    add(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1);
    give(result);
  }
  void add(int code, std::uint32_t k, int if_true, int if_false) {
    code_.push_back(
        {static_cast<std::uint16_t>(code), static_cast<std::uint8_t>(if_true), static_cast<std::uint8_t>(if_false), k});
  }
  void load(std::size_t offset) { add(BPF_LD | BPF_W | BPF_ABS, static_cast<std::uint32_t>(offset), 0, 0); }
  void give(std::uint32_t result) { add(BPF_RET | BPF_K, result, 0, 0); }
  void kill() { give(SECCOMP_RET_KILL_PROCESS); }
  void unless_equal_then_kill(std::uint32_t value) {
    add(BPF_JMP | BPF_JEQ | BPF_K, value, 1, 0);
    kill();
  }

  std::vector<sock_filter> code_;
};

}  // namespace

Status hide_memory() { return ::prctl(PR_SET_DUMPABLE, 0) == 0 ? Status() : failed("prctl(PR_SET_DUMPABLE)"); }

Status give_up_privileges() {
  const pid_t parent = ::getppid();
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return failed("prctl(PR_SET_PDEATHSIG)");
  if (::getppid() != parent) return unavailable("the judge has ended");
  const rlimit none{0, 0};
  if (::setrlimit(RLIMIT_CORE, &none) != 0) return failed("setrlimit");
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return failed("prctl(PR_SET_NO_NEW_PRIVS)");
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  const __user_cap_data_struct nothing[_LINUX_CAPABILITY_U32S_3] = {};
  if (::syscall(SYS_capset, &header, nothing) != 0) return failed("capset");
  return hide_memory();
}

Status confine(bool may_start) {
  Filter filter;
  if (!may_start) {
#if defined(__x86_64__)
    filter.forbid(SYS_fork);
    filter.forbid(SYS_vfork);
#endif
    filter.forbid(SYS_execve);
    filter.forbid(SYS_execveat);
  }
  for (const long number : {SYS_ptrace, SYS_process_vm_readv, SYS_process_vm_writev, SYS_pidfd_open, SYS_pidfd_getfd,
                            SYS_pidfd_send_signal, SYS_kcmp, SYS_rt_sigqueueinfo, SYS_rt_tgsigqueueinfo, SYS_tkill,
                            SYS_unshare, SYS_setns, SYS_bpf, SYS_perf_event_open})
    filter.forbid(number);
  filter.fail(SYS_clone3, ENOSYS);  // its flags are in memory, where a filter cannot look; libc then takes clone
  filter.fail(SYS_io_uring_setup, ENOSYS);
  // What sends signals by itself, or reaches other processes.
  for (const long number : {SYS_timer_create, SYS_mq_notify, SYS_userfaultfd, SYS_keyctl, SYS_add_key, SYS_request_key,
                            SYS_process_madvise, SYS_migrate_pages, SYS_move_pages})
    filter.fail(number, EPERM);
  const auto self = static_cast<std::uint32_t>(::getpid());
  // The last ones, because they load another word.
  filter.refuse_values(SYS_fcntl, 1, {F_SETOWN, F_SETSIG, F_SETOWN_EX, F_SETLEASE, F_NOTIFY});
  filter.refuse_values(SYS_ioctl, 1, {FIOSETOWN, SIOCSPGRP, FIOASYNC, TIOCSTI, TIOCSPGRP, TIOCSCTTY});
  filter.refuse_values(SYS_prctl, 0, {PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_PTRACER});
  if (!may_start) filter.need_bits(SYS_clone, CLONE_THREAD);
  filter.need_value(SYS_prlimit64, {0, self});
  filter.need_value(SYS_kill, {self});
  filter.need_value(SYS_tgkill, {self});  // abort()
  return filter.install();
}

}  // namespace farwarp::judge
