// Copies memory of another process, in the order of a stream.
#include "farwarp/harness/copy_args.h"
#include "farwarp/substrate/device.h"

FARWARP_KERNEL(harness_copy, farwarp::harness::CopyArgs, farwarp::harness::kCopyThreads) {
  using namespace farwarp;
  using namespace farwarp::FARWARP_TARGET;
  for (std::int64_t i = std::int64_t{block_index()} * num_threads() + thread_index(); i < args.count;
       i += std::int64_t{num_blocks()} * num_threads()) {
    store(Peer<Vec16>(args.to) + i, load(Peer<const Vec16>(args.from) + i));
  }
}
