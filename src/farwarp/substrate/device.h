// The device vocabulary: everything that a kernel may do to the machine. Each function is one instruction or one idiom,
// without policy.
//
// This file, matrix_units.h, trace.h and amd_forms.h declare and document it; cuda/, hip/ and emu/ define it in files
// of the same names. contract.md states the memory model that the orders and scopes below refer to. RULES.md gives the
// rules for using and extending the vocabulary.
//
// Who calls a function: [thread] any thread on its own; [warp] all threads of the warp together; [block] all threads of
// the block together, and none has exited.
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
//                   static constexpr int kWarpSize; static constexpr bool kHasBulkCopy;
//                   static constexpr Fp8Format kFp8; static constexpr MatrixUnit kMatrixUnit; };
//   MfmaSums and Mfma32Sums, see mfma() and mfma32()

// ---- ids -----------------------------------------------------------------------------------------------------------
// Blocks are one-dimensional; so is the grid. A warp is kWarpSize consecutive threads of a block.

FARWARP_DEVICE int thread_index();    ///< [thread] 0 .. num_threads()-1 in the block
FARWARP_DEVICE int num_threads();     ///< [thread] threads of a block
FARWARP_DEVICE int block_index();     ///< [thread] 0 .. num_blocks()-1
FARWARP_DEVICE int num_blocks();      ///< [thread] blocks of the grid
FARWARP_DEVICE int warp_index();      ///< [thread] the warp's number in its block
FARWARP_DEVICE int lane_index();      ///< [thread] the thread's number in its warp
FARWARP_DEVICE int multiprocessor();  ///< [thread] the SM or CU of this thread; only a hint: preemption may change it
FARWARP_DEVICE int xcc();             ///< [thread] the XCD of this block, 0 to 15 (AMD); 0 on other targets

/// [thread] The block's dynamic shared memory, aligned to 128 bytes; to 1024 (kSwizzleAlignment) where
/// Target::kHasBulkCopy. Its contents at kernel start are undefined.
FARWARP_DEVICE Shared<std::byte> block_shared();

// ---- memory --------------------------------------------------------------------------------------------------------
// T is trivially copyable and has 1, 2, 4, 8 or 16 bytes. Addresses are aligned to sizeof(T). An access of 16 bytes
// counts as two accesses of 8 bytes in no particular order (as PTX models vector accesses).

/// [thread] Weak (plain) load. The caller must order it with every write to the address: a data race is an error.
template <Cache cache = Cache::normal, class T>
FARWARP_DEVICE std::remove_const_t<T> load(Global<T> address);
template <Cache cache = Cache::normal, class T>
FARWARP_DEVICE std::remove_const_t<T> load(Peer<T> address);
template <class T>
FARWARP_DEVICE std::remove_const_t<T> load(Shared<T> address);

/// [thread] A hint to load the line into L2 (CUDA); does nothing on other targets. The address must be valid on all
/// targets.
template <class T>
FARWARP_DEVICE void prefetch(Global<T> address);

/// [thread] Weak (plain) store. Another thread may read the value only after a release by this thread (or by one that
/// synchronised with it) and an acquire by the reader.
template <Cache cache = Cache::normal, class T>
FARWARP_DEVICE void store(Global<T> address, std::type_identity_t<T> value);
template <Cache cache = Cache::normal, class T>
FARWARP_DEVICE void store(Peer<T> address, std::type_identity_t<T> value);
template <class T>
FARWARP_DEVICE void store(Shared<T> address, std::type_identity_t<T> value);

