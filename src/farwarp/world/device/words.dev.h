// Words: data that is its own flag (contract.md, "Words"), 16 bytes at a time or one half of 8. Memory holds all ones
// where a half has not arrived; any other value has. TensorRT-LLM's all-reduce kernels call this Lamport buffers, with
// minus zero for "not arrived".
#pragma once

#include "farwarp/world/device/wait.dev.h"

namespace farwarp::FARWARP_TARGET {

inline constexpr std::uint64_t kAbsent = ~std::uint64_t{0};  ///< a half that has not arrived

/// [thread] A half alone: a relaxed access of 8 bytes.
FARWARP_DEVICE void store_words(Peer<std::uint64_t> address, std::uint64_t half) {
  store<Order::relaxed>(Peer<SystemCell<std::uint64_t>>(reinterpret_cast<SystemCell<std::uint64_t>*>(address.raw)),
                        half);
}
FARWARP_DEVICE std::uint64_t load_words(Global<const std::uint64_t> address) {
  return load<Order::relaxed, Scope::system>(address);
}

FARWARP_DEVICE bool has_arrived(std::uint64_t half) { return half != kAbsent; }
FARWARP_DEVICE bool has_arrived(Vec16 words) { return has_arrived(words.lo) && has_arrived(words.hi); }

/// Whether all of `words` have arrived, with four instructions each. `lo & lo >> 32` has 32 ones exactly if the half is
/// absent; all ones is the largest value, so the maximum over all halves is all ones exactly if one is absent.
template <int count>
FARWARP_DEVICE bool all_arrived(const Vec16 (&words)[count]) {
  std::uint32_t most = 0;
#pragma unroll
  for (int i = 0; i < count; ++i) {
    const auto lo = static_cast<std::uint32_t>(words[i].lo & words[i].lo >> 32);
    const auto hi = static_cast<std::uint32_t>(words[i].hi & words[i].hi >> 32);
    most = most > lo ? most : lo;
    most = most > hi ? most : hi;
  }
  return most != static_cast<std::uint32_t>(kAbsent);
}

/// [thread] What to send for eight 16-bit floats, bf16 or fp16. A half of four NaNs of all ones would look absent, so
/// the sign of one of them is cleared.
FARWARP_DEVICE Vec16 sendable(Vec16 words) {
  if (words.lo == kAbsent) words.lo >>= 1;
  if (words.hi == kAbsent) words.hi >>= 1;
  return words;
}

/// [thread] Sets words to all ones again. Their one reader does so, once, in the call that reads them. Their writer is
/// a rank, perhaps this one, in a later call: the operator's ORDER.md says why it writes them next only after that (two
/// buffers by the parity of the epoch).
FARWARP_DEVICE void clear_words(Global<Vec16> address) { store_words(Peer<Vec16>(address.raw), {kAbsent, kAbsent}); }
FARWARP_DEVICE void clear_words(Global<std::uint64_t> address) {
  store_words(Peer<std::uint64_t>(address.raw), kAbsent);
}

/// [thread] Loads the words of `from` whose bit is set in `wanted`, whether they have arrived or not.
template <int count, class Word>
FARWARP_DEVICE void request_words(const Global<const Word> (&from)[count], std::uint32_t wanted, Word (&data)[count]) {
#pragma unroll
  for (int i = 0; i < count; ++i) {
    if (wanted >> i & 1) data[i] = load_words(from[i]);
  }
}

/// Adds the addresses that a thread parks on until `words` arrive: either half may be the missing one.
FARWARP_DEVICE void watch(const void** addresses, int& watched, Global<const Vec16> words) {
  addresses[watched++] = &words.raw->lo;
  addresses[watched++] = &words.raw->hi;
}
FARWARP_DEVICE void watch(const void** addresses, int& watched, Global<const std::uint64_t> half) {
  addresses[watched++] = half.raw;
}

/// [thread] Waits until all words of `from` whose bit is set in `wanted` have arrived; `data` gets them. Returns
/// call.live, also if no word is missing: callers rely on it. All missing words are loaded before any is tested, so
/// that their latencies overlap. Needs no fence:
/// words guard no other data. With wait.peer < 0 the ledger names the peer of words i as i / words_per_peer.
template <int words_per_peer, Failure failure = Failure::called, int count, class Word>
FARWARP_DEVICE bool wait_words(Call& call, const Global<const Word> (&from)[count], std::uint32_t wanted,
                               Word (&data)[count], Wait wait) {
  TraceStart start;
  const std::uint64_t deadline = call.deadline_ns + wait.depth * call.grace_ns;
  std::uint32_t missing = wanted;
  for (std::uint32_t tries = 0; call.live; ++tries) {
    request_words(from, missing, data);
    const void* addresses[2 * count + 1] = {abort_cell(call).raw};
    int watched = 1;
#pragma unroll
    for (int i = 0; i < count; ++i) {
      if (!(missing >> i & 1)) continue;
      if (has_arrived(data[i])) {
        missing &= ~(1u << i);
      } else {
        watch(addresses, watched, from[i]);
      }
    }
    if (missing == 0) {
      if (trace_waited(start) && trace_chosen()) trace_wait(start, call, nullptr, call.epoch, wait);
      return true;
    }
    if (kInnerWaitsTraced) trace_missed(start);
    if (park(addresses, watched, deadline, tries)) [[unlikely]] {
      Wait described = wait;
      if (wait.peer < 0) described.peer = lowest_bit(missing) / words_per_peer;
      if (!may_wait_on<failure>(call, described, 0, kNothingSeen))
        trace_wait(start, call, nullptr, call.epoch, described);
    }
  }
  return false;
}

/// [thread] wait_words() after request_words() has already loaded `data`; other waits may have happened in between.
template <int words_per_peer, Failure failure = Failure::called, int count, class Word>
FARWARP_DEVICE bool wait_requested_words(Call& call, const Global<const Word> (&from)[count], std::uint32_t wanted,
                                         Word (&data)[count], Wait wait) {
  std::uint32_t missing = wanted;
#pragma unroll
  for (int i = 0; i < count; ++i) {
    if ((wanted >> i & 1) != 0 && has_arrived(data[i])) missing &= ~(1u << i);
  }
  return wait_words<words_per_peer, failure>(call, from, missing, data, wait);
}

/// [thread] Clears the words of `from` whose bit is set in `wanted`.
template <int count, class Word>
FARWARP_DEVICE void clear_words(const Global<const Word> (&from)[count], std::uint32_t wanted) {
#pragma unroll
  for (int i = 0; i < count; ++i) {
    if (wanted >> i & 1) clear_words(Global<Word>(const_cast<Word*>(from[i].raw)));
  }
}

}  // namespace farwarp::FARWARP_TARGET
