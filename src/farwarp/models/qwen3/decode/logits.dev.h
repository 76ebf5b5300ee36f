// What becomes of the head's sums: logits, and the best of them.
#pragma once

#include "farwarp/fleet/epilogue.dev.h"
#include "farwarp/models/qwen3/decode/context.dev.h"

namespace farwarp::FARWARP_TARGET::qwen3 {

/// A logit and its token. Greater logits win, then lower tokens. A NaN wins against all, as kNotANumber.
struct Candidate {
  float logit = kMinusInfinity;
  std::int32_t token = kNoToken;
  static constexpr std::int32_t kNoToken = 0x7fffffff, kNotANumber = -1;

  FARWARP_DEVICE void take(const Candidate& other) {
    if (other.logit > logit || (other.logit == logit && other.token < token)) *this = other;
  }
  FARWARP_DEVICE std::uint64_t packed() const {
    return std::bit_cast<std::uint32_t>(logit) | static_cast<std::uint64_t>(static_cast<std::uint32_t>(token)) << 32;
  }
  static FARWARP_DEVICE Candidate unpack(std::uint64_t bits) {
    return {std::bit_cast<float>(static_cast<std::uint32_t>(bits)), static_cast<std::int32_t>(bits >> 32)};
  }
  static FARWARP_DEVICE Candidate of(float logit, int token) {
    return logit == logit ? Candidate{logit, token} : Candidate{std::numeric_limits<float>::infinity(), kNotANumber};
  }
};

/// The epilogue of the head. `samples`: all logits go to the worker itself, which selects candidates (sampling.dev.h);
/// else each worker sends the best token of its own to all workers of all ranks. The best one so far of a thread's
/// logits is in a register where vectors are packets, else in shared memory, where attention has scores, because
/// registers are few.
template <int columns, bool samples>
class LogitsEpilogue {
 public:
  FARWARP_DEVICE explicit LogitsEpilogue(const Context<columns>& context) : context_(context) {}

  /// [the warps that compute] Streamed vectors.
  FARWARP_DEVICE void begin_task() const {
    if constexpr (!samples) store(place(), Candidate().packed());
  }
  /// [thread] `launch_token`: the token's number in this launch.
  FARWARP_DEVICE void take(const Task& task, int launch_token, const Four& four, const float (&logits)[4]) {
    const Args& args = context_.args;
    const int column = recomputed(four.column),
              row = recomputed(four.row);  // the loops of other tasks need all registers
    Candidate best = best_;
    if constexpr (!samples && streams(columns)) best = Candidate::unpack(load(place()));
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int candidate = args.first_token + four.tile * kTileRows + row + i;
      if (candidate >= args.vocabulary) continue;
      if constexpr (!samples) best.take(Candidate::of(logits[i], candidate));
      if (args.logits != nullptr)
        store(Global<float>(args.logits) +
                  ((std::int64_t{launch_token} * columns + column) * args.vocabulary + candidate),
              logits[i]);
    }
    if constexpr (samples) {
#pragma unroll
      for (int i = 0; i < 4; i += 2)
        store_four_at(context_.call, context_.worker.buffers, task.out, logits_at(columns, four.tile, column, row + i),
                      pack_two(logits[i], logits[i + 1]));
    } else if constexpr (streams(columns)) {
      store(place(), best.packed());
    } else {
      best_ = best;
    }
  }
  /// [the warps that finish; of streamed vectors the warps that compute] `exists`: the thread has sums, of `column`.
  FARWARP_DEVICE void end_task(const Task& task, bool exists, int column) {
    if constexpr (!samples && streams(columns)) {
      send_best_of_threads(task);
    } else if constexpr (!samples) {
      send_best_of_lanes(task, exists, column);
    }
  }

 private:
  FARWARP_DEVICE void send(const Task& task, int peer, int column, const Candidate& best) const {
    const Launch& launch = context_.args.launch;
    store_packet(peer_address<Packet>(launch.view, peer, task.out) +
                     ((launch.view.rank * launch.workers + context_.worker.number()) * columns + column),
                 best.packed(), context_.call.epoch);
  }
  /// [the warps that finish] A column's candidates are on 16 lanes.
  FARWARP_DEVICE void send_best_of_lanes(const Task& task, bool exists, int column) {
#pragma unroll
    for (int lanes = 1; lanes < kTileRows; lanes *= 2)
      best_.take(Candidate::unpack(shuffle_xor(best_.packed(), lanes)));
    const int peer = lane_index() % kTileRows;
    if (exists && peer < context_.args.launch.view.size) send(task, peer, column, best_);
    best_ = {};
  }
  /// [the warps that compute] Four neighbours have a column of a tile.
  FARWARP_DEVICE void send_best_of_threads(const Task& task) const {
    Candidate best = Candidate::unpack(load(place()));
#pragma unroll
    for (int lanes = 1; lanes < 4; lanes *= 2) best.take(Candidate::unpack(shuffle_xor(best.packed(), lanes)));
    store(place(), best.packed());
    sync_warps();
    for (int i = thread_index(); i < columns * context_.args.launch.view.size; i += kComputingThreads) {
      const int column = i % columns;
      Candidate best_of_column;
#pragma unroll
      for (int at = 0; at < kComputingThreads / 4; at += columns)
        best_of_column.take(Candidate::unpack(load(places() + 4 * (at + column))));
      send(task, i / columns, column, best_of_column);
    }
  }
  FARWARP_DEVICE Shared<std::uint64_t> places() const {
    return word_at<std::uint64_t>(context_.memory, Layout<columns>::kScores);
  }
  FARWARP_DEVICE Shared<std::uint64_t> place() const { return places() + thread_index(); }
  static_assert(!streams(columns) || kComputingThreads * 8 <= kScoreBytes);

  const Context<columns>& context_;
  Candidate best_;
};

}  // namespace farwarp::FARWARP_TARGET::qwen3
