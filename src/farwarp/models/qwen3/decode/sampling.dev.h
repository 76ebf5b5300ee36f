// How a decoder that samples chooses tokens: each worker selects the best of its own logits, and one worker of each
// rank draws one of all.
#pragma once

#include "farwarp/models/qwen3/decode/top_list.dev.h"

namespace farwarp::FARWARP_TARGET::qwen3 {

template <int columns>
class Sampler {
 public:
  FARWARP_DEVICE explicit Sampler(const Context<columns>& context) : context_(context) {}

  /// [the warps that compute] A warp has a column, or every eighth one. The worker's top_k best tokens of it, for all
  /// ranks.
  FARWARP_DEVICE void select(const Task& task) const {
    if constexpr (columns <= kWarps) {
      select_column(task, warp());
    } else {
#pragma unroll 1
      for (int column = warp(); column < columns; column += kWarps) select_column(task, column);
    }
  }

  /// [the warps that compute] Unit u is column u. All ranks draw alike.
  FARWARP_DEVICE void choose(const Task& task) const {
    const int workers = context_.args.launch.workers;
    for (int column = task.first; column < task.first + task.count * workers; column += workers) {
      if (context_.sequence(column).alive == 0) continue;
      TopList list(top_k(column));
      collect(task, column, list);
      sync_warps();  // what lay there has been read
#pragma unroll
      for (int slot = 0; slot < TopList::kSlots; ++slot)
        store(lists() + (warp() * kMaxTopK + list.place(slot)), list.mine(slot).packed());
      sync_warps();
      if (warp() == 0) draw(task, column, list);
    }
  }

  /// [thread] The token that has been drawn for a column.
  FARWARP_DEVICE std::int32_t wait_chosen(const Task& task, int column) const {
    const WorldView& view = context_.args.launch.view;
    const Global<Packet> from[1] = {packets_at(view, task.in) + column};
    std::uint64_t data[1] = {};
    wait_packets<1>(context_.call, from, 1, data, Wait{.site = kSiteChosen, .peer = view.rank});
    return static_cast<std::int32_t>(data[0]);
  }

 private:
  static_assert(kWarps * kMaxTopK * 8 <= kWarps * kMaxHeadDim * 4, "lists() lie where the scores of attention do");

  /// [warp]
  FARWARP_DEVICE void select_column(const Task& task, int column) const {
    if (column >= columns || context_.sequence(column).alive == 0) return;
    const Args& args = context_.args;
    constexpr int kTogether = 4, kOfTile = kTileRows / 2;
    TopList list(top_k(column));
    const int pairs = task.count * kOfTile, lane = recomputed(lane_index());
#pragma unroll 1
    for (int begin = 0; begin < pairs; begin += kTogether * Target::kWarpSize) {
      std::int64_t at[kTogether];
      std::uint64_t data[kTogether] = {};
      std::uint32_t wanted = 0;
      const auto pair_of = [&](int i) { return begin + i * Target::kWarpSize + lane; };
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        at[i] = logits_at(columns, task.first + pair_of(i) / kOfTile, column, pair_of(i) % kOfTile * 2);
        if (pair_of(i) < pairs) wanted |= 1u << i;
      }
      read_fours(context_.call, context_.worker.buffers, task.in, at, wanted, data,
                 Wait{.site = kSiteOwnLogits, .peer = args.launch.view.rank});
      warp_sync();  // lanes leave the wait one by one
#pragma unroll 1
      for (int i = 0; i < 2 * kTogether; ++i) {
        const Two two = unpack_two(one_of(data, i / 2));
        const int token = args.first_token + task.first * kTileRows + pair_of(i / 2) * 2 + i % 2;
        const bool exists = (wanted >> (i / 2) & 1) != 0 && token < args.vocabulary;
        list.offer(exists ? Candidate::of(i % 2 == 0 ? two.first : two.second, token) : Candidate{});
      }
    }
    send(task, column, list);
  }

