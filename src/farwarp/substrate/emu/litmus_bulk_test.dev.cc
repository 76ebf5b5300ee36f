// Litmus kernels with bulk copies (sm90).
#include "farwarp/substrate/device.h"
#include "farwarp/substrate/emu/litmus_memory_test.dev.h"
#include "farwarp/substrate/emu/litmus_test.h"

namespace farwarp::FARWARP_TARGET {

/// Shared -> peer by a bulk copy, then a flag.
template <class Machine>
FARWARP_DEVICE void bulk_store_message(const LitmusArgs& args) {
  if constexpr (Machine::kHasBulkCopy) {
    const int thread = thread_index();
    const Shared<std::uint64_t> words(reinterpret_cast<std::uint64_t*>(block_shared().raw));
    if (args.rank == 0) {
      store(words + thread, std::uint64_t{6});
      if (args.variant != kNoProxyFence) proxy_fence();
      block_sync();
      if (thread != 0) return;
      bulk_store(Peer<std::byte>(args.memory[1] + kLitmusData), block_shared(), num_threads() * 8);
      bulk_commit();
      bulk_wait_read();
      if (args.variant == kNewerPending) {  // a group that nobody reads, after the one that is waited for
        bulk_store(Peer<std::byte>(args.memory[1] + kLitmusData + 2048), block_shared(), 16);
        bulk_commit();
      }
      if (args.variant == kNewerPending || args.variant == kWaitOlderOnly) {
        bulk_wait_all<1>();
      } else if (args.variant != kWaitReadOnly) {
        bulk_wait_all();
      }
      set_flag(args, 1, 1);
      if (args.variant == kNewerPending) bulk_wait_all();
    } else {
      if (thread == 0) wait_flag(args, 1);
      block_sync();
      store(result_of(args) + thread, load(Words(data_of(args, 1).raw + thread)));
    }
  }
}
FARWARP_KERNEL(litmus_bulk_store, LitmusArgs, 64) { bulk_store_message<Target>(args); }

/// The source of a bulk store is overwritten: after bulk_wait_read(), or too early.
template <class Machine>
FARWARP_DEVICE void bulk_store_reuse(const LitmusArgs& args) {
  if constexpr (Machine::kHasBulkCopy) {
    const Shared<std::uint64_t> words(reinterpret_cast<std::uint64_t*>(block_shared().raw));
    store(words, std::uint64_t{1});
    store(words + 1, std::uint64_t{1});
    proxy_fence();
    bulk_store(Peer<std::byte>(args.memory[args.rank] + kLitmusResult), block_shared(), 16);
    bulk_commit();
    if (args.variant != kNoWait) bulk_wait_read();
    store(words, std::uint64_t{2});
    bulk_wait_all();
  }
}
FARWARP_KERNEL(litmus_bulk_reuse, LitmusArgs, 1) { bulk_store_reuse<Target>(args); }

/// Rank 1 acquires rank 0's plain stores and copies them into shared memory, then from there into its result.
template <class Machine>
FARWARP_DEVICE void bulk_load_message(const LitmusArgs& args) {
  if constexpr (Machine::kHasBulkCopy) {
    if (args.rank == 0) {
      for (int i = 0; i < 8; ++i) store(data_of(args, 1) + i, std::uint64_t{4});
      set_flag(args, 1, 1);
      return;
    }
    const Shared<Mbarrier> barrier(reinterpret_cast<Mbarrier*>(block_shared().raw + 512));
    if (thread_index() == 0) {
      mbarrier_init(barrier, 1);
      mbarrier_init_fence();
    }
    block_sync();
    if (thread_index() == 0) {
      wait_flag(args, 1);
      if (args.variant != kNoProxyFence) proxy_fence();
      mbarrier_arrive_expect(barrier, 64);
      bulk_load(block_shared(), Global<const std::byte>(args.memory[1] + kLitmusData), 64, barrier);
    }
    const void* const addresses[] = {barrier.raw};
    for (std::uint32_t tries = 0; args.variant != kNoWait && !mbarrier_test(barrier, 0); ++tries)
      park(addresses, 1, kNever, tries);
    const Shared<std::uint64_t> words(reinterpret_cast<std::uint64_t*>(block_shared().raw));
    if (thread_index() < 8) store(result_of(args) + thread_index(), load(words + thread_index()));
    block_sync();
    for (std::uint32_t tries = 0; !mbarrier_test(barrier, 0); ++tries) park(addresses, 1, kNever, tries);
  }
}
FARWARP_KERNEL(litmus_bulk_load, LitmusArgs, 64) { bulk_load_message<Target>(args); }

}  // namespace farwarp::FARWARP_TARGET
