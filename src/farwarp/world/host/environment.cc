#include "farwarp/world/host/environment.h"

#include <fmt/format.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <string_view>
#include <vector>

#include "farwarp/world/host/bootstrap.h"
#include "farwarp/world/host/unique_fd.h"
#include "farwarp/world/view.h"

namespace farwarp {
namespace {

struct Launcher {
  const char* name;
  const char* rank;
  const char* size;
};
/// An inner one first: each may be started by one further down.
constexpr Launcher kLaunchers[] = {{"torchrun or farwarp launch", "RANK", "WORLD_SIZE"},
                                   {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                   {"MVAPICH", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"},
                                   {"MPICH or Intel MPI", "PMI_RANK", "PMI_SIZE"},
                                   {"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"},
                                   {"srun", "SLURM_PROCID", "SLURM_NTASKS"}};
constexpr const Launcher& kSlurmStep = kLaunchers[4];
constexpr const Launcher& kSlurmTasks = kLaunchers[5];

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

/// From MASTER_ADDR and MASTER_PORT. No connection is made to them: the port only distinguishes this job from others on
/// the host.
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
  for (const char* variable : {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PMI_JOBID"}) {
    if (const char* job = get(variable)) return fmt::format("mpi-{}", job);
  }
  const char *job = get("SLURM_JOB_ID"), *step = get("SLURM_STEP_ID");
  if (job && step) return fmt::format("slurm-{}.{}", job, step);
  return invalid_argument(
      "FARWARP_RENDEZVOUS is not set, nor MASTER_ADDR and MASTER_PORT, Open MPI's PMIX_NAMESPACE, PMI_JOBID, or "
      "SLURM_JOB_ID and SLURM_STEP_ID; allowed: a name that is the same on all ranks and that no other job uses, as "
      "by mpiexec -genv FARWARP_RENDEZVOUS NAME");
}

/// Slurm numbers steps from 0; a batch script and the shell of an allocation have no number, or one of the last of 32
/// bits. In them SLURM_PROCID is 0 and SLURM_NTASKS what srun would start. The only task of a step, as of
/// `srun --pty bash`, is a place to start others from.
bool is_slurm_task(const GetEnv& get) {
  if (!get(kSlurmStep.rank)) return false;
  const char *const of_step = get(kSlurmStep.size), *const tasks = of_step ? of_step : get(kSlurmTasks.size);
  if (tasks && std::strcmp(tasks, "1") == 0) return false;
  if (const char* const step = get("SLURM_STEP_ID")) {
    std::uint32_t number = 0;
    constexpr std::uint32_t kFirstReserved = 0xfffffff0;
    const auto [end, error] = std::from_chars(step, step + std::strlen(step), number);
    return error != std::errc() || number < kFirstReserved;
  }
  const char* const environment = get("ENVIRONMENT");  // sbatch sets it
  return of_step || !environment || std::strcmp(environment, "BATCH") != 0;
}

bool is_set(const GetEnv& get, const Launcher& launcher) {
  if (&launcher == &kSlurmStep) return is_slurm_task(get) && get(launcher.size);
  if (&launcher == &kSlurmTasks) return is_slurm_task(get) && !get(kSlurmStep.size);
  return get(launcher.rank) || get(launcher.size);
}

Result<PlaceInEnvironment> read_place(const GetEnv& get, const Launcher& launcher) {
  auto size = read_integer(get, launcher.size, 1, kMaxRanks);
  if (!size.ok()) return size.status();
  auto rank = read_integer(get, launcher.rank, 0, *size - 1);
  if (!rank.ok()) return rank.status();
  return PlaceInEnvironment{*rank, *size};
}

/// Of the innermost launcher. An outer one of one process has started it; any other outer one has to say the same.
Result<PlaceInEnvironment> read_place(const GetEnv& get) {
  const Launcher* inner = nullptr;
  PlaceInEnvironment place;
  for (const Launcher& launcher : kLaunchers) {
    if (!is_set(get, launcher)) continue;
    const auto found = read_place(get, launcher);
    if (!found.ok()) return found.status();
    if (inner == nullptr) {
      inner = &launcher;
      place = *found;
    } else if (found->size > 1 && (found->size != place.size || found->rank != place.rank)) {
      return invalid_argument(fmt::format(
          "{} is {} and {} is {} ({}), but {} is {} and {} is {} ({}); allowed: the same of both, or the variables of "
          "one launcher",
          inner->rank, place.rank, inner->size, place.size, inner->name, launcher.rank, found->rank, launcher.size,
          found->size, launcher.name));
    }
  }
  return place;
}

const char* variable(const char* name) { return std::getenv(name); }

}  // namespace

Result<RankEnvironment> read_rank_environment(const GetEnv& get) {
  const auto place = read_place(get);
  if (!place.ok()) return place.status();
  RankEnvironment environment{place->rank, place->size, {}};
  if (place->size == 1) return environment;
  if (const char* nodes = get("SLURM_STEP_NUM_NODES"); nodes && is_slurm_task(get) && std::strcmp(nodes, "1") != 0)
    return invalid_argument(
        fmt::format("SLURM_STEP_NUM_NODES is '{}'; allowed: 1: ranks on several hosts need a "
                    "Bootstrap of the caller's",
                    nodes));
  auto rendezvous = read_rendezvous(get);
  if (!rendezvous.ok()) return rendezvous.status();
  environment.rendezvous = *rendezvous;
  return environment;
}

std::vector<std::string_view> rank_variables() {
  std::vector<std::string_view> names;
  for (const Launcher& launcher : kLaunchers) names.insert(names.end(), {launcher.rank, launcher.size});
  return names;
}

bool has_ranks(const GetEnv& get) {
  return std::any_of(std::begin(kLaunchers), std::end(kLaunchers),
                     [&](const Launcher& launcher) { return is_set(get, launcher); });
}

bool environment_has_ranks() { return has_ranks(variable); }

Result<PlaceInEnvironment> place_in_environment() { return read_place(variable); }

Result<std::shared_ptr<Bootstrap>> bootstrap_from_environment(std::chrono::milliseconds timeout) {
  auto environment = read_rank_environment(variable);
  if (!environment.ok()) return environment.status();
  return make_process_bootstrap(environment->rank, environment->size, environment->rendezvous, timeout);
}

}  // namespace farwarp
