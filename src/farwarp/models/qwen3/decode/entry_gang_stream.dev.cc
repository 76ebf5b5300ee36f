// The kernels that decode Qwen3 with streamed vectors with the gang dispatcher: a variant for each number of
// columns.
#include "farwarp/fleet/gang.dev.h"
#include "farwarp/models/qwen3/decode/model.dev.h"

namespace farwarp::FARWARP_TARGET::qwen3 {

FARWARP_KERNEL(qwen3_gang_16, Args, block_threads(16)) { run<Model<16, false>>(args, gang_of(args.launch)); }
FARWARP_KERNEL(qwen3_gang_32, Args, block_threads(32)) { run<Model<32, false>>(args, gang_of(args.launch)); }

}  // namespace farwarp::FARWARP_TARGET::qwen3
