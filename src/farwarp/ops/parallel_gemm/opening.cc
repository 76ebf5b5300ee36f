#include "farwarp/ops/parallel_gemm/opening.h"

#include <utility>

namespace farwarp::parallel_gemm {

Result<Opening> open(World& world, Kind kind, const ParallelGemmDesc& desc, const OpeningDesc& what) {
  Opening opening;
  Status mine = what.plan;
  if (mine.ok()) {
    auto kernel = world.device().kernel(what.kernel);
    mine = kernel.status();
    if (kernel.ok()) opening.kernel = *kernel;
  }
  auto opened =
      OpenedOperator::open(world, {.name = what.name,
                                   .site_names = {what.site_names.begin(), what.site_names.end()},
                                   .mine = mine,
                                   .configuration = mine.ok() ? configuration_of(kind, desc, world.size()) : 0,
                                   .buffers = {{what.workspace_bytes, 0}, {what.word_bytes, 0xff}}});
  if (!opened.ok()) return opened.status();
  static_cast<OpenedOperator&>(opening) = std::move(*opened);
  return opening;
}

}  // namespace farwarp::parallel_gemm
