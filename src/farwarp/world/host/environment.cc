#include "farwarp/world/host/environment.h"

#include <fmt/format.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <cstring>

#include "farwarp/world/host/bootstrap.h"
#include "farwarp/world/host/unique_fd.h"
#include "farwarp/world/view.h"

namespace farwarp {
namespace {

struct Launcher {
  const char* rank;
  const char* size;
};
constexpr Launcher kTorchrun{"RANK", "WORLD_SIZE"};  // and farwarp launch
constexpr Launcher kMpirun{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"};

Result<int> read_integer(const GetEnv& get, const char* variable, int lowest, int highest) {
  const char* text = get(variable);
  if (!text) return invalid_argument(fmt::format("{} is not set; allowed: {} to {}", variable, lowest, highest));
  int value = 0;
  const char* end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, value);
  if (error != std::errc() || stop != end || value < lowest || value > highest) {
    return invalid_argument(fmt::format("{} is '{}'; allowed: {} to {}", variable, text, lowest, highest));
  }
  return value;
}

/// True if one of the name's addresses belongs to an interface of this host: only then can a socket be bound to it.
bool is_this_host(const char* name) {
  char own_name[256] = {};
  if (::gethostname(own_name, sizeof(own_name) - 1) == 0 && std::strcmp(own_name, name) == 0) return true;
  if (std::strcmp(name, "localhost") == 0) return true;
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(name, nullptr, &hints, &found) != 0) return false;
  bool local = false;
  for (const addrinfo* entry = found; entry && !local; entry = entry->ai_next) {
    const UniqueFd probe(::socket(entry->ai_family, entry->ai_socktype | SOCK_CLOEXEC, 0));
    local = probe && ::bind(probe.get(), entry->ai_addr, entry->ai_addrlen) == 0;
  }
  ::freeaddrinfo(found);
  return local;
}

/// From MASTER_ADDR and MASTER_PORT. No connection is made to them: the port only distinguishes this job from others on the host.
Result<std::string> rendezvous_of_master(const GetEnv& get) {
  const char* host = get("MASTER_ADDR");
  if (!host)
    return invalid_argument("MASTER_ADDR is not set but MASTER_PORT is; allowed: a name or address of this host");
  if (!is_this_host(host)) {
    return invalid_argument(
        fmt::format("MASTER_ADDR is '{}'; allowed: a name or address of this host: ranks on several hosts need a "
                    "Bootstrap of the caller's",
                    host));
  }
  auto port = read_integer(get, "MASTER_PORT", 1, 65535);
  if (!port.ok()) return port.status();
  return fmt::format("port-{}", *port);
}

Result<std::string> read_rendezvous(const GetEnv& get) {
  if (const char* name = get("FARWARP_RENDEZVOUS")) {
    if (*name) return std::string(name);
    return invalid_argument(
        "FARWARP_RENDEZVOUS is ''; allowed: a name that is the same on all ranks and that no other job uses");
  }
  if (get("MASTER_ADDR") || get("MASTER_PORT")) return rendezvous_of_master(get);
  for (const char* variable : {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"}) {
    if (const char* job = get(variable)) return fmt::format("mpi-{}", job);
  }
  return invalid_argument(
      "FARWARP_RENDEZVOUS is not set, nor MASTER_ADDR and MASTER_PORT, nor mpirun's PMIX_NAMESPACE; allowed: a name "
      "that is "
      "the same on all ranks and that no other job uses");
}

bool is_set(const GetEnv& get, const Launcher& launcher) { return get(launcher.rank) || get(launcher.size); }

}  // namespace

Result<RankEnvironment> read_rank_environment(const GetEnv& get) {
  const Launcher& launcher = is_set(get, kMpirun) && !is_set(get, kTorchrun) ? kMpirun : kTorchrun;
  auto size = read_integer(get, launcher.size, 1, kMaxRanks);
  if (!size.ok()) return size.status();
  auto rank = read_integer(get, launcher.rank, 0, *size - 1);
  if (!rank.ok()) return rank.status();
  RankEnvironment environment{*rank, *size, {}};
  if (*size == 1) return environment;
  auto rendezvous = read_rendezvous(get);
  if (!rendezvous.ok()) return rendezvous.status();
  environment.rendezvous = *rendezvous;
  return environment;
}

bool environment_has_ranks() {
  const GetEnv get = [](const char* name) { return std::getenv(name); };
  return is_set(get, kTorchrun) || is_set(get, kMpirun);
}

Result<std::shared_ptr<Bootstrap>> bootstrap_from_environment(std::chrono::milliseconds timeout) {
  auto environment = read_rank_environment([](const char* name) { return std::getenv(name); });
  if (!environment.ok()) return environment.status();
  return make_process_bootstrap(environment->rank, environment->size, environment->rendezvous, timeout);
}

}  // namespace farwarp
