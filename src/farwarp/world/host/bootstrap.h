// How ranks find each other before they share memory: rank, size, and an all-gather of bytes with a deadline.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "farwarp/base/status.h"

namespace farwarp {

/// A group of ranks. Implementations: threads of one process, processes of one host, the caller's own. Calls are
/// collective: every rank makes the same calls in the same order, from one thread.
class Bootstrap {
 public:
  virtual ~Bootstrap() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// True if all ranks are threads of this process.
  virtual bool same_process() const = 0;

  /// Every rank's bytes, in rank order; the ranks may send different lengths. kDeadline names the ranks that did not
  /// make this call in time, kPeerLost a rank that is gone, kMismatch a rank that is in another call. After kDeadline
  /// or kPeerLost the group is broken for good: every later call fails with the same message.
  virtual Result<std::vector<std::vector<std::byte>>> allgather(const std::vector<std::byte>& mine,
                                                                std::chrono::milliseconds timeout) = 0;
  /// Every rank's file descriptor, in rank order, valid in this process and owned by the caller (its own one as a dup);
  /// -1 for a rank that passed -1.
  virtual Result<std::vector<int>> allgather_fds(int mine, std::chrono::milliseconds timeout) = 0;

  /// From now on a call also ends with kDeadline, before its own timeout, if a missing rank has given no sign of life
  /// for about `longest`; the error names that rank. Every running process gives signs by itself, whatever its rank
  /// does; a stopped process gives none. Does nothing among threads, where no rank can be stopped without the others,
  /// and where signs are not implemented. A later call replaces the limit.
  virtual void set_longest_silence(std::chrono::milliseconds longest) { (void)longest; }

  /// No rank returns before all ranks have called it.
  Status barrier(std::chrono::milliseconds timeout);
};

/// A group of `size` ranks that are threads of this process. base/host_activity.h says what these threads may have to
/// declare.
std::vector<std::shared_ptr<Bootstrap>> make_thread_bootstraps(int size);

/// Runs `body(bootstrap)` on one new thread per rank and waits for all. Returns ok or the first failure in rank order.
/// A kPeerLost is returned only if there is no other failure, since ranks get it when another rank has failed and
/// returned.
Status run_ranks(int size, const std::function<Status(std::shared_ptr<Bootstrap>)>& body);

/// A rank of processes on one host, over Unix sockets, from the environment that a launcher sets:
///   farwarp launch, torchrun  RANK, WORLD_SIZE
///   Open MPI's mpirun         OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE
///   MVAPICH's mpirun          MV2_COMM_WORLD_RANK, MV2_COMM_WORLD_SIZE
///   MPICH, Intel MPI          PMI_RANK, PMI_SIZE
///   srun                      SLURM_PROCID, SLURM_STEP_NUM_TASKS or SLURM_NTASKS; a batch script itself is no rank
/// A launcher further down may have started one further up, if only one process of it: that one does not count. Any
/// others that are set must agree. The rendezvous' name is FARWARP_RENDEZVOUS, else of MASTER_ADDR and MASTER_PORT, of
/// Open MPI's job, PMI_JOBID, or the Slurm job and step; MPICH and Intel MPI give none:
/// `mpiexec -genv FARWARP_RENDEZVOUS NAME`. kInvalidArgument names the variable that is missing or wrong, or both
/// launchers.
Result<std::shared_ptr<Bootstrap>> bootstrap_from_environment(std::chrono::milliseconds timeout);
/// True if the environment makes this process one of several ranks: a rank or a size is set.
bool environment_has_ranks();
struct PlaceInEnvironment {
  int rank = 0;
  int size = 1;
};
/// What bootstrap_from_environment() would take, without a rendezvous; the only rank, if there is no launcher.
Result<PlaceInEnvironment> place_in_environment();

/// A rank of processes on one host; `rendezvous` names a socket in the abstract namespace, the same on all ranks.
Result<std::shared_ptr<Bootstrap>> make_process_bootstrap(int rank, int size, const std::string& rendezvous,
                                                          std::chrono::milliseconds timeout);

}  // namespace farwarp
