// The kernels that decode Qwen3 for more than eight sequences: a variant for each number of columns. Each takes the best tokens.
#include "farwarp/models/qwen3/stream.dev.h"

namespace farwarp::FARWARP_TARGET::qwen3 {

FARWARP_KERNEL(qwen3_stream_16, StreamArgs, block_threads(16)) { decode_streamed<16, false>(args); }
FARWARP_KERNEL(qwen3_stream_32, StreamArgs, block_threads(32)) { decode_streamed<32, false>(args); }

}  // namespace farwarp::FARWARP_TARGET::qwen3
