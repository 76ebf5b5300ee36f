// Does nothing for a while. A host function's sleep is off by tens of microseconds; this is off by the clock's tick.
#include "farwarp/harness/delay_args.h"
#include "farwarp/substrate/device.h"

FARWARP_KERNEL(harness_delay, farwarp::harness::DelayArgs, farwarp::harness::kDelayThreads) {
  using namespace farwarp;
  using namespace farwarp::FARWARP_TARGET;
  const std::uint64_t end = nanoseconds() + args.nanoseconds;
  const void* const words[] = {args.word.raw};
  for (std::uint32_t tries = 0; nanoseconds() < end; ++tries) (void)park(words, 1, end, tries);
}
