// The device vocabulary: everything a kernel may do to the machine, one instruction or one idiom each, no policy.
//
// This file declares and documents it once; cuda/, hip/ and emu/ define it in files of identical names. contract.md
// states the memory model that the orders and scopes below refer to, RULES.md the rules for using and extending the
// vocabulary.
//
// Shorthand of the comments: [thread] any thread may call it on its own; [warp] all threads of the warp call it
// together; [block] all threads of the block call it together, and none has exited.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "farwarp/base/attributes.h"
#include "farwarp/base/half.h"
#include "farwarp/base/machine_shape.h"
#include "farwarp/base/memory_model.h"
#include "farwarp/base/pointers.h"
#include "farwarp/base/tensor_map.h"

#if defined(FARWARP_TARGET_CUDA)
#include "farwarp/substrate/cuda/target.h"
#elif defined(FARWARP_TARGET_HIP)
#include "farwarp/substrate/hip/target.h"
#else
#include "farwarp/substrate/emu/target.h"
#endif

namespace farwarp::FARWARP_TARGET {

// target.h defines
//   struct Target { static constexpr TargetKind kKind; static constexpr TargetTraits kTraits;
//                   static constexpr int kWarpSize; static constexpr bool kHasBulkCopy; static constexpr Fp8Format kFp8;
//                   static constexpr MatrixUnit kMatrixUnit; };

// ---- ids -----------------------------------------------------------------------------------------------------------
// Blocks are one-dimensional; so is the grid. A warp is kWarpSize consecutive threads of a block.

FARWARP_DEVICE int thread_index();    ///< [thread] 0 .. num_threads()-1 in the block
FARWARP_DEVICE int num_threads();     ///< [thread] threads of a block
FARWARP_DEVICE int block_index();     ///< [thread] 0 .. num_blocks()-1
FARWARP_DEVICE int num_blocks();      ///< [thread] blocks of the grid
FARWARP_DEVICE int warp_index();      ///< [thread] the warp's number in its block
FARWARP_DEVICE int lane_index();      ///< [thread] the thread's number in its warp
FARWARP_DEVICE int multiprocessor();  ///< [thread] the SM or CU it runs on; a hint, it may change under preemption
FARWARP_DEVICE int xcc();             ///< [thread] the XCD it runs on (AMD); 0 elsewhere

/// [thread] The block's dynamic shared memory, 128-byte aligned. Its contents at kernel start are undefined.
FARWARP_DEVICE Shared<std::byte> block_shared();

// ---- memory --------------------------------------------------------------------------------------------------------
// T is trivially copyable and 1, 2, 4, 8 or 16 bytes; addresses are aligned to sizeof(T). An access of 16 bytes is two
// accesses of 8 bytes in no particular order (PTX: vector accesses are modelled as scalar ones).

/// [thread] Weak (plain) load: a data race with an unordered write is an error of the caller.
template <Cache cache = Cache::normal, class T>
FARWARP_DEVICE std::remove_const_t<T> load(Global<T> address);
template <Cache cache = Cache::normal, class T>
FARWARP_DEVICE std::remove_const_t<T> load(Peer<T> address);
template <class T>
FARWARP_DEVICE std::remove_const_t<T> load(Shared<T> address);

/// [thread] Asks for the line to be brought near; promises and changes nothing. CUDA: into L2. Elsewhere nothing happens: the
/// address must be valid all the same.
template <class T>
FARWARP_DEVICE void prefetch(Global<T> address);

/// [thread] Weak (plain) store: others may read it only after a release by this thread (or by one that synchronised
/// with it) and an acquire of theirs.
template <Cache cache = Cache::normal, class T>
FARWARP_DEVICE void store(Global<T> address, std::type_identity_t<T> value);
template <Cache cache = Cache::normal, class T>
FARWARP_DEVICE void store(Peer<T> address, std::type_identity_t<T> value);
template <class T>
FARWARP_DEVICE void store(Shared<T> address, std::type_identity_t<T> value);

/// [thread] Atomic load of a 4- or 8-byte word: order is relaxed or acquire. Pairs with a release of the same scope.
template <Order order, Scope scope, class T>
FARWARP_DEVICE std::remove_const_t<T> load(Global<T> address);
/// [thread] Atomic store of a 4- or 8-byte word: order is relaxed or release.
template <Order order, Scope scope, class T>
FARWARP_DEVICE void store(Global<T> address, std::type_identity_t<T> value);
/// [thread] Atomic read-modify-write of a 4- or 8-byte word; returns the old value.
template <Order order, Scope scope, class T>
FARWARP_DEVICE T fetch_add(Global<T> address, std::type_identity_t<T> value);
/// [thread] The same on shared memory, relaxed; a barrier orders it.
FARWARP_DEVICE std::uint32_t fetch_add(Shared<std::uint32_t> address, std::uint32_t value);
template <Order order, Scope scope, class T>
FARWARP_DEVICE T exchange(Global<T> address, std::type_identity_t<T> value);
template <Order order, Scope scope, class T>
FARWARP_DEVICE T compare_exchange(Global<T> address, std::type_identity_t<T> expected, std::type_identity_t<T> desired);

/// [thread] Cells: always system scope, whether mine or a peer's. load: relaxed or acquire; store: relaxed or release.
/// A release orders this thread's earlier writes and what it has synchronised with. For the writes of a whole block use
/// signal_after_block() of world/device, which drains every warp first.
template <Order order, class T>
FARWARP_DEVICE T load(Global<SystemCell<T>> cell);
template <Order order, class T>
FARWARP_DEVICE T load(Peer<SystemCell<T>> cell);
template <Order order, class T>
FARWARP_DEVICE void store(Global<SystemCell<T>> cell, std::type_identity_t<T> value);
template <Order order, class T>
FARWARP_DEVICE void store(Peer<SystemCell<T>> cell, std::type_identity_t<T> value);
template <Order order, class T>
FARWARP_DEVICE T fetch_add(Peer<SystemCell<T>> cell, std::type_identity_t<T> value);
/// [thread] Makes this thread's last relaxed load of `cell` an acquire: what a poll does once, after it has found its
/// value. For one cell this is fence<Order::acquire, Scope::system>() at the target's best price: a flag between two
/// H200s takes 1.21 us one way with it, 1.79 us with the fence, which waits for the thread's own stores as well.
template <class T>
FARWARP_DEVICE void acquire(Global<SystemCell<T>> cell);

// A cell is no other kind of memory: plain accesses to it, and atomics of a chosen scope, do not compile.
template <Cache cache = Cache::normal, CellType C>
void load(Global<C>) = delete;
template <Cache cache = Cache::normal, CellType C>
void load(Peer<C>) = delete;
template <Cache cache = Cache::normal, CellType C>
void store(Global<C>, std::type_identity_t<C>) = delete;
template <Cache cache = Cache::normal, CellType C>
void store(Peer<C>, std::type_identity_t<C>) = delete;
template <Order order, Scope scope, CellType C>
void load(Global<C>) = delete;
template <Order order, Scope scope, CellType C>
void store(Global<C>, std::type_identity_t<C>) = delete;
template <Order order, Scope scope, CellType C>
void fetch_add(Global<C>, std::type_identity_t<C>) = delete;
template <Order order, Scope scope, CellType C>
void exchange(Global<C>, std::type_identity_t<C>) = delete;
template <Order order, Scope scope, CellType C>
void compare_exchange(Global<C>, std::type_identity_t<C>, std::type_identity_t<C>) = delete;

/// [thread] Packets: two relaxed system-scope accesses of 8 bytes. A packet whose two tags both match was written
/// whole, because each half carries its own tag; no fence is needed on either side.
FARWARP_DEVICE void store_packet(Peer<Packet> address, std::uint64_t data, std::uint32_t tag);
FARWARP_DEVICE Packet load_packet(Global<Packet> address);

/// [thread] Words: 16 bytes as two relaxed system-scope accesses of 8, each of which is seen whole or not at all.
FARWARP_DEVICE void store_words(Peer<Vec16> address, Vec16 words);
FARWARP_DEVICE Vec16 load_words(Global<const Vec16> address);

/// [thread] A fence of the given order and scope; relaxed does not compile.
template <Order order, Scope scope>
FARWARP_DEVICE void fence();

/// [thread] Waits until this warp's own stores have reached the point that a later release by *another* warp of the
/// block publishes. AMD: s_waitcnt vmcnt(0), which a barrier does not imply. NVIDIA: nothing, releases are cumulative.
FARWARP_DEVICE void drain_stores();

// ---- sync ----------------------------------------------------------------------------------------------------------

/// [block] Barrier; orders the block's shared and global memory accesses among its threads.
FARWARP_DEVICE void block_sync();
/// [block] Barrier; true on every thread if `predicate` is true on any.
FARWARP_DEVICE bool block_any(bool predicate);
/// [warp] Barrier; orders the warp's memory accesses among its threads. Needed even where lanes run in lockstep:
/// without it the compiler may move shared memory accesses across.
FARWARP_DEVICE void warp_sync();
/// [thread] For loops whose order of instructions was chosen: the compiler's scheduler moves none across. Orders no memory and
/// waits for nothing; may do nothing.
FARWARP_DEVICE void schedule_fence();
/// [the threads of `threads` / kWarpSize whole warps] Barrier among them, number 1 to 15 of the block; orders as block_sync()
/// does. Warps that use different numbers at one time do not meet. Only where Target::kHasBulkCopy.
FARWARP_DEVICE void group_sync(int number, int threads);

// Clusters: consecutive blocks of a launch (LaunchConfig::cluster) that run together and reach each other's shared memory; only
// where TargetTraits::most_clustered is above 1.

/// [thread] The block's number in its cluster.
FARWARP_DEVICE int cluster_rank();
/// [all threads of the cluster] Its barrier in two halves, in turn: all arrive, and who waits has what those did before
/// who arrived with release (0.35 us on an H200) instead of relaxed.
/// Stands before the first access to another block's shared memory, which may not have begun, and behind the last: a block must
/// not end while others may reach into it.
template <Order order>
FARWARP_DEVICE void cluster_arrive();
FARWARP_DEVICE void cluster_wait();
/// [thread] Stores at this address of the shared memory of block `rank` of the cluster. Weak: the cluster's barrier shows it to that block.
template <class T>
FARWARP_DEVICE void store_at(Shared<T> address, int rank, std::type_identity_t<T> value);

// ---- warp ----------------------------------------------------------------------------------------------------------
// Every function here is [warp], and none orders memory. T is 4 or 8 bytes. Lane masks have bit i for lane i.

template <class T>
FARWARP_DEVICE T shuffle(T value, int source_lane);
template <class T>
FARWARP_DEVICE T shuffle_xor(T value, int lane_mask);
/// `value`, the same on every lane, as one that the compiler knows to be: on AMD it and what is computed from it then live in
/// scalar registers.
FARWARP_DEVICE int uniform(int value);
FARWARP_DEVICE std::uint64_t ballot(bool predicate);
/// The lanes whose `value` equals mine.
FARWARP_DEVICE std::uint64_t match_any(std::uint32_t value);

FARWARP_DEVICE int count_bits(std::uint64_t mask);   ///< [thread]
FARWARP_DEVICE int lowest_bit(std::uint64_t mask);   ///< [thread] index of the lowest set bit; mask is not 0
FARWARP_DEVICE int highest_bit(std::uint64_t mask);  ///< [thread] of the highest
FARWARP_DEVICE std::uint64_t lanes_below();          ///< [thread] mask of the lanes below mine

// ---- async: bulk copies and their barriers; only where Target::kHasBulkCopy ----------------------------------------
// Sizes and addresses are multiples of 16 bytes. The copies run in the async proxy: what a thread wrote with ordinary
// stores is read by a copy only after proxy_fence() by the writer, then a barrier if another thread issues the copy.

using Mbarrier = std::uint64_t;

/// [thread] One thread initialises, then mbarrier_init_fence(), then block_sync(), before anybody uses it.
FARWARP_DEVICE void mbarrier_init(Shared<Mbarrier> barrier, int arrivals);
FARWARP_DEVICE void mbarrier_init_fence();
/// [thread] Arrives once and adds `bytes` to what the current phase waits for.
FARWARP_DEVICE void mbarrier_arrive_expect(Shared<Mbarrier> barrier, int bytes);
/// [thread] Arrives once; orders the thread's earlier accesses before what follows the phase's completion.
FARWARP_DEVICE void mbarrier_arrive(Shared<Mbarrier> barrier);
/// [thread] True once the phase of this parity has completed; then the bytes it counted are visible to the caller.
FARWARP_DEVICE bool mbarrier_test(Shared<Mbarrier> barrier, std::uint32_t parity);

/// [thread] Shared <- global; completes `bytes` on the barrier.
FARWARP_DEVICE void bulk_load(Shared<std::byte> destination, Global<const std::byte> source, int bytes,
                              Shared<Mbarrier> barrier);
/// [thread] Peer <- shared; belongs to the calling thread's next bulk_commit().
FARWARP_DEVICE void bulk_store(Peer<std::byte> destination, Shared<const std::byte> source, int bytes);
/// [thread] Closes the group of copies this thread issued since the last commit.
FARWARP_DEVICE void bulk_commit();
/// [thread] All committed groups of this thread but the newest `pending` have *read their sources*: shared memory may be
/// reused. Their writes may not have happened: publishing them after this corrupts data.
template <int pending = 0>
FARWARP_DEVICE void bulk_wait_read();
/// [thread] All committed groups of this thread have *completed*: their writes are this thread's writes and a following
/// release publishes them.
FARWARP_DEVICE void bulk_wait_all();
/// [thread] Orders this thread's earlier generic-proxy accesses before later async-proxy accesses, and the reverse.
FARWARP_DEVICE void proxy_fence();

// Tensor copies: boxes of matrices, whose map the host makes (base/tensor_map.h). A map is part of the kernel's arguments. The
// shared side is 1024-byte aligned and holds the whole box, row after row of `box_columns`, swizzled if the map says so
// (base/swizzle.h). `column` is a multiple of 8 elements.

/// [thread] Asks for the map to be brought near.
FARWARP_DEVICE void tensor_prefetch(const TensorMap& map);
/// [thread] Shared <- box at (row, column). Elements outside the matrix become zero and count: the barrier gets the bytes of
/// the whole box.
FARWARP_DEVICE void tensor_load(Shared<std::byte> destination, const TensorMap& map, int row, int column,
                                Shared<Mbarrier> barrier);
/// [thread] Box at (row, column) <- shared, neither negative (CUDA C++ Programming Guide, "Tensor Memory Access": a load's corner may
/// be, a store's is an illegal instruction); what lies outside the matrix is not written. Belongs to the calling thread's next
/// bulk_commit().
FARWARP_DEVICE void tensor_store(const TensorMap& map, int row, int column, Shared<const std::byte> source);

// ---- mma: matrix units ---------------------------------------------------------------------------------------------
// T is Half or Bf16; sums are fp32. base/fragments.h says which thread holds which elements.

// Only where Target::kMatrixUnit is kWgmma. A warpgroup is four warps, the first of which has a number divisible by 4; its 128
// threads call all of these together. The operands are K-major tiles in shared memory, rows of 64 elements (128 bytes),
// swizzled, 1024-byte aligned; they are read by the async proxy at any time between the call and a wait that covers it.

/// [warpgroup] Before the first wgmma() and again after each wait: orders register accesses.
FARWARP_DEVICE void wgmma_fence();
/// [warpgroup] sums[64 x columns] (+)= A[64 x 16] * B[columns x 16]^T: the 16 columns of the tiles that begin `k` elements into
/// each row, k = 0, 16, 32 or 48. Unless `accumulate`, what `sums` held does not count. Each thread's `sums` are its fragment;
/// they may be neither read nor written before wgmma_wait_all().
template <class T, int columns>
FARWARP_DEVICE void wgmma(float (&sums)[columns / 2], Shared<const std::byte> a, Shared<const std::byte> b, int k,
                          bool accumulate);
/// [warpgroup] Closes the group of wgmma() since the last commit.
FARWARP_DEVICE void wgmma_commit();
/// [warpgroup] All committed groups but the newest `pending` have *read their operands*: shared memory may be reused, once all
/// four warps have come this far. Their sums must not be touched yet.
template <int pending>
FARWARP_DEVICE void wgmma_wait_read();
/// [warpgroup] All committed groups are complete: `sums`, the accumulators of every one of them, may be read and written.
template <int count>
FARWARP_DEVICE void wgmma_wait_all(float (&sums)[count]);
/// [warpgroup] Sets how many registers each thread of the warpgroup has; a multiple of 8. Those that need few go first.
template <int count>
FARWARP_DEVICE void reduce_registers();
template <int count>
FARWARP_DEVICE void raise_registers();

// Only where Target::kMatrixUnit is kMfma.

/// [warp] sums[16 x 16] += A[16 x 16] * B[16 x 16]^T; four consecutive elements of a row of A and of a row of B per thread.
template <class T>
FARWARP_DEVICE void mfma(float (&sums)[4], std::uint64_t a, std::uint64_t b);

// ---- conversion and arithmetic -------------------------------------------------------------------------------------

FARWARP_DEVICE float to_float(Half value);  ///< [thread] exact
FARWARP_DEVICE float to_float(Bf16 value);  ///< [thread] exact
/// [thread] Rounds to nearest even. T is Half or Bf16.
template <class T>
FARWARP_DEVICE T round_to(float value);
/// [thread] Two numbers so rounded, the first in the lower half.
template <class T>
FARWARP_DEVICE std::uint32_t round_pair(float first, float second);
/// [thread] Four numbers as bytes of e4m3 in the format Target::kFp8, the first in the lowest byte: rounded to nearest even,
/// saturating.
FARWARP_DEVICE std::uint32_t to_fp8(const float (&values)[4]);
FARWARP_DEVICE void from_fp8(std::uint32_t bytes, float (&values)[4]);  ///< [thread] exact
/// [thread] a * b + c, rounded once, on every target: results are bit-equal between targets.
FARWARP_DEVICE float fused_multiply_add(float a, float b, float c);
/// [thread] Products and sums that the compiler must not contract into fused ones.
FARWARP_DEVICE float multiply(float a, float b);
FARWARP_DEVICE float add(float a, float b);
FARWARP_DEVICE float divide(float a, float b);  ///< [thread] rounded once

// ---- clock ---------------------------------------------------------------------------------------------------------

FARWARP_DEVICE std::uint64_t cycles();  ///< [thread] of this multiprocessor
/// [thread] Of the device; monotone, in coarse ticks (H200: 32 ns; MI300X: 10 ns).
FARWARP_DEVICE std::uint64_t nanoseconds();

/// [thread] Called by wait primitives only, after poll number `tries` (from 0) of the words at `addresses` found
/// nothing: gives way until one of them may have changed or `deadline` (in nanoseconds()) has passed. May return early.
/// True if the caller should look at its deadline and at the abort before it polls again. GPUs: a short pause, true
/// every 32nd time; emulator: the thread sleeps, always true.
template <int count>
FARWARP_DEVICE bool park(const void* const (&addresses)[count], int used, std::uint64_t deadline, std::uint32_t tries);

}  // namespace farwarp::FARWARP_TARGET

