// Reads memory. If it is larger than the L2, what the L2 held before is evicted and what was dirty is written back.
#include "farwarp/harness/flush_args.h"
#include "farwarp/substrate/device.h"

FARWARP_KERNEL(harness_flush, farwarp::harness::FlushArgs, farwarp::harness::kFlushThreads) {
  using namespace farwarp;
  using namespace farwarp::FARWARP_TARGET;
  std::uint64_t bits = 0;
  for (std::int64_t i = std::int64_t{block_index()} * num_threads() + thread_index(); i < args.count;
       i += std::int64_t{num_blocks()} * num_threads()) {
    const Vec16 words = load(Global<const Vec16>(args.memory) + i);
    bits |= words.lo | words.hi;
  }
  if (bits == 1) store(Global<std::uint64_t>(args.sink), bits);  // hardly ever: it keeps the loads from being removed
}
