// The shared memory of a worker, in bytes from its begin: the ring of weights, what products need, the model's, and
// what a launch needs.
#pragma once

#include "farwarp/fleet/gang.h"
#include "farwarp/fleet/layout.h"

namespace farwarp::fleet {

/// `model_bytes`: the model's, at kModel. `between_bytes`: what it uses only between products, at kBetween. Without
/// bulk copies vectors wait for products there. With them it has no memory: the model uses the ring's slots.
template <int columns, bool bulk_copy, int model_bytes, int between_bytes>
struct WorkerShared {
  using Project = ProjectShared<columns, bulk_copy>;
  static constexpr int kProject = ring_bytes(columns, bulk_copy);
  static constexpr int kBetween = kProject + Project::vector(0);
  static constexpr int kModel = kProject + aligned(bulk_copy || Project::kBytes > Project::vector(0) + between_bytes
                                                       ? Project::kBytes
                                                       : Project::vector(0) + between_bytes,
                                                   16);
  static constexpr int kStop = kModel + model_bytes;  ///< a word: not 0 if this launch ends with this token
  static constexpr int kDecided = kStop + 8;          ///< an mbarrier: tokens that are done
  static constexpr int kTasks =
      aligned(kDecided + 8, 16);  ///< tasks that the loading thread hands over; without one, what gang knows
  static constexpr int kBytes = kTasks + (bulk_copy ? kTaskRingBytes : kGangPlaceBytes);

  static_assert(model_bytes % 16 == 0);
};

}  // namespace farwarp::fleet
