// The kernels that decode Qwen3 for more than eight sequences: a variant for each number of columns. Each takes the best tokens.
#include "farwarp/models/qwen3/decode.dev.h"
#include "farwarp/models/qwen3/stream_args.h"

namespace farwarp::FARWARP_TARGET::qwen3 {

template <int columns>
FARWARP_DEVICE void decode_streamed(const StreamArgs& args) {
  const WorldView& view = args.decode.view;
  const bool one_step = args.decode.end_task - args.decode.first_task == 1;
  decode<columns, false>(args.decode, Phases(args.cells, {view.heap[view.rank], args.vectors}, kSiteStep, !one_step));
}

FARWARP_KERNEL(qwen3_stream_16, StreamArgs, block_threads(16)) { decode_streamed<16>(args); }
FARWARP_KERNEL(qwen3_stream_32, StreamArgs, block_threads(32)) { decode_streamed<32>(args); }
#if defined(FARWARP_TARGET_CUDA) || defined(FARWARP_TARGET_EMU_SM90)  // 64 KB of shared memory are too few
FARWARP_KERNEL(qwen3_stream_64, StreamArgs, block_threads(64)) { decode_streamed<64>(args); }
#endif

}  // namespace farwarp::FARWARP_TARGET::qwen3
