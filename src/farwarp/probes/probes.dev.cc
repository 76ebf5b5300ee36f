// The probes' kernels, compiled once per target.
#include "farwarp/probes/probes.dev.h"

#include "farwarp/probes/matrix.dev.h"
#include "farwarp/probes/weights.dev.h"

namespace {
namespace device = farwarp::FARWARP_TARGET::probes;
using farwarp::probes::EmptyArgs;
using farwarp::probes::kMatrixThreads;
using farwarp::probes::kStreamThreads;
using farwarp::probes::kSyncThreads;
using farwarp::probes::kWeightThreads;
using farwarp::probes::MatrixArgs;
using farwarp::probes::StreamArgs;
using farwarp::probes::SyncArgs;
using farwarp::probes::WeightsArgs;
}  // namespace

FARWARP_KERNEL(probe_memory_read, StreamArgs, kStreamThreads) { device::read_memory(args); }
FARWARP_KERNEL(probe_memory_copy, StreamArgs, kStreamThreads) { device::copy_memory(args); }
FARWARP_KERNEL(probe_link_load, StreamArgs, kStreamThreads) { device::load_from_peer(args); }
FARWARP_KERNEL(probe_link_store, StreamArgs, kStreamThreads) { device::store_to_targets(args); }
FARWARP_KERNEL(probe_link_bulk, StreamArgs, kStreamThreads) { device::bulk_copy_to_targets(args); }
FARWARP_KERNEL(probe_check, StreamArgs, kStreamThreads) { device::check_tiles(args); }

FARWARP_KERNEL(probe_flag, SyncArgs, kSyncThreads) { device::ping_pong<device::FlagChannel>(args); }
FARWARP_KERNEL(probe_packet, SyncArgs, kSyncThreads) { device::ping_pong<device::PacketChannel>(args); }
FARWARP_KERNEL(probe_barrier, SyncArgs, kSyncThreads) { device::barrier_rounds(args); }

FARWARP_KERNEL(probe_matrix, MatrixArgs, kMatrixThreads) { device::multiply_rounds(args); }

FARWARP_KERNEL(probe_weights, WeightsArgs, kWeightThreads + 32) { device::stream_weights(args); }

FARWARP_KERNEL(probe_empty, EmptyArgs, kSyncThreads) { (void)args; }
