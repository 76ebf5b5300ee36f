// The kernels that decode Qwen3: a variant for each number of columns. Tokens are drawn.
#include "farwarp/models/qwen3/decode/model.dev.h"

namespace farwarp::FARWARP_TARGET::qwen3 {

FARWARP_KERNEL(qwen3_sample_1, Args, block_threads(1)) { run<Model<1, true>>(args, PacketDispatcher()); }
FARWARP_KERNEL(qwen3_sample_2, Args, block_threads(2)) { run<Model<2, true>>(args, PacketDispatcher()); }
FARWARP_KERNEL(qwen3_sample_4, Args, block_threads(4)) { run<Model<4, true>>(args, PacketDispatcher()); }
FARWARP_KERNEL(qwen3_sample_8, Args, block_threads(8)) { run<Model<8, true>>(args, PacketDispatcher()); }

}  // namespace farwarp::FARWARP_TARGET::qwen3
