// The kernels that decode Qwen3 with streamed vectors: a variant for each number of columns. Each takes the
// best tokens.
#include "farwarp/models/qwen3/decode/model.dev.h"

namespace farwarp::FARWARP_TARGET::qwen3 {

FARWARP_KERNEL(qwen3_stream_16, Args, block_threads(16)) {
  run<Model<16, false>>(args, stream_dispatcher_of(args.launch));
}
FARWARP_KERNEL(qwen3_stream_32, Args, block_threads(32)) {
  run<Model<32, false>>(args, stream_dispatcher_of(args.launch));
}

}  // namespace farwarp::FARWARP_TARGET::qwen3