/// [thread] Atomic load of a 4- or 8-byte word; order is relaxed or acquire. An acquire pairs with a release of the
/// same scope.
template <Order order, Scope scope, class T>
FARWARP_DEVICE std::remove_const_t<T> load(Global<T> address);
/// [thread] Atomic store of a 4- or 8-byte word; order is relaxed or release.
template <Order order, Scope scope, class T>
FARWARP_DEVICE void store(Global<T> address, std::type_identity_t<T> value);
/// [thread] Atomic read-modify-write of a 4- or 8-byte word; returns the old value.
template <Order order, Scope scope, class T>
FARWARP_DEVICE T fetch_add(Global<T> address, std::type_identity_t<T> value);
/// [thread] Relaxed fetch_add on shared memory; use a barrier to order it.
FARWARP_DEVICE std::uint32_t fetch_add(Shared<std::uint32_t> address, std::uint32_t value);
template <Order order, Scope scope, class T>
FARWARP_DEVICE T exchange(Global<T> address, std::type_identity_t<T> value);
template <Order order, Scope scope, class T>
FARWARP_DEVICE T compare_exchange(Global<T> address, std::type_identity_t<T> expected, std::type_identity_t<T> desired);

/// [thread] Accesses to cells: always of system scope, in own and in peers' memory. load is relaxed or acquire; store
/// is relaxed or release. A release covers this thread's earlier writes and the writes that it has synchronised with.
/// To release the writes of a whole block, use signal_after_block() of world/device, which drains the stores of every
/// warp first.
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
/// [thread] Makes this thread's last relaxed load of `cell` an acquire. A poll calls it once, after it has read the
/// value that it waits for. It has the effect of fence<Order::acquire, Scope::system>() for this cell, but it does not
/// wait for the thread's own stores: a flag between two H200s takes 1.21 us one way with it, and 1.79 us with the
/// fence.
template <class T>
FARWARP_DEVICE void acquire(Global<SystemCell<T>> cell);

// Plain accesses to a cell, and atomics that name a scope, do not compile.
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

/// [thread] Accesses to packets: two relaxed system-scope accesses of 8 bytes. Each half has its own tag. If both tags
/// match, both halves have arrived. Neither the writer nor the reader needs a fence.
FARWARP_DEVICE void store_packet(Peer<Packet> address, std::uint64_t data, std::uint32_t tag);
FARWARP_DEVICE Packet load_packet(Global<Packet> address);

/// [thread] Accesses to words: 16 bytes as two relaxed system-scope accesses of 8 bytes. The reader sees each 8 bytes
/// whole or not at all.
FARWARP_DEVICE void store_words(Peer<Vec16> address, Vec16 words);
FARWARP_DEVICE Vec16 load_words(Global<const Vec16> address);

/// [thread] A fence of this order and scope. Order::relaxed does not compile.
template <Order order, Scope scope>
FARWARP_DEVICE void fence();

/// [thread] Waits until a later release by *another* warp of the block can cover this warp's earlier stores. AMD:
/// s_waitcnt vmcnt(0), which a barrier does not imply. NVIDIA: does nothing, because releases are cumulative.
FARWARP_DEVICE void drain_stores();

// ---- sync ----------------------------------------------------------------------------------------------------------

/// [block] Barrier; orders the block's shared and global memory accesses among its threads.
FARWARP_DEVICE void block_sync();
/// [block] Barrier; true on every thread if `predicate` is true on any.
FARWARP_DEVICE bool block_any(bool predicate);
/// [warp] Barrier; orders the warp's memory accesses among its threads. Needed even if the lanes run in lockstep,
/// because the compiler may otherwise reorder accesses to shared memory.
FARWARP_DEVICE void warp_sync();
/// [thread] The compiler's scheduler moves no instruction across it; for loops whose instruction order was chosen by
/// hand. Orders no memory and waits for nothing. Does nothing on some targets.
FARWARP_DEVICE void schedule_fence();
/// [all threads of `threads` / kWarpSize warps] Barrier among these warps; orders memory as block_sync() does. `number`
/// is 1 to 15; different numbers are different barriers of the block. Only if Target::kHasBulkCopy.
FARWARP_DEVICE void group_sync(int number, int threads);
/// [all threads of some whole warps] Arrives at the barrier `number` for group_sync() calls of other warps, and does
/// not wait. `threads` counts the threads that arrive and those that wait. Orders this thread's earlier accesses before
/// what follows those group_sync() calls.
FARWARP_DEVICE void group_arrive(int number, int threads);

// Clusters: consecutive blocks of a launch (LaunchConfig::cluster) that run together and reach each other's shared
// memory. Only if TargetTraits::most_clustered is above 1.

