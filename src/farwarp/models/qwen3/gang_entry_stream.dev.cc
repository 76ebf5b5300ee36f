// The kernels that decode Qwen3 for more than eight sequences with the gang dispatcher: a variant for each number of columns.
#include "farwarp/fleet/gang.dev.h"
#include "farwarp/models/qwen3/decode.dev.h"
#include "farwarp/models/qwen3/gang_args.h"

namespace farwarp::FARWARP_TARGET::qwen3 {

FARWARP_DEVICE StreamGang gang_of(const StreamGangArgs& args) {
  const WorldView& view = args.decode.view;
  return {args.cells,
          view.heap[view.rank],
          args.vectors,
          {.entered = kSiteWorkers, .done = kSiteStepEnd, .started = kSiteStepStart}};
}

FARWARP_KERNEL(qwen3_gang_16, StreamGangArgs, block_threads(16)) { decode<16, false>(args.decode, gang_of(args)); }
FARWARP_KERNEL(qwen3_gang_32, StreamGangArgs, block_threads(32)) { decode<32, false>(args.decode, gang_of(args)); }

}  // namespace farwarp::FARWARP_TARGET::qwen3
