// The kernels of the all-reduce, compiled once per target. variants.h lists them.
#include "farwarp/ops/all_reduce/one_shot.dev.h"
#include "farwarp/ops/all_reduce/two_shot.dev.h"
#include "farwarp/ops/all_reduce/variants.h"

namespace farwarp::FARWARP_TARGET::all_reduce {

#define FARWARP_ENTRY(name, T, most, form) \
  FARWARP_KERNEL(name, Args, kMaxThreads) { form<T, most>(args); }
FARWARP_ALL_REDUCE(FARWARP_ENTRY)

}  // namespace farwarp::FARWARP_TARGET::all_reduce
