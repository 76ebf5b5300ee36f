// Decoding for more than eight sequences: their vectors stream.
#pragma once

#include "farwarp/models/qwen3/decode.dev.h"
#include "farwarp/models/qwen3/stream_args.h"

namespace farwarp::FARWARP_TARGET::qwen3 {

/// `samples`: sequences have temperatures.
template <int columns, bool samples>
FARWARP_DEVICE void decode_streamed(const StreamArgs& args) {
  const WorldView& view = args.decode.view;
  const bool one_step = args.decode.end_task - args.decode.first_task == 1;
  decode<columns, samples>(args.decode, Phases(args.cells, StreamWorker::of_block(view.heap[view.rank], args.vectors),
                                               kSiteStep, !one_step));
}

}  // namespace farwarp::FARWARP_TARGET::qwen3