  /// Element `i` of an array that stays in registers.
  template <int count>
  static FARWARP_DEVICE std::uint64_t one_of(const std::uint64_t (&data)[count], int i) {
    std::uint64_t found = 0;
#pragma unroll
    for (int k = 0; k < count; ++k) found = k == i ? data[k] : found;
    return found;
  }
  /// [warps][kMaxTopK]: logit, token.
  FARWARP_DEVICE Shared<std::uint64_t> lists() const {
    return word_at<std::uint64_t>(context_.memory, Layout<columns>::kScores);
  }
  /// The warp's number. The loops of other tasks need all registers, so nothing is kept across them.
  static FARWARP_DEVICE int warp() { return uniform(recomputed(thread_index()) / Target::kWarpSize); }
  FARWARP_DEVICE int top_k(int column) const {
    return uniform(load(Global<const std::int32_t>(context_.args.state->top_k) + column));
  }

  /// [warp]
  FARWARP_DEVICE void send(const Task& task, int column, const TopList& list) const {
    const Args& args = context_.args;
    const int count = top_k(column);
#pragma unroll
    for (int slot = 0; slot < TopList::kSlots; ++slot) {
      const int place = list.place(slot);
      if (place >= count) continue;
      for (int peer = 0; peer < args.launch.view.size; ++peer)
        store_packet(peer_address<Packet>(args.launch.view, peer, task.out) +
                         candidate_at(columns, args.launch.workers, args.most_top_k, args.launch.view.rank, column,
                                      place, block_index()),
                     list.mine(slot).packed(), context_.call.epoch);
    }
  }

  /// [warp] The warp's part of the candidates of all workers of all ranks, the workers' best ones first.
  FARWARP_DEVICE void collect(const Task& task, int column, TopList& list) const {
    const Args& args = context_.args;
    constexpr int kTogether = 4;
    const bool several = args.launch.view.size > 1;
    const int of_rank = top_k(column) * args.launch.workers, thread = recomputed(thread_index());
    Call call = several ? waiting_on_peers(context_.call) : context_.call;
#pragma unroll 1
    for (int rank = 0; rank < args.launch.view.size; ++rank) {
      const Global<Packet> candidates = packets_at(args.launch.view, task.in) +
                                        candidate_at(columns, args.launch.workers, args.most_top_k, rank, column, 0, 0);
#pragma unroll 1
      for (int begin = 0; begin < of_rank; begin += kTogether * kComputingThreads) {
        Global<Packet> from[kTogether];
        std::uint64_t data[kTogether] = {};
        std::uint32_t wanted = 0;
#pragma unroll
        for (int i = 0; i < kTogether; ++i) {
          const int candidate = begin + i * kComputingThreads + thread;
          from[i] = candidates + candidate;
          if (candidate < of_rank) wanted |= 1u << i;
        }
        wait_packets<1>(call, from, wanted, data, Wait{.site = kSiteCandidate, .peer = rank});
        warp_sync();  // lanes leave the wait one by one
#pragma unroll 1
        for (int i = 0; i < kTogether; ++i)
          list.offer((wanted >> i & 1) != 0 ? Candidate::unpack(one_of(data, i)) : Candidate{});
      }
    }
    context_.call.live = call.live;
  }

  /// [warp] The first warp, whose list gets those of the others. The call may have been given up meanwhile: then nobody
  /// gets a token.
  FARWARP_DEVICE void draw(const Task& task, int column, TopList& list) const {
    const Args& args = context_.args;
#pragma unroll 1
    for (int listed = kMaxTopK + list.place(0); listed < kWarps * kMaxTopK; listed += Target::kWarpSize)
      list.offer(Candidate::unpack(load(lists() + listed)));
    const Vec16 how = load(Global<const Vec16>(reinterpret_cast<const Vec16*>(args.state->draws)) + column);
    const std::int32_t token = list.draw(std::bit_cast<DrawState>(how), uniform(context_.sequence(column).position));
    if (list.place(0) == 0 && context_.call.live)
      store_packet(peer_address<Packet>(args.launch.view, args.launch.view.rank, task.out) + column,
                   static_cast<std::uint32_t>(token), context_.call.epoch);
  }

  const Context<columns>& context_;
};

}  // namespace farwarp::FARWARP_TARGET::qwen3
