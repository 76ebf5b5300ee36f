#include "farwarp/ops/parallel_gemm/opening.h"

namespace farwarp::parallel_gemm {
namespace {

/// Frees what has been allocated: buffers that have bytes.
Status free_all(World& world, Opening& opening) {
  Status first;
  for (SymmetricBuffer* const buffer : {&opening.workspace, &opening.words}) {
    if (buffer->bytes == 0) continue;
    const Status freed = world.free(*buffer);
    *buffer = {};
    if (first.ok()) first = freed;
  }
  return first;
}

Status allocate(World& world, const OpeningDesc& what, Opening& opening) {
  const struct {
    SymmetricBuffer& buffer;
    std::int64_t bytes;
    std::uint8_t fill;
  } wanted[] = {{opening.workspace, what.workspace_bytes, 0}, {opening.words, what.word_bytes, 0xff}};
  for (const auto& [buffer, bytes, fill] : wanted) {
    if (bytes == 0) continue;
    const auto allocated = world.allocate(static_cast<std::size_t>(bytes), 256, fill);
    if (!allocated.ok()) {
      (void)free_all(world, opening);
      return allocated.status();
    }
    buffer = *allocated;
  }
  return {};
}

}  // namespace

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
  const Status allocated = allocate(world, what, opening);
  if (!allocated.ok()) {
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
  const Status freed = free_all(world, opening);
  return closed.ok() ? freed : closed;
}

}  // namespace farwarp::parallel_gemm
