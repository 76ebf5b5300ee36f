// At the owner: rows arrive, the expert is applied, and the results return.
#pragma once

#include "dispatch.dev.h"
#include "farwarp/world/device/wait.dev.h"

namespace farwarp::FARWARP_TARGET::ladder {

/// A message at its owner, as a warp sees it.
struct Message {
  int source;
  std::uint32_t slot;
  int token, segment;  ///< at the source
  std::uint32_t entries;
};

/// [block] Waits for the number of messages that each source sends here, and stores it in shared memory. On kRankFlags
/// the messages have then arrived as well. False on all threads if the call is over. From kEpochs on, this wait permits
/// reuse of buffers (README.md).
template <int rung>
FARWARP_DEVICE bool await_counts(Call& call, const Memory<rung>& memory) {
  if (const int source = thread_index(); source < memory.ranks()) {
    std::uint32_t count = 0;
    wait_tagged(call, own(memory.count_cell(memory.me(), source)), memory.tag, count,
                Wait{.site = kSiteCount, .peer = source});
    store(shared_counts() + source, count);
  }
  call.live = !block_any(!call.live);
  return call.live;
}

/// [thread] Message number `item` of all that arrive, beginning with those of the rank after mine.
template <int rung>
FARWARP_DEVICE Message locate(const Memory<rung>& memory, int item) {
  Message message{memory.me(), static_cast<std::uint32_t>(item), 0, 0, 0};
  for (;;) {
    message.source = message.source + 1 < memory.ranks() ? message.source + 1 : 0;
    const std::uint32_t count = load(shared_counts() + message.source);
    if (message.slot < count) return message;
    message.slot -= count;
  }
}

/// [thread] Reads vectors u, u + kStride, ... below `length` of a row here. Packets are awaited, all at once.
template <int rung>
FARWARP_DEVICE bool read(Call& call, Peer<Element<rung>> row, int u, int length, Vector<rung> (&vectors)[kAhead],
                         Wait wait) {
  if constexpr (rung < kPackets) {
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      vectors[a] = u + a * kStride < length ? load(own(row) + (u + a * kStride)) : Vector<rung>{};
    }
    return true;
  } else {
    Global<Packet> from[kAhead];
    std::uint32_t wanted = 0;
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      from[a] = own(row) + (u + a * kStride);
      if (u + a * kStride < length) wanted |= 1u << a;
    }
    return wait_packets<1>(call, from, wanted, vectors, wait);
  }
}

/// [warp] Waits for the message. On lane i `word` becomes word i of its head, and `first` the lane's first vectors of
/// its data.
template <int rung>
FARWARP_DEVICE bool await_message(Call& call, const Memory<rung>& memory, const Message& message, std::uint64_t& word,
                                  Vector<rung> (&first)[kAhead]) {
  const Peer<std::byte> here = memory.message(memory.me(), message.source, message.slot);
  const int lane = lane_index(), words = head_words_of(memory.args.shape);
  const auto head = own(memory.head(here)) + (lane < words ? lane : 0);
  const Wait wait{.site = kSiteMessage, .peer = message.source};
  if constexpr (rung >= kTogether) {
    // Head and data are polled together, so that their latencies overlap.
    Global<Packet> from[1 + kAhead] = {head};
    std::uint64_t vectors[1 + kAhead] = {};
    std::uint32_t wanted = 1;
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      from[1 + a] = own(memory.data(here)) + (lane + a * kStride);
      if (lane + a * kStride < memory.length()) wanted |= 2u << a;
    }
    wait_packets<1>(call, from, wanted, vectors, wait);
    word = vectors[0];
#pragma unroll
    for (int a = 0; a < kAhead; ++a) first[a] = vectors[1 + a];
    return all_live(call);
  }
  if constexpr (rung >= kPackets) {
    const Global<Packet> from[] = {head};
    std::uint64_t words_here[1] = {};
    wait_packets<1>(call, from, 1, words_here, wait);
    word = words_here[0];
  } else if constexpr (rung >= kTokenFlags) {
    std::uint32_t unused = 0;
    if (lane == 0) {
      const auto flag = own(memory.message_flag(memory.me(), message.source, message.slot));
      wait_tagged(call, flag, memory.tag, unused, wait);
    }
  }
  if (!all_live(call)) return false;
  if constexpr (rung < kPackets) word = load(head);
  read<rung>(call, memory.data(here), lane, memory.length(), first, wait);
  return all_live(call);
}

