// The kernel of draw_test.cc.
#include "farwarp/models/qwen3/case/draw_test.h"

#include "farwarp/models/qwen3/decode/top_list.dev.h"

namespace farwarp::FARWARP_TARGET::qwen3 {

FARWARP_KERNEL(qwen3_draw_test, DrawTestArgs, 64) {
  if (warp_index() > 0) return;
  TopList list(args.top_k);
  for (int begin = 0; begin < args.vocabulary; begin += Target::kWarpSize) {
    const int token = begin + lane_index();
    list.offer(token < args.vocabulary ? Candidate::of(load(Global<const float>(args.logits) + token), token)
                                       : Candidate{});
  }
  for (int position = 0; position < args.count; ++position) {
    const std::int32_t token = list.draw(args.how, position);
    if (lane_index() == 0) store(Global<std::int32_t>(args.tokens) + position, token);
  }
}

}  // namespace farwarp::FARWARP_TARGET::qwen3
