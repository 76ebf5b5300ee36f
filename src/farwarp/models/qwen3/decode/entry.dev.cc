// The kernels that decode Qwen3 with packets: a variant for each number of columns. Each takes the best tokens.
#include "farwarp/models/qwen3/decode/model.dev.h"

namespace farwarp::FARWARP_TARGET::qwen3 {

FARWARP_KERNEL(qwen3_decode_1, Args, block_threads(1)) { run<Model<1, false>>(args, PacketDispatcher()); }
FARWARP_KERNEL(qwen3_decode_2, Args, block_threads(2)) { run<Model<2, false>>(args, PacketDispatcher()); }
FARWARP_KERNEL(qwen3_decode_4, Args, block_threads(4)) { run<Model<4, false>>(args, PacketDispatcher()); }
FARWARP_KERNEL(qwen3_decode_8, Args, block_threads(8)) { run<Model<8, false>>(args, PacketDispatcher()); }

}  // namespace farwarp::FARWARP_TARGET::qwen3
