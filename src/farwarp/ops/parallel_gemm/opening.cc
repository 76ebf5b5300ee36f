#include "farwarp/ops/parallel_gemm/opening.h"

namespace farwarp::parallel_gemm {

Result<Opening> open(World& world, Kind kind, const ParallelGemmDesc& desc, const OpeningDesc& what) {
  Opening opening;
  Status mine = what.plan;
  if (mine.ok()) {
    auto kernel = world.device().kernel(what.kernel);
    mine = kernel.status();
    if (kernel.ok()) opening.kernel = *kernel;
  }
  const auto slot = world.open_operator(what.name, {what.site_names.begin(), what.site_names.end()},
                                        mine.ok() ? configuration_of(kind, desc, world.size()) : 0);
  if (slot.ok() && !mine.ok()) (void)world.close_operator(*slot);  // all ranks are wrong alike
  if (!mine.ok()) return mine;
  if (!slot.ok()) return slot.status();
  const auto workspace = world.allocate(static_cast<std::size_t>(what.heap_bytes));
  if (!workspace.ok()) {
    (void)world.close_operator(*slot);
    return workspace.status();
  }
  opening.slot = *slot;
  opening.workspace = *workspace;
  return opening;
}

Status close(World& world, Opening& opening) {
  if (!opening.is_open()) return {StatusCode::kMisuse, "the operator was closed before"};
  const Status closed = world.close_operator(opening.slot);
  opening.slot = -1;
  const Status freed = world.free(opening.workspace);
  return closed.ok() ? freed : closed;
}

}  // namespace farwarp::parallel_gemm
