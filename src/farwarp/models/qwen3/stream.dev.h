// Decoding for more than eight sequences: their vectors stream.
#pragma once

#include "farwarp/models/qwen3/decode.dev.h"
#include "farwarp/models/qwen3/stream_args.h"

namespace farwarp::FARWARP_TARGET::qwen3 {

template <int columns>
FARWARP_DEVICE void decode_streamed(const StreamArgs& args) {
  const WorldView& view = args.decode.view;
  const bool one_step = args.decode.end_task - args.decode.first_task == 1;
  decode<columns, false>(args.decode, Phases(args.cells, {view.heap[view.rank], args.vectors}, kSiteStep, !one_step));
}

}  // namespace farwarp::FARWARP_TARGET::qwen3