#if defined(FARWARP_TARGET_CUDA)
#include "farwarp/substrate/cuda/async.h"
#include "farwarp/substrate/cuda/clock.h"
#include "farwarp/substrate/cuda/convert.h"
#include "farwarp/substrate/cuda/ids.h"
#include "farwarp/substrate/cuda/memory.h"
#include "farwarp/substrate/cuda/mma.h"
#include "farwarp/substrate/cuda/sync.h"
#include "farwarp/substrate/cuda/warp.h"
#elif defined(FARWARP_TARGET_HIP)
#include "farwarp/substrate/hip/async.h"
#include "farwarp/substrate/hip/clock.h"
#include "farwarp/substrate/hip/convert.h"
#include "farwarp/substrate/hip/ids.h"
#include "farwarp/substrate/hip/memory.h"
#include "farwarp/substrate/hip/mma.h"
#include "farwarp/substrate/hip/sync.h"
#include "farwarp/substrate/hip/warp.h"
#else
#include "farwarp/substrate/emu/async.h"
#include "farwarp/substrate/emu/clock.h"
#include "farwarp/substrate/emu/convert.h"
#include "farwarp/substrate/emu/ids.h"
#include "farwarp/substrate/emu/memory.h"
#include "farwarp/substrate/emu/mma.h"
#include "farwarp/substrate/emu/sync.h"
#include "farwarp/substrate/emu/warp.h"
#endif