/// [thread] The block's number in its cluster.
FARWARP_DEVICE int cluster_rank();
/// [all threads of the cluster] The cluster's barrier in two parts; every thread calls them in turn. cluster_wait()
/// returns when all threads have arrived. It is an acquire: it pairs with cluster_arrive<Order::release>() (0.35 us on
/// an H200), not with relaxed. A barrier is needed before the first access to another block's shared memory, because
/// that block may not have started, and after the last access, because a block must not end while others may access its
/// shared memory.
template <Order order>
FARWARP_DEVICE void cluster_arrive();
FARWARP_DEVICE void cluster_wait();
/// [thread] Weak store to the same address in the shared memory of block `rank` of the cluster. That block may read the
/// value after the cluster's barrier (with release).
template <class T>
FARWARP_DEVICE void store_at(Shared<T> address, int rank, std::type_identity_t<T> value);

// ---- warp ----------------------------------------------------------------------------------------------------------
// Unless marked [thread], every function here is [warp]. None orders memory. T has 4 or 8 bytes. Bit i of a lane mask
// is lane i.

template <class T>
FARWARP_DEVICE T shuffle(T value, int source_lane);
template <class T>
FARWARP_DEVICE T shuffle_xor(T value, int lane_mask);
/// Returns `value`, which must be the same on all lanes. Tells the compiler so. On AMD it can keep the value, and what
/// is computed from it, in scalar registers. On NVIDIA a loop over wgmma() whose bounds come from memory needs it:
/// ptxas makes each wgmma wait for the one before where it takes branches to diverge.
FARWARP_DEVICE int uniform(int value);
FARWARP_DEVICE std::uint64_t ballot(bool predicate);
/// The lanes whose `value` equals mine.
FARWARP_DEVICE std::uint64_t match_any(std::uint32_t value);

FARWARP_DEVICE int count_bits(std::uint64_t mask);   ///< [thread]
FARWARP_DEVICE int lowest_bit(std::uint64_t mask);   ///< [thread] index of the lowest set bit; mask must not be 0
FARWARP_DEVICE int highest_bit(std::uint64_t mask);  ///< [thread] index of the highest set bit; mask must not be 0
FARWARP_DEVICE std::uint64_t lanes_below();          ///< [thread] mask of the lanes below mine

// ---- async: bulk copies and their barriers; only if Target::kHasBulkCopy -------------------------------------------
// Sizes and addresses are multiples of 16 bytes. The copies run in the async proxy. Before a copy reads data that a
// thread stored, the writer must call proxy_fence(). If another thread issues the copy, a barrier must follow the
// fence, or an arrival at an mbarrier that the issuer tests.

using Mbarrier = std::uint64_t;

/// [thread] One thread calls mbarrier_init() and mbarrier_init_fence(); then it may use the barrier, other threads
/// after a block_sync().
/// `arrivals` is the number of arrivals that complete a phase.
FARWARP_DEVICE void mbarrier_init(Shared<Mbarrier> barrier, int arrivals);
FARWARP_DEVICE void mbarrier_init_fence();
/// [thread] Adds `bytes` to the bytes that the current phase waits for, and arrives once.
FARWARP_DEVICE void mbarrier_arrive_expect(Shared<Mbarrier> barrier, int bytes);
/// [thread] Arrives once (release). Pairs with mbarrier_test(): the thread's earlier accesses happen before what
/// follows the phase.
FARWARP_DEVICE void mbarrier_arrive(Shared<Mbarrier> barrier);
/// [thread] True if the phase of this parity has completed (acquire). The bytes that the phase counted are then visible
/// to the caller.
FARWARP_DEVICE bool mbarrier_test(Shared<Mbarrier> barrier, std::uint32_t parity);

/// [thread] Shared <- global. On completion the copy counts `bytes` on the barrier. `cache`: normal, or streaming: L2
/// evicts these lines first.
template <Cache cache = Cache::normal>
FARWARP_DEVICE void bulk_load(Shared<std::byte> destination, Global<const std::byte> source, int bytes,
                              Shared<Mbarrier> barrier);
