// The kernels that decode Qwen3 with the gang dispatcher: a variant for each number of columns.
#include "farwarp/fleet/gang.dev.h"
#include "farwarp/models/qwen3/decode/model.dev.h"

namespace farwarp::FARWARP_TARGET::qwen3 {

FARWARP_KERNEL(qwen3_gang_1, Args, block_threads(1)) { run<Model<1, false>>(args, gang_of(args.launch)); }
FARWARP_KERNEL(qwen3_gang_2, Args, block_threads(2)) { run<Model<2, false>>(args, gang_of(args.launch)); }
FARWARP_KERNEL(qwen3_gang_4, Args, block_threads(4)) { run<Model<4, false>>(args, gang_of(args.launch)); }
FARWARP_KERNEL(qwen3_gang_8, Args, block_threads(8)) { run<Model<8, false>>(args, gang_of(args.launch)); }

}  // namespace farwarp::FARWARP_TARGET::qwen3
