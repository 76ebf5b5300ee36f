// The kernels that decode Qwen3 with the gang dispatcher: a variant for each number of columns.
#include "farwarp/fleet/gang.dev.h"
#include "farwarp/models/qwen3/decode.dev.h"
#include "farwarp/models/qwen3/gang_args.h"

namespace farwarp::FARWARP_TARGET::qwen3 {

FARWARP_DEVICE Gang gang_of(const GangArgs& args) {
  return {args.cells, args.shift, {.entered = kSiteWorkers, .done = kSiteStepEnd, .started = kSiteStepStart}};
}

FARWARP_KERNEL(qwen3_gang_1, GangArgs, block_threads(1)) { decode<1, false>(args.decode, gang_of(args)); }
FARWARP_KERNEL(qwen3_gang_2, GangArgs, block_threads(2)) { decode<2, false>(args.decode, gang_of(args)); }
FARWARP_KERNEL(qwen3_gang_4, GangArgs, block_threads(4)) { decode<4, false>(args.decode, gang_of(args)); }
FARWARP_KERNEL(qwen3_gang_8, GangArgs, block_threads(8)) { decode<8, false>(args.decode, gang_of(args)); }

}  // namespace farwarp::FARWARP_TARGET::qwen3