/// [thread] Peer <- shared. The copy belongs to the calling thread's next bulk_commit().
FARWARP_DEVICE void bulk_store(Peer<std::byte> destination, Shared<const std::byte> source, int bytes);
/// [thread] Makes a group of the stores that this thread issued since its last commit.
FARWARP_DEVICE void bulk_commit();
/// [thread] Waits until all committed groups of this thread but the newest `pending` have *read their sources*; their
/// shared memory may then be reused. Their writes may not have happened yet: a release after this wait does not cover
/// them.
template <int pending = 0>
FARWARP_DEVICE void bulk_wait_read();
/// [thread] Waits until all committed groups of this thread but the newest `pending` have *completed*. Their writes
/// then count as this thread's own writes, and a later release covers them.
template <int pending = 0>
FARWARP_DEVICE void bulk_wait_all();
/// [thread] Orders this thread's earlier ordinary (generic-proxy) accesses before later async-proxy accesses, and the
/// reverse.
FARWARP_DEVICE void proxy_fence();

// Tensor copies move boxes of matrices. The host makes a matrix's map (base/tensor_map.h) and passes it in the kernel's
// arguments. In shared memory a box is 1024-byte aligned and stored whole, in rows of `box_columns` elements, swizzled
// if the map says so (base/swizzle.h). `row` and `column` are in elements; `column` is a multiple of 8.

/// [thread] A hint to load the map into the cache.
FARWARP_DEVICE void tensor_prefetch(const TensorMap& map);
/// [thread] Shared <- box at (row, column). Elements outside the matrix become zero. On completion the copy counts the
/// bytes of the whole box on the barrier, including those outside the matrix.
FARWARP_DEVICE void tensor_load(Shared<std::byte> destination, const TensorMap& map, int row, int column,
                                Shared<Mbarrier> barrier);
/// [thread] Shared <- box at (row, column) of one matrix of a grid. If the map has no such matrix, the box is zeros.
FARWARP_DEVICE void tensor_load(Shared<std::byte> destination, const TensorMap& map, GridIndex matrix, int row,
                                int column, Shared<Mbarrier> barrier);
/// [thread] Box at (row, column) <- shared. Elements outside the matrix are not written. `row` and `column` must not be
/// negative: a negative corner is legal for a load but an illegal instruction for a store (CUDA C++ Programming Guide,
/// "Tensor Memory Access"). The copy belongs to the calling thread's next bulk_commit().
FARWARP_DEVICE void tensor_store(const TensorMap& map, int row, int column, Shared<const std::byte> source);

// ---- conversion and arithmetic -------------------------------------------------------------------------------------

FARWARP_DEVICE float to_float(Half value);  ///< [thread] exact
FARWARP_DEVICE float to_float(Bf16 value);  ///< [thread] exact
/// [thread] Rounds to nearest even. T is Half or Bf16.
template <class T>
FARWARP_DEVICE T round_to(float value);
/// [thread] Rounds two numbers as round_to() does; the first is in the lower 16 bits.
template <class T>
FARWARP_DEVICE std::uint32_t round_pair(float first, float second);
/// [thread] Converts four numbers to e4m3 bytes of the format Target::kFp8, the first in the lowest byte. Rounds to
/// nearest even and saturates.
FARWARP_DEVICE std::uint32_t to_fp8(const float (&values)[4]);
FARWARP_DEVICE void from_fp8(std::uint32_t bytes, float (&values)[4]);  ///< [thread] exact
/// [thread] Four e4m3 bytes -> two pairs of T: bytes 0 and 2, bytes 1 and 3; the first of a pair is in the lower half.
/// Exact, but with Fp8Format::kOcp a NaN becomes 480 or -480. Integer instructions and a product, which on Hopper are
/// faster than its conversions.
template <class T>
FARWARP_DEVICE void widen_fp8(std::uint32_t bytes, std::uint32_t& even, std::uint32_t& odd);
/// [thread] a * b + c, rounded once. Results are bit-equal on all targets.
FARWARP_DEVICE float fused_multiply_add(float a, float b, float c);
/// [thread] Product and sum, each rounded; the compiler does not contract them into a fused multiply-add.
FARWARP_DEVICE float multiply(float a, float b);
FARWARP_DEVICE float add(float a, float b);
FARWARP_DEVICE float divide(float a, float b);  ///< [thread] rounded once
/// [thread] 1 / value, off by 1 ulp at most; exact of powers of two; 0 where the result would be denormal. Bits differ
/// between targets.
FARWARP_DEVICE float reciprocal(float value);
/// [thread] The larger; if one is a NaN, the other.
FARWARP_DEVICE float maximum(float a, float b);
/// [thread] 2 to the power of `value`, off by 2 ulp at most; 0 where the result would be denormal. Bits differ between
/// targets.
FARWARP_DEVICE float exp2(float value);
/// [thread] The base-2 logarithm, off by 2^-22 (absolute, from 0.5 to 2) or 2 ulp at most; minus infinity of 0. Bits
/// differ between targets.
FARWARP_DEVICE float log2(float value);

