// The fastest of cuBLASLt's ways to a matrix product: a contender, or a part of one.
#pragma once

#include "farwarp/harness/timing.h"
#include "farwarp/runtime/cublas_product.h"

namespace farwarp::harness {

/// Collective, in the timer's stream. The heuristic's order is a guess: `enqueue`, which enqueues the product, is timed with each
/// algorithm, so that the rival is shown at its best. That has also loaded their kernels.
Status choose_fastest(CublasProduct& product, DeviceTimer& timer, const Work& enqueue);

}  // namespace farwarp::harness