/// [warp] Stores the weights of the message's entries in the warp's shared memory, in k-slot order.
FARWARP_DEVICE void keep_weights(const Message& message, std::uint64_t word) {
  const int lane = lane_index();
  const std::uint64_t two = shuffle(word, (1 + lane / 2) & (Target::kWarpSize - 1));
  const auto bits = static_cast<std::uint32_t>(lane % 2 == 0 ? two : two >> 32);
  const bool mine = lane < kMaxTopK && (static_cast<std::uint64_t>(message.entries) >> lane & 1) != 0;
  const int place = count_bits(message.entries & lanes_below());
  if (mine) store(shared_weights() + place, std::bit_cast<float>(bits));
  warp_sync();
}

/// [thread] The expert's outputs of the vectors, weighted and summed in k-slot order: y = round(x * (1 + rank)) for
/// each entry.
template <class Vector>
FARWARP_DEVICE Vector weighted_outputs(Vector x, float scale, int entries) {
  constexpr int kCount = kElementsPer<Vector>;
  float y[kCount], sum[kCount] = {};
  moe::values_of<Bf16>(x, y);
#pragma unroll
  for (int i = 0; i < kCount; ++i) y[i] = to_float(round_to<Bf16>(multiply(y[i], scale)));
#pragma unroll 1
  for (int entry = 0; entry < entries; ++entry) {
    const float weight = load(shared_weights() + entry);
#pragma unroll
    for (int i = 0; i < kCount; ++i) sum[i] = fused_multiply_add(weight, y[i], sum[i]);
  }
  return moe::rounded<Bf16, Vector>(sum);
}

/// [warp] Waits for one message, applies the expert, and sends the result to its place at the source.
template <int rung>
FARWARP_DEVICE bool work_on(Call& call, const Memory<rung>& memory, Message message) {
  std::uint64_t word = 0;
  Vector<rung> vectors[kAhead] = {};
  if (!await_message(call, memory, message, word, vectors)) return false;
  const std::uint64_t first_word = shuffle(word, 0);
  message.token = static_cast<int>(first_word & 0xffff);
  message.segment = static_cast<int>(first_word >> 16 & 0xffff);
  message.entries = static_cast<std::uint32_t>(first_word >> 32);
  keep_weights(message, word);

  const float scale = static_cast<float>(1 + memory.me());
  const int entries = count_bits(message.entries), length = memory.length();
  const int place = rung >= kRankDedup ? memory.me() : lowest_bit(message.entries);
  const Peer<Element<rung>> data = memory.data(memory.message(memory.me(), message.source, message.slot));
  const Peer<Element<rung>> back = memory.returned(message.source, message.token, place, message.segment);
#pragma unroll 1
  for (int u = lane_index(); u < length; u += kAhead * kStride) {
    if (u >= kAhead * kStride &&
        !read<rung>(call, data, u, length, vectors, Wait{.site = kSiteMessage, .peer = message.source}))
      break;
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      if (u + a * kStride < length)
        put(back + (u + a * kStride), weighted_outputs(vectors[a], scale, entries), memory.tag);
    }
  }
  // The warp_sync() in it also lets the next message overwrite the weights, and one lane publish the stores of all.
  if (!all_live(call)) return false;
  if constexpr (rung >= kTokenFlags && rung < kPackets) {
    if (lane_index() == 0) {
      store<Order::release>(memory.return_flag(message.source, message.token, place, message.segment),
                            tagged(memory.tag, 0));
    }
  }
  return true;
}

/// [block] Works on all messages that arrive.
template <int rung>
FARWARP_DEVICE void apply_experts(Call& call, const Memory<rung>& memory) {
  if (!await_counts(call, memory)) return;
  int messages = 0;
  for (int source = 0; source < memory.ranks(); ++source) {
    messages += static_cast<int>(load(shared_counts() + source));
  }
  for_each_item(messages, [&](int item) { return work_on(call, memory, locate(memory, item)); });
  if constexpr (rung < kTokenFlags) {
    signal_ranks_after_grid(
        memory.blocks_done(1), memory.ranks(), [&](int rank) { return memory.done_cell(rank, memory.me()); },
        [&](int) { return tagged(memory.tag, 0); });
  }
}

}  // namespace farwarp::FARWARP_TARGET::ladder
