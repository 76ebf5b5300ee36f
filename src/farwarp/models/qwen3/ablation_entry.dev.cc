// The kernels of FleetDispatcher::kOnDemand and kBarrier: a variant for each number of columns.
#include "farwarp/models/qwen3/ablation.dev.h"

namespace farwarp::FARWARP_TARGET::qwen3 {

template <int columns, bool barrier>
FARWARP_DEVICE void decode_on_demand(const Args& args) {
  decode<columns, false>(args, OnDemand<columns, barrier>(args));
}

FARWARP_KERNEL(qwen3_on_demand_1, Args, block_threads(1)) { decode_on_demand<1, false>(args); }
FARWARP_KERNEL(qwen3_on_demand_2, Args, block_threads(2)) { decode_on_demand<2, false>(args); }
FARWARP_KERNEL(qwen3_on_demand_4, Args, block_threads(4)) { decode_on_demand<4, false>(args); }
FARWARP_KERNEL(qwen3_on_demand_8, Args, block_threads(8)) { decode_on_demand<8, false>(args); }
FARWARP_KERNEL(qwen3_barrier_1, Args, block_threads(1)) { decode_on_demand<1, true>(args); }
FARWARP_KERNEL(qwen3_barrier_2, Args, block_threads(2)) { decode_on_demand<2, true>(args); }
FARWARP_KERNEL(qwen3_barrier_4, Args, block_threads(4)) { decode_on_demand<4, true>(args); }
FARWARP_KERNEL(qwen3_barrier_8, Args, block_threads(8)) { decode_on_demand<8, true>(args); }

}  // namespace farwarp::FARWARP_TARGET::qwen3
