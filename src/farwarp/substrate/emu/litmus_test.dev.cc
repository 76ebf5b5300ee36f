// Litmus kernels. Each is a small protocol; its variants have mistakes that the emulator must catch. Those with bulk
// copies are in litmus_bulk_test.dev.cc.
#include "farwarp/substrate/emu/litmus_test.h"

#include "farwarp/substrate/device.h"
#include "farwarp/substrate/emu/litmus_memory_test.dev.h"

namespace farwarp::FARWARP_TARGET {

/// Rank 0 sends 8 words to rank 1 by plain stores and a flag.
FARWARP_KERNEL(litmus_message, LitmusArgs, 1) {
  if (args.rank == 0) {
    for (int i = 0; i < 8; ++i) store(data_of(args, 1) + i, 100u + i);
    set_flag(args, 1, 1);
  } else {
    wait_flag(args, 1);
    for (int i = 0; i < 8; ++i) store(result_of(args) + i, load(Words(data_of(args, 1).raw + i)));
  }
}

/// Rank 0 -> rank 1 -> rank 2. Rank 1 reads no data, but its release passes on what it acquired.
FARWARP_KERNEL(litmus_chain, LitmusArgs, 1) {
  if (args.rank > 0) wait_flag(args, 1);
  if (args.rank == 0) store(data_of(args, 2), std::uint64_t{7});
  if (args.rank < 2) set_flag(args, args.rank + 1, 1);
  if (args.rank == 2) store(result_of(args), load(Words(data_of(args, 2).raw)));
}

/// Two kernels that only their order connects. They write and read the memory of rank `count`.
FARWARP_KERNEL(litmus_write, LitmusArgs, 1) {
  for (int i = 0; i < 8; ++i) store(data_of(args, args.count) + i, std::uint64_t{8});
}
FARWARP_KERNEL(litmus_read, LitmusArgs, 1) {
  for (int i = 0; i < 8; ++i) store(result_of(args) + i, load(Words(data_of(args, args.count).raw + i)));
}
/// Waits for the flag and reads no data. Later kernels use what it has acquired.
FARWARP_KERNEL(litmus_acquire, LitmusArgs, 1) { wait_flag(args, 1); }
/// Sends like rank 0 of litmus_message.
FARWARP_KERNEL(litmus_send, LitmusArgs, 1) {
  for (int i = 0; i < 8; ++i) store(data_of(args, 1) + i, std::uint64_t{8});
  set_flag(args, 1, 1);
}

/// Block 0 sends to block 1 of the same device.
template <Scope scope>
FARWARP_DEVICE void message_between_blocks(const LitmusArgs& args) {
  const Global<std::uint32_t> flag(at<std::uint32_t>(args.memory[args.rank], kLitmusFlag));
  if (block_index() == 0) {
    store(Words(data_of(args, args.rank).raw), std::uint64_t{9});
    store<Order::release, scope>(flag, 1u);
  } else {
    const void* const addresses[] = {flag.raw};
    for (std::uint32_t tries = 0; load<Order::acquire, scope>(flag) == 0; ++tries) park(addresses, 1, kNever, tries);
    store(result_of(args), load(Words(data_of(args, args.rank).raw)));
  }
}

/// Blocks 0 and 1 count in one word. If block 1 counts last, it reads its own addition, which continues block 0's
/// release.
FARWARP_KERNEL(litmus_sequence, LitmusArgs, 1) {
  const Global<std::uint32_t> flag(at<std::uint32_t>(args.memory[args.rank], kLitmusFlag));
  if (block_index() == 0) {
    store(Words(data_of(args, args.rank).raw), std::uint64_t{9});
    if (args.variant == kNoRelease) {
      fetch_add<Order::relaxed, Scope::device>(flag, 1u);
    } else {
      fetch_add<Order::release, Scope::device>(flag, 1u);
    }
    return;
  }
  fetch_add<Order::release, Scope::device>(flag, 1u);
  const void* const addresses[] = {flag.raw};
  for (std::uint32_t tries = 0; load<Order::acquire, Scope::device>(flag) != 2; ++tries)
    park(addresses, 1, kNever, tries);
  store(result_of(args), load(Words(data_of(args, args.rank).raw)));
}

FARWARP_KERNEL(litmus_blocks, LitmusArgs, 1) {
  if (args.variant == kScopeTooNarrow) {
    message_between_blocks<Scope::block>(args);
  } else {
    message_between_blocks<Scope::device>(args);
  }
}

/// Block 0 sends to block `count`, by a flag of chiplet scope or (kRight) of device scope. The reader gives up after a
/// millisecond: to it a flag of another XCD's L2 may stay unseen.
template <Scope scope>
FARWARP_DEVICE void message_to_block(const LitmusArgs& args) {
  const Global<std::uint32_t> flag(at<std::uint32_t>(args.memory[args.rank], kLitmusFlag));
  if (block_index() == 0) {
    store(Words(data_of(args, args.rank).raw), std::uint64_t{9});
    store<Order::release, scope>(flag, 1u);
  } else if (block_index() == args.count) {
    const void* const addresses[] = {flag.raw};
    const std::uint64_t deadline = nanoseconds() + 1'000'000;
    std::uint32_t tries = 0;
    while (load<Order::acquire, scope>(flag) == 0 && nanoseconds() < deadline) park(addresses, 1, deadline, tries++);
    store(result_of(args), load(Words(data_of(args, args.rank).raw)));
  }
}
FARWARP_KERNEL(litmus_chiplet, LitmusArgs, 1) {
  if (args.variant == kScopeTooNarrow) {
    message_to_block<Scope::chiplet>(args);
  } else {
    message_to_block<Scope::device>(args);
  }
}

/// Every block increments its XCD's counter; the last of an XCD increments the device's. The last of all adds up what
/// all blocks stored. There are num_blocks() / count blocks on an XCD. kScopeTooNarrow: all XCDs use one counter of
/// chiplet scope.
FARWARP_KERNEL(litmus_chiplets, LitmusArgs, 1) {
  const Words data(data_of(args, args.rank).raw);
  const Global<std::uint32_t> device(at<std::uint32_t>(args.memory[args.rank], kLitmusFlag));
  const bool one = args.variant == kScopeTooNarrow;
  const Global<std::uint32_t> chiplet = device + 16 * (1 + (one ? 0 : xcc()));
  const auto blocks = static_cast<std::uint32_t>(num_blocks()), xcds = static_cast<std::uint32_t>(args.count);
  store(data + block_index(), std::uint64_t{1});
  const std::uint32_t here = args.variant == kNoAcquire ? fetch_add<Order::release, Scope::chiplet>(chiplet, 1u)
                                                        : fetch_add<Order::acq_rel, Scope::chiplet>(chiplet, 1u);
  if (here + 1 != (one ? blocks : blocks / xcds)) return;
  if (!one) {
    const std::uint32_t arrived = args.variant == kNoRelease ? fetch_add<Order::acquire, Scope::device>(device, 1u)
                                                             : fetch_add<Order::acq_rel, Scope::device>(device, 1u);
    if (arrived + 1 != xcds) return;
  }
  std::uint64_t sum = 0;
  for (int i = 0; i < num_blocks(); ++i) sum += load(data + i);
  store(result_of(args), sum);
}

/// Every block increments its XCD's counter; the last of an XCD increments the device's, for which the first block of
/// each XCD waits. It starts the others of its XCD, and each adds up what all blocks stored. kNoRelease: the last of an
/// XCD does not release to the device; kNoAcquire: nor does the first of an XCD acquire from it; kNoBarrier: the first
/// of an XCD does not release to the others.
FARWARP_KERNEL(litmus_schedulers, LitmusArgs, 1) {
  const Words data(data_of(args, args.rank).raw);
  const Global<std::uint32_t> device(at<std::uint32_t>(args.memory[args.rank], kLitmusFlag));
  const Global<std::uint32_t> arrived = device + 16 * (1 + 2 * xcc()), started = arrived + 16;
  const auto xcds = static_cast<std::uint32_t>(args.count), workers = static_cast<std::uint32_t>(num_blocks()) / xcds;
  store(data + block_index(), std::uint64_t{1});
  if (fetch_add<Order::acq_rel, Scope::chiplet>(arrived, 1u) + 1 == workers) {
    if (args.variant == kNoRelease) {
      fetch_add<Order::relaxed, Scope::device>(device, 1u);
    } else {
      fetch_add<Order::release, Scope::device>(device, 1u);
    }
  }
  const auto wait = [](const auto& arrived_yet, Global<std::uint32_t> word) {
    const void* const addresses[] = {word.raw};
    for (std::uint32_t tries = 0; !arrived_yet(); ++tries) park(addresses, 1, kNever, tries);
  };
  if (block_index() < args.count) {
    wait([&] { return load<Order::relaxed, Scope::device>(device) == xcds; }, device);
    if (args.variant != kNoAcquire) fence<Order::acquire, Scope::device>();
    if (args.variant == kNoBarrier) {
      store<Order::relaxed, Scope::chiplet>(started, 1u);
    } else {
      store<Order::release, Scope::chiplet>(started, 1u);
    }
  } else {
    wait([&] { return load<Order::acquire, Scope::chiplet>(started) == 1; }, started);
  }
  std::uint64_t sum = 0;
  for (int i = 0; i < num_blocks(); ++i) sum += load(data + i);
  store(result_of(args) + block_index(), sum);
}

/// Every block increments a counter. The last one adds up what all blocks stored.
FARWARP_KERNEL(litmus_last_block, LitmusArgs, 64) {
  const Words data(data_of(args, args.rank).raw);
  const Global<std::uint32_t> counter(at<std::uint32_t>(args.memory[args.rank], kLitmusFlag));
  if (thread_index() == 0) store(data + block_index(), std::uint64_t{1});
  if (thread_index() != 0) return;
  const std::uint32_t arrived = args.variant == kNoRelease   ? fetch_add<Order::acquire, Scope::device>(counter, 1u)
                                : args.variant == kNoAcquire ? fetch_add<Order::release, Scope::device>(counter, 1u)
                                                             : fetch_add<Order::acq_rel, Scope::device>(counter, 1u);
  if (arrived + 1 != static_cast<std::uint32_t>(num_blocks())) return;
  std::uint64_t sum = 0;
  for (int i = 0; i < num_blocks(); ++i) sum += load(data + i);
  store(result_of(args), sum);
}

/// The same, with a compare-and-exchange on the upper word of a granule.
FARWARP_KERNEL(litmus_last_exchange, LitmusArgs, 64) {
  const Words data(data_of(args, args.rank).raw);
  const Global<std::uint32_t> counter(at<std::uint32_t>(args.memory[args.rank], kLitmusFlag + 4));
  if (thread_index() != 0) return;
  store(data + block_index(), std::uint64_t{1});
  std::uint32_t seen = 0;
  for (;;) {
    const std::uint32_t found = compare_exchange<Order::acq_rel, Scope::device>(counter, seen, seen + 1);
    if (found == seen) break;
    seen = found;
  }
  if (seen + 1 != static_cast<std::uint32_t>(num_blocks())) return;
  std::uint64_t sum = 0;
  for (int i = 0; i < num_blocks(); ++i) sum += load(data + i);
  store(result_of(args), sum);
}

/// Each lane reads what its neighbour stored in shared memory.
FARWARP_KERNEL(litmus_warp, LitmusArgs, 64) {
  const Shared<std::uint64_t> words(reinterpret_cast<std::uint64_t*>(block_shared().raw));
  store(words + thread_index(), std::uint64_t{5});
  if (args.variant == kNoBarrier) {
    ballot(true);  // brings the lanes together, but orders no memory
  } else {
    warp_sync();
  }
  store(result_of(args) + thread_index(), load(words + (thread_index() ^ 1)));
}

/// All threads of a block of several warps write. Thread 0 sets the flag. All threads of the peer's block read.
FARWARP_KERNEL(litmus_block_signal, LitmusArgs, 256) {
  const int thread = thread_index();
  if (args.rank == 0) {
    store(data_of(args, 1) + thread, std::uint64_t{3});
    if (args.variant != kNoDrain) drain_stores();
    block_sync();
    if (thread == 0) set_flag(args, 1, 1);
  } else {
    if (thread == 0) wait_flag(args, 1);
    block_sync();
    store(result_of(args) + thread, load(Words(data_of(args, 1).raw + thread)));
  }
}

/// A race on 16 bytes: the reader reports if it saw two halves that differ.
FARWARP_KERNEL(litmus_tearing, LitmusArgs, 1) {
  Vec16* const cell = at<Vec16>(args.memory[1], kLitmusData);
  for (std::uint64_t i = 1; i <= 20; ++i) {
    if (args.rank == 0) {
      store(Peer<Vec16>(cell), Vec16{i, i});
    } else {
      const Vec16 seen = load(Global<Vec16>(cell));
      if (seen.lo != seen.hi) store(result_of(args), std::uint64_t{1});
    }
  }
}

/// Packets need no flag and no fence. Counts wrong packets, and polls that saw half a packet.
FARWARP_KERNEL(litmus_packets, LitmusArgs, 1) {
  Packet* const slots = at<Packet>(args.memory[1], kLitmusPackets);
  if (args.rank == 0) {
    for (std::uint64_t i = 0; i < 16; ++i) store_packet(Peer<Packet>(slots + i), i * 0x100000001ull, 77);
    return;
  }
  std::uint64_t wrong = 0;
  std::uint64_t halves = 0;
  for (std::uint64_t i = 0; i < 16; ++i) {
    const void* const addresses[] = {&slots[i].lo, &slots[i].hi};
    for (std::uint32_t tries = 0;; ++tries) {
      const Packet packet = load_packet(Global<Packet>(slots + i));
      if (packet_has_tag(packet, 77)) {
        wrong += packet_data(packet) != i * 0x100000001ull;
        break;
      }
      halves += (packet.lo >> 32 == 77) != (packet.hi >> 32 == 77);
      park(addresses, 2, kNever, tries);
    }
  }
  store(result_of(args), wrong);
  store(result_of(args) + 1, halves);
}

/// Two ranks increment a flag in turn. A lost wake-up would stall them.
FARWARP_KERNEL(litmus_ping_pong, LitmusArgs, 1) {
  for (std::int32_t i = 0; i < args.count; ++i) {
    if (i % 2 == args.rank) {
      set_flag(args, 1 - args.rank, static_cast<std::uint32_t>(i + 1));
    } else {
      wait_flag(args, static_cast<std::uint32_t>(i + 1));
    }
  }
}

// ---- correct use ----------------------------------------------------------------------------------------------------

/// Shuffles, ballots, matches and block_any(); each thread stores its four results.
FARWARP_KERNEL(litmus_collectives, LitmusArgs, 1024) {
  const int thread = thread_index();
  std::uint32_t sum = static_cast<std::uint32_t>(lane_index());
  for (int step = Target::kWarpSize / 2; step > 0; step /= 2) sum += shuffle_xor(sum, step);
  const std::uint64_t odd = ballot(lane_index() % 2 != 0);
  const std::uint64_t same = match_any(static_cast<std::uint32_t>(lane_index() / 8));
  const bool last = block_any(thread == num_threads() - 1);
  const bool none = block_any(false);
  const std::uint64_t first = shuffle(std::uint64_t{1} << 40 | static_cast<std::uint64_t>(warp_index()), 3);
  const Words result = result_of(args) + (block_index() * num_threads() + thread) * 4;
  store(result, std::uint64_t{sum} << 1 | (last && !none));
  store(result + 1, odd);
  store(result + 2, same);
  store(result + 3, first);
}

// ---- misuse ---------------------------------------------------------------------------------------------------------

template <class Machine>
FARWARP_DEVICE void misuse_async(const LitmusArgs& args) {
  if constexpr (Machine::kHasBulkCopy) {
    const Shared<Mbarrier> barrier(reinterpret_cast<Mbarrier*>(block_shared().raw + 512));
    if (args.variant == kUninitialisedMbarrier) mbarrier_test(barrier, 0);
    mbarrier_init(barrier, 1);
    mbarrier_init_fence();
    mbarrier_arrive_expect(barrier, 4096);
    bulk_load(block_shared(), Global<const std::byte>(args.memory[args.rank]), 256, barrier);
  }
}

FARWARP_KERNEL(litmus_misuse, LitmusArgs, 64) {
  const int thread = thread_index();
  const Words own(at<std::uint64_t>(args.memory[args.rank], 0));
  switch (args.variant) {
    case kExitBeforeBarrier:
    case kExitAfterArrival:
      if (thread == 5) return;
      block_sync();
      break;
    case kDividedWarp:
      if (thread == 5) warp_sync();
      block_sync();
      break;
    case kMixedWarpOps:
      if (thread % 2)
        ballot(true);
      else
        shuffle(1, 0);
      break;
    case kPastTheEnd: load(own + kLitmusBytes / 8); break;
    case kMisaligned: load(Global<std::uint32_t>(at<std::uint32_t>(args.memory[args.rank], 2))); break;
    case kUnallocated: store(Words(reinterpret_cast<std::uint64_t*>(0x1000)), std::uint64_t{0}); break;
    case kOtherDevice: load(Words(at<std::uint64_t>(args.memory[1 - args.rank], 0))); break;
    case kBadShared: load(Shared<std::uint32_t>(reinterpret_cast<std::uint32_t*>(block_shared().raw + 1024))); break;
    case kBadLane: shuffle(1, 99); break;
    case kWaitForever:
      if (thread == 0) wait_flag(args, 1);
      block_sync();
      break;
    case kSpin:
      while (load(own) == 0) {
      }
      break;
    case kUninitialisedMbarrier:
    case kCopyOutstanding: misuse_async<Target>(args); break;
  }
}

/// Waits at most `count` microseconds for a flag that no thread sets. The result is the time it took, in ns.
FARWARP_KERNEL(litmus_deadline, LitmusArgs, 1) {
  const std::uint64_t start = nanoseconds();
  wait_flag(args, 1, start + static_cast<std::uint64_t>(args.count) * 1000);
  store(result_of(args), nanoseconds() - start);
}

/// The throughput test's kernel: every thread stores and loads memory, with a barrier after every 31 accesses.
FARWARP_KERNEL(litmus_stream, LitmusArgs, 1024) {
  const Words words(at<std::uint64_t>(args.memory[args.rank], 0));
  const std::uint64_t all = kLitmusBytes / 8;
  std::uint64_t at = static_cast<std::uint64_t>(block_index() * num_threads() + thread_index());
  for (std::int32_t round = 0; round < args.count; ++round) {
    for (int i = 0; i < 16; ++i)
      store(words + static_cast<std::int64_t>((at + static_cast<std::uint64_t>(i) * 512) % all), at);
    for (int i = 0; i < 15; ++i)
      at += load(words + static_cast<std::int64_t>((at + static_cast<std::uint64_t>(i) * 512) % all)) & 1;
    block_sync();
  }
}

}  // namespace farwarp::FARWARP_TARGET
