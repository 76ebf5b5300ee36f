// Chooses the fastest of cuBLASLt's algorithms for a matrix product, which is a contender or a part of one.
#pragma once

#include "farwarp/harness/timing.h"
#include "farwarp/runtime/cublas_product.h"

namespace farwarp::harness {

/// Collective, on the timer's stream. `enqueue` enqueues the product. Times it with each algorithm, because the order
/// of the heuristic is a guess, and chooses the fastest. This also loads the kernels of all algorithms.
Status choose_fastest(CublasProduct& product, DeviceTimer& timer, const Work& enqueue);

}  // namespace farwarp::harness
