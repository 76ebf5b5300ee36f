// What kernels record of themselves (base/trace.h). Nothing here counts as a step, so a schedule is the same with and
// without a trace.
#include "farwarp/substrate/emu/engine.h"

namespace farwarp::emu {

void Engine::begin_trace(Launch& launch) const {
  if (!launch.trace) return;
  launch.trace->kernel = launch.kernel;
  for (const Block& block : launch.blocks)
    launch.trace->blocks.push_back({block.multiprocessor, schedule.now() + 1, 0});
}

void Engine::end_trace(const Block& block) const {
  if (block.launch->trace) block.launch->trace->blocks[static_cast<std::size_t>(block.index)].end = schedule.now() + 1;
}

std::uint64_t trace_time() {
  Engine& the_engine = engine();
  return the_engine.running().launch->trace ? the_engine.schedule.now() + 1 : 0;
}

void trace_end(std::uint64_t begin, TraceRecord record) {
  Engine& the_engine = engine();
  const Thread& thread = the_engine.running();
  record.begin = begin;
  record.length = static_cast<std::uint32_t>(the_engine.schedule.now() + 1 - begin);
  record.lane = static_cast<std::uint8_t>(thread.lane_index);
  thread.launch->trace->entries.push_back({thread.block_index, thread.warp_index, record});
}

}  // namespace farwarp::emu
