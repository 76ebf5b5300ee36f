#pragma once

#include "farwarp/substrate/hip/warp.h"

namespace farwarp::FARWARP_TARGET {

// The fences order LDS and global accesses within the workgroup. Its waves share a CU and its L1, so the fences wait
// for LDS only. The empty asm prevents stale scalar loads (see memory.h).
FARWARP_DEVICE void block_sync() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
  asm volatile("" ::: "memory");
}

// CDNA's barrier has no predicate, so this function uses a word of LDS and three barriers.
FARWARP_DEVICE bool block_any(bool predicate) {
  static __attribute__((shared)) std::uint32_t any;
  const Shared<std::uint32_t> word(&any);
  const bool warp_any = ballot(predicate) != 0;
  if (thread_index() == 0) store(word, 0u);
  block_sync();
  if (warp_any && lane_index() == 0) fetch_add(word, 1u);
  block_sync();
  const bool result = load(word) != 0;
  block_sync();
  return result;
}

FARWARP_DEVICE void schedule_fence() { __builtin_amdgcn_sched_barrier(0); }

FARWARP_DEVICE int recomputed(int value) {
  asm volatile("" : "+v"(value));
  return value;
}

FARWARP_DEVICE Vec16 arrived(Vec16 value) {
  asm volatile("" : "+v"(value.lo), "+v"(value.hi));
  return value;
}

// A wave runs in lockstep and its accesses complete in order. Only the compiler must not reorder them.
FARWARP_DEVICE void warp_sync() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
  __builtin_amdgcn_wave_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
  asm volatile("" ::: "memory");
}

}  // namespace farwarp::FARWARP_TARGET
