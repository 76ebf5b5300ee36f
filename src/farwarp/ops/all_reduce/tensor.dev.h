// A vector of a tensor of any number of elements: of the last one some may not exist.
#pragma once

#include "farwarp/ops/all_reduce/args.h"
#include "farwarp/tile/sums.dev.h"
#include "farwarp/world/device/wait.dev.h"

namespace farwarp::FARWARP_TARGET::all_reduce {

using namespace farwarp::all_reduce;

/// T as memory holds it: an access has 2 or 4 bytes.
template <class T>
using Stored = std::conditional_t<sizeof(T) == 2, std::uint16_t, std::uint32_t>;

/// [thread] Vector `vector` of the input. Elements that do not exist are zeros.
template <class T>
FARWARP_DEVICE Vec16 load_vector(const Args& args, std::int64_t vector) {
  constexpr int kElements = tile::kVectorElements<T>;
  const std::int64_t first = vector * kElements;
  if (first + kElements <= args.elements)
    return load<Cache::streaming>(Global<const Vec16>(static_cast<const Vec16*>(args.in)) + vector);
  const Global<const Stored<T>> in(static_cast<const Stored<T>*>(args.in));
  Vec16 result{};
#pragma unroll 1  // rare, so it is short
  for (int i = 0; i < kElements; ++i) {
    if (first + i >= args.elements) continue;
    const std::uint64_t bits = std::uint64_t{load(in + (first + i))} << (8 * sizeof(T) * (i % (kElements / 2)));
    (i < kElements / 2 ? result.lo : result.hi) |= bits;
  }
  return result;
}

/// [thread] Stores vector `vector` of the output, without elements that do not exist.
template <class T>
FARWARP_DEVICE void store_vector(const Args& args, std::int64_t vector, Vec16 value) {
  constexpr int kElements = tile::kVectorElements<T>;
  const std::int64_t first = vector * kElements;
  if (first + kElements <= args.elements) {
    store(Global<Vec16>(static_cast<Vec16*>(args.out)) + vector, value);
    return;
  }
  const Global<Stored<T>> out(static_cast<Stored<T>*>(args.out));
#pragma unroll 1  // rare, so it is short
  for (int i = 0; i < kElements; ++i) {
    const std::uint64_t half = i < kElements / 2 ? value.lo : value.hi;
    if (first + i < args.elements)
      store(out + (first + i), static_cast<Stored<T>>(half >> (8 * sizeof(T) * (i % (kElements / 2)))));
  }
}

/// Threads of the block that send and add up: all but those of the last warp.
FARWARP_DEVICE int sending_threads() { return num_threads() - Target::kWarpSize; }

/// [thread] True for threads of the last warp. Its first lane claims the call and leaves it for the block, once all
/// threads have joined. It has stored nothing before: the release of a thread that has sent would wait until that has
/// arrived at the peers.
FARWARP_DEVICE bool keeps_cells(Call& call) {
  if (thread_index() < sending_threads()) return false;
  if (thread_index() > sending_threads()) return true;
  if (block_index() == 0) claim_call(call);
  leave_call(call, 0);
  return true;
}

}  // namespace farwarp::FARWARP_TARGET::all_reduce
