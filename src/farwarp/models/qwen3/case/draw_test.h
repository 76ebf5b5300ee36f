// What draw_test.dev.cc and draw_test.cc share.
#pragma once

#include "farwarp/models/qwen3/decode/args.h"

namespace farwarp::qwen3 {

/// A warp lists the best of `logits` and draws at positions 0 to count - 1.
struct DrawTestArgs {
  const float* logits;
  std::int32_t vocabulary, top_k, count;
  DrawState how;
  std::int32_t* tokens;
};

}  // namespace farwarp::qwen3
