// Traces on GPUs, in builds with FARWARP_TRACE. A warp writes its records one after the other; a counter in shared
// memory says how many (cuda/trace.h and hip/trace.h have what differs). The host sets `farwarp_trace` before each
// launch (runtime/gpu_device.h).
#pragma once

#include "farwarp/substrate/device.h"

#if defined(FARWARP_TRACE)
#if defined(FARWARP_TARGET_CUDA)
#include "farwarp/substrate/cuda/trace.h"
#else
#include "farwarp/substrate/hip/trace.h"
#endif

namespace farwarp::FARWARP_TARGET {

/// [thread] Called by all threads at their first instruction. Warp 3 writes the stamps, if there is one: in most
/// kernels thread 0 starts the first copies, and others wait for it.
FARWARP_DEVICE void trace_block_begins() {
  if (lane_index() == 0) store(trace_counter(), 0u);
  warp_sync();
  constexpr int kWriter = 3 * 32;
  if (thread_index() != (num_threads() > kWriter ? kWriter : 0) || farwarp_trace.blocks == nullptr) return;
  TraceBlock& block = farwarp_trace.blocks[block_index()];
  block.multiprocessor = static_cast<std::uint64_t>(multiprocessor());
  block.begin_ns = nanoseconds();
  block.begin_cycles = cycles();
}

/// [thread] Called by all threads at their last instruction.
FARWARP_DEVICE void trace_block_ends() {
  if (thread_index() != 0 || farwarp_trace.blocks == nullptr) return;
  TraceBlock& block = farwarp_trace.blocks[block_index()];
  block.end_ns = nanoseconds();
  block.end_cycles = cycles();
}

FARWARP_DEVICE TraceStart trace_start() { return {static_cast<std::uint32_t>(cycles()) | 1}; }

FARWARP_DEVICE void trace_end(TraceStart start, TraceRecord record) {
  if (farwarp_trace.records == nullptr) return;
  const std::uint64_t now = cycles();
  record.length = static_cast<std::uint32_t>(now) - start.time;
  record.begin = now - record.length;
  record.lane = static_cast<std::uint8_t>(lane_index());
  const std::uint32_t number = fetch_add(trace_counter(), 1u);
  const int warp = block_index() * ((num_threads() + Target::kWarpSize - 1) / Target::kWarpSize) + warp_index();
  if (number >= farwarp_trace.per_warp) {
    farwarp_trace.dropped[warp] = number - farwarp_trace.per_warp + 1;
    return;
  }
  Vec16 halves[2];
  __builtin_memcpy(halves, &record, sizeof(record));
  const Global<Vec16> to(
      reinterpret_cast<Vec16*>(farwarp_trace.records + std::int64_t{warp} * farwarp_trace.per_warp + number));
  store<Cache::streaming>(to, halves[0]);
  store<Cache::streaming>(to + 1, halves[1]);
}

}  // namespace farwarp::FARWARP_TARGET

#else

namespace farwarp::FARWARP_TARGET {

FARWARP_DEVICE TraceStart trace_start() { return {}; }
FARWARP_DEVICE void trace_end(TraceStart, TraceRecord) {}
FARWARP_DEVICE bool trace_chosen() { return false; }

}  // namespace farwarp::FARWARP_TARGET

#endif
