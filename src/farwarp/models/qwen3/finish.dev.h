// What becomes of the sums of a tile: the epilogues of all tasks that multiply by weights.
#pragma once

#include "farwarp/models/qwen3/context.dev.h"

namespace farwarp::FARWARP_TARGET::qwen3 {

/// A logit and its token. Greater logits win, then lower tokens. A NaN wins against all, as kNotANumber.
struct Candidate {
  float logit = kNothing;
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

/// A worker's tiles of x and of middle are the same. It needs each as the residual of the next, so it keeps the latter of both: the packets of its
/// own tiles would take a flight to arrive. A kernel that has only one step keeps nothing.
template <int columns>
FARWARP_DEVICE bool has_residual(const Context<columns>& context, const Task& task, int tile) {
  return context.args.first_task == 0 && tile - task.first < kKeptTiles;
}
template <int columns>
FARWARP_DEVICE Shared<std::uint64_t> residual(const Context<columns>& context, const Task& task, int tile, int row,
                                              int column) {
  return word_at<std::uint64_t>(context.memory, Layout<columns>::kResidual) +
         (((tile - task.first) * columns + column) * kTileRows + row) / 4;
}

/// The norm of a task's input.
template <int columns>
FARWARP_DEVICE InputNorm norm_of(const Context<columns>& context, const Task& task) {
  const auto kind = static_cast<Kind>(task.kind);
  const bool none = kind == Kind::kOut || kind == Kind::kDown;
  return {none ? Global<const std::uint64_t>() : context.parameter(task.norm), context.args.hidden,
          context.args.epsilon};
}

template <int columns>
class Finisher {
 public:
  /// `thread`: 0 to TileFinisher::kThreads - 1.
  FARWARP_DEVICE Finisher(const Context<columns>& context, int thread)
      : context_(context), thread_(thread), finisher_(context.memory + Layout<columns>::kProject, thread) {}

  /// [the warp that finishes] All tiles of a task. `number`: of the token in this launch.
  FARWARP_DEVICE void run(BlockWaits& waits, const Task& task, int number) {
    finisher_.run(waits, context_.args.view, task, norm_of(context_, task),
                  [&](int round, const FourSums& four) { take(task, number, round, four); });
    end_task(task);
  }

  // Where the warps that compute finish tiles.
  FARWARP_DEVICE void begin_task() { finisher_.begin_task(); }
  /// [warp]
  FARWARP_DEVICE void finish(const Task& task, int number, int pass, int tile, int buffer) {
    finisher_.finish(task, norm_of(context_, task), pass, tile, buffer,
                     [&](int round, const FourSums& four) { take(task, number, round, four); });
  }
  /// [warp]
  FARWARP_DEVICE void end_task(const Task& task) {
    if (static_cast<Kind>(task.kind) == Kind::kHead) store_candidates();
  }

 private:
  FARWARP_DEVICE void take(const Task& task, int number, int round, const FourSums& four) {
    switch (const auto kind = static_cast<Kind>(task.kind)) {
      case Kind::kGateUp: store_activated(task, four); break;
      case Kind::kHead: take_logits(four, number, best_[round]); break;
      case Kind::kQkv: store_rows(context_.call, task, four, {}); break;
      default: add_old(task, kind, four);
    }
  }

  /// Stores four rows plus `old`.
  static FARWARP_DEVICE std::uint64_t store_rows(const Call& call, const Task& task, const FourSums& four,
                                                 std::uint64_t old) {
    const std::uint64_t sums = pack_four(add(number_of(old, 0), four.sums[0]), add(number_of(old, 1), four.sums[1]),
                                         add(number_of(old, 2), four.sums[2]), add(number_of(old, 3), four.sums[3]));
    store_four<columns>(call, task.out, four.tile * kTileRows + four.row, four.column, sums);
    return sums;
  }

  FARWARP_DEVICE void add_old(const Task& task, Kind kind, const FourSums& four) const {
    const std::uint64_t old =
        has_residual(context_, task, four.tile)
            ? load(residual(context_, task, four.tile, four.row, four.column))
            : wait_four<columns>(context_.call, task.old, four.tile * kTileRows + four.row, four.column, kSiteOld);
    Call later = context_.call;
    if (kind == Kind::kDown) ++later.epoch;  // it is the next layer's input
    const std::uint64_t sums = store_rows(later, task, four, old);
    if (has_residual(context_, task, four.tile))
      store(residual(context_, task, four.tile, four.row, four.column), sums);
  }

  /// Rows 0 to 7 of a tile are of gate, rows 8 to 15 the same of up.
  FARWARP_DEVICE void store_activated(const Task& task, const FourSums& four) const {
    constexpr float kLog2OfE = 1.44269504f;
    if (four.row >= 8) return;
    float numbers[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float gate = four.sums[i];
      numbers[i] = multiply(divide(gate, add(1.0f, exp2(multiply(-kLog2OfE, gate)))), four.others[i]);
    }
    store_four<columns>(context_.call, task.out, four.tile * (kTileRows / 2) + four.row, four.column,
                        pack_four(numbers[0], numbers[1], numbers[2], numbers[3]));
  }

  FARWARP_DEVICE void take_logits(const FourSums& four, int number, Candidate& best) const {
    const Args& args = context_.args;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int token = four.tile * kTileRows + four.row + i;
      if (token >= args.vocabulary) continue;
      best.take(Candidate::of(four.sums[i], token));
      if (args.logits != nullptr)
        store(Global<float>(args.logits) + ((std::int64_t{number} * columns + four.column) * args.vocabulary + token),
              four.sums[i]);
    }
  }

  /// The best token of each column among the worker's, for all workers. A column's candidates are on 16 lanes.
  FARWARP_DEVICE void store_candidates() {
    const Args& args = context_.args;
#pragma unroll
    for (int round = 0; round < kRounds; ++round) {
      Candidate best = best_[round];
#pragma unroll
      for (int lanes = 1; lanes < kTileRows; lanes *= 2)
        best.take(Candidate::unpack(shuffle_xor(best.packed(), lanes)));
      const int place = round * TileFinisher<columns>::kThreads + thread_, column = place / kTileRows;
      if (column < columns && place % kTileRows == 0)
        store_packet(
            peer_address<Packet>(args.view, args.view.rank, args.candidates) + (block_index() * columns + column),
            best.packed(), context_.call.epoch);
      best_[round] = {};
    }
  }

  static constexpr int kRounds = TileFinisher<columns>::kRounds;
  const Context<columns>& context_;
  int thread_;
  TileFinisher<columns> finisher_;
  Candidate best_[kRounds];
};

}  // namespace farwarp::FARWARP_TARGET::qwen3
