// The kernel that decodes Qwen3 for up to 64 sequences. CDNA3 has too little shared memory for it.
#include "farwarp/models/qwen3/decode/model.dev.h"

namespace farwarp::FARWARP_TARGET::qwen3 {

FARWARP_KERNEL(qwen3_stream_64, Args, block_threads(64)) {
  run<Model<64, false>>(args, stream_dispatcher_of(args.launch));
}

}  // namespace farwarp::FARWARP_TARGET::qwen3
