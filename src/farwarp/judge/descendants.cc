#include "farwarp/judge/descendants.h"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

namespace farwarp::judge {
namespace {

namespace fs = std::filesystem;

/// Those whose parent is a thread of `pid`.
Result<std::vector<pid_t>> children_of(pid_t pid) {
  std::vector<pid_t> children;
  std::error_code error;
  for (const fs::directory_entry& thread : fs::directory_iterator(fmt::format("/proc/{}/task", pid), error)) {
    std::ifstream file(thread.path() / "children");
    if (!file && fs::exists(thread.path(), error))
      return unavailable("the processes of a submission in Python cannot be seen: /proc has no children of threads");
    for (pid_t child = 0; file >> child;) children.push_back(child);
  }
  return children;
}

/// Or gone.
bool has_ended(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string line;
  std::getline(file, line);
  const std::size_t name_end = line.rfind(')');  // the name may have any character
  return name_end == std::string::npos || name_end + 2 >= line.size() || line[name_end + 2] == 'Z';
}

}  // namespace

Status adopt_orphans() {
  if (::prctl(PR_SET_CHILD_SUBREAPER, 1) == 0) return {};
  return unavailable(fmt::format("a submission in Python cannot be confined: prctl: {}", std::strerror(errno)));
}

Result<std::vector<pid_t>> descendants_of(const std::vector<pid_t>& ranks) {
  std::vector<pid_t> looked_at{::getpid()}, found;
  for (std::size_t i = 0; i < looked_at.size(); ++i) {
    const auto children = children_of(looked_at[i]);
    if (!children.ok()) return children.status();
    for (const pid_t child : *children) {
      const bool is_rank = std::find(ranks.begin(), ranks.end(), child) != ranks.end();
      looked_at.push_back(child);
      if (is_rank) continue;
      if (!has_ended(child))
        found.push_back(child);
      else if (i == 0)
        ::waitpid(child, nullptr, WNOHANG);
    }
  }
  return found;
}

}  // namespace farwarp::judge
