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
  Status allocated;
  const auto take = [&](std::int64_t bytes, std::uint8_t fill, SymmetricBuffer& buffer) {
    if (bytes == 0 || !allocated.ok()) return;
    const auto taken = world.allocate(static_cast<std::size_t>(bytes), 256, fill);
    allocated = taken.status();
    if (taken.ok()) buffer = *taken;
  };
  take(what.heap_bytes, 0, opening.workspace);
  take(what.words_bytes, 0xff, opening.words);
  if (!allocated.ok()) {
    if (opening.workspace.bytes != 0) (void)world.free(opening.workspace);
    (void)world.close_operator(*slot);
    return allocated;
  }
  opening.slot = *slot;
  return opening;
}

Status close(World& world, Opening& opening) {
  if (!opening.is_open()) return {StatusCode::kMisuse, "the operator was closed before"};
  const Status closed = world.close_operator(opening.slot);
  opening.slot = -1;
  Status freed;
  for (const SymmetricBuffer& buffer : {opening.workspace, opening.words}) {
    if (buffer.bytes != 0 && freed.ok()) freed = world.free(buffer);
  }
  return closed.ok() ? freed : closed;
}

}  // namespace farwarp::parallel_gemm