// ---- clock ---------------------------------------------------------------------------------------------------------

FARWARP_DEVICE std::uint64_t cycles();  ///< [thread] the clock of this multiprocessor
/// [thread] The clock of the device; monotone, in ticks of 32 ns (H200) or 10 ns (MI300X).
FARWARP_DEVICE std::uint64_t nanoseconds();

/// [thread] Only the waits of world/device call it, after poll number `tries` (from 0) of the first `used` words at
/// `addresses` has failed. Pauses until one of the words may have changed or `deadline` (as nanoseconds() counts) has
/// passed; may return early. Returns true if the caller should check its deadline and the abort before it polls again.
/// GPUs: a short pause or none, true every 32nd time.
/// Emulator: the thread sleeps, always true.
template <int count>
FARWARP_DEVICE bool park(const void* const (&addresses)[count], int used, std::uint64_t deadline, std::uint32_t tries);

}  // namespace farwarp::FARWARP_TARGET

#include "farwarp/substrate/amd_forms.h"
#include "farwarp/substrate/matrix_units.h"
#include "farwarp/substrate/trace.h"

#if defined(FARWARP_TARGET_CUDA)
#include "farwarp/substrate/amd_forms_elsewhere.h"
#include "farwarp/substrate/cuda/async.h"
#include "farwarp/substrate/cuda/clock.h"
#include "farwarp/substrate/cuda/convert.h"
#include "farwarp/substrate/cuda/ids.h"
#include "farwarp/substrate/cuda/memory.h"
#include "farwarp/substrate/cuda/mma.h"
#include "farwarp/substrate/cuda/sync.h"
#include "farwarp/substrate/cuda/warp.h"
#include "farwarp/substrate/gpu_cells.h"
#include "farwarp/substrate/gpu_trace.h"
#elif defined(FARWARP_TARGET_HIP)
#include "farwarp/substrate/gpu_cells.h"
#include "farwarp/substrate/gpu_trace.h"
#include "farwarp/substrate/hip/async.h"
#include "farwarp/substrate/hip/clock.h"
#include "farwarp/substrate/hip/convert.h"
#include "farwarp/substrate/hip/ids.h"
#include "farwarp/substrate/hip/memory.h"
#include "farwarp/substrate/hip/mma.h"
#include "farwarp/substrate/hip/sync.h"
#include "farwarp/substrate/hip/warp.h"
#else
#include "farwarp/substrate/amd_forms_elsewhere.h"
#include "farwarp/substrate/emu/async.h"
#include "farwarp/substrate/emu/clock.h"
#include "farwarp/substrate/emu/convert.h"
#include "farwarp/substrate/emu/ids.h"
#include "farwarp/substrate/emu/memory.h"
#include "farwarp/substrate/emu/mma.h"
#include "farwarp/substrate/emu/sync.h"
#include "farwarp/substrate/emu/trace.h"
#include "farwarp/substrate/emu/warp.h"
#endif
#include "farwarp/substrate/packets.h"
