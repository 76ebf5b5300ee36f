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

/// Rows `row` to `row` + 3 of a column: a worker's tiles of x and of middle are the same, so it reads only what it has written itself.
template <int columns>
FARWARP_DEVICE Global<std::uint64_t> residual_at(const Args& args, int row, int column) {
  return Global<std::uint64_t>(args.residual) + (row / 4 * columns + column);
}

/// The norm of a task's input.
template <int columns>
FARWARP_DEVICE InputNorm norm_of(const Context<columns>& context, const Task& task) {
  const auto kind = static_cast<Kind>(task.kind);
  return {kind != Kind::kOut && kind != Kind::kDown, context.args.hidden, context.args.epsilon};
}

/// [thread] Rows 4i to 4i + 3 of x or middle: the residual, the next norm's input, and what these rows add to its squares.
template <int columns>
FARWARP_DEVICE float store_hidden(const Context<columns>& context, const Call& call, std::int64_t vector, int row,
                                  int column, std::uint64_t four, std::uint64_t norm) {
  float numbers[4], squares = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    numbers[i] = number_of(four, i);
    squares = fused_multiply_add(numbers[i], numbers[i], squares);
    numbers[i] = multiply(numbers[i], number_of(norm, i));
  }
  store_four<columns>(call, context.worker, vector, row, column,
                      pack_four(numbers[0], numbers[1], numbers[2], numbers[3]));
  store(residual_at<columns>(context.args, row, column), four);
  return squares;
}
/// [thread] The squares of a tile of two columns.
template <int columns>
FARWARP_DEVICE void store_squares(const Context<columns>& context, const Call& call, std::int64_t vector, int tile,
                                  int pair, float first, float second) {
  store_vector(
      call, context.worker,
      peer_address<Packet>(call.view, call.view.rank, vector) + squares_at(columns, context.args.hidden, tile, pair),
      pack_two(first, second));
}

/// SiLU.
FARWARP_DEVICE float swish(float number) {
  constexpr float kLog2OfE = 1.44269504f;
  return divide(number, add(1.0f, exp2(multiply(-kLog2OfE, number))));
}
/// Waits on peers end before those on this rank's workers, so the ledger names the missing peer; `depth`: of the deepest of these waits.
FARWARP_DEVICE Call waiting_on_peers(const Call& call, int depth = 0) {
  Call earlier = call;
  earlier.deadline_ns -= (1 + depth) * call.grace_ns;
  return earlier;
}

/// `samples`: all logits go to the worker itself, which selects candidates (sampling.dev.h).
template <int columns, bool samples>
class Finisher {
 public:
  /// `thread`: 0 to TileFinisher::kThreads - 1.
  FARWARP_DEVICE Finisher(const Context<columns>& context, int thread)
      : context_(context), finisher_(context.memory + Layout<columns>::kProject, thread) {}

  /// [the warps that finish] The worker's rows of the tokens' embeddings.
  FARWARP_DEVICE void embed(const Task& task) {
    task_ = task;
    for (int tile = task.first; tile < task.first + task.count; ++tile) finisher_.without_sums(tile, *this);
  }
  /// [the warps that finish] All tiles of a task. `number`: of the token in this launch.
  FARWARP_DEVICE void run(BlockWaits& waits, const Task& task, int number) {
    if (task.count == 0) return;
    begin_task(task, number);
    finisher_.run(waits, task, *this);
    end_task();
  }

  // Where the warps that compute finish tiles.
  FARWARP_DEVICE void begin_task(const Task& task, int number) {
    task_ = task;
    number_ = number;
    finisher_.begin_task(context_.call, context_.worker, task, norm_of(context_, task), kSiteSquares);
  }
  /// [warp]
  FARWARP_DEVICE void finish(int pass, int tile, int buffer) {
    finisher_.prepare(task_, pass, tile, *this);
    finisher_.finish(task_, pass, tile, buffer, *this);
  }
  /// [warp]
  FARWARP_DEVICE void end_task() {
    if constexpr (!samples) {
      if (kind() == Kind::kHead) send_candidates();
    }
    if (task_.rank_sums != 0) add_ranks();
  }

  // The epilogue.
  FARWARP_DEVICE const WorldView& view() const { return context_.args.view; }
  FARWARP_DEVICE void prepare(int tile, int row, int column) {
    if (!has_residual() || task_.rank_sums != 0) return;
    load_residual(tile, row, column);
  }
  /// [warp]
  FARWARP_DEVICE void take(const FourSums& four) {
    const int row = four.tile * kTileRows + four.row;
    if (task_.rank_sums != 0) {
      send_sums(four);
    } else if (has_residual()) {
      add_residual(four);
    } else if (!four.first) {
      return;
    } else if (kind() == Kind::kGateUp) {
      store_activated(four);
    } else if (kind() == Kind::kHead) {
      take_logits(four);
    } else {
      store_four<columns>(context_.call, context_.worker, task_.out, row, four.column,
                          pack_four(four.sums[0], four.sums[1], four.sums[2], four.sums[3]));
    }
  }

 private:
  FARWARP_DEVICE Kind kind() const { return static_cast<Kind>(task_.kind); }
  FARWARP_DEVICE bool has_residual() const {
    return kind() == Kind::kOut || kind() == Kind::kDown || kind() == Kind::kEmbed;
  }

  FARWARP_DEVICE void load_residual(int tile, int row, int column) {
    if (kind() == Kind::kEmbed) {
      const Args& args = context_.args;
      const std::int64_t token = context_.sequence(column).token;
      old_ = load(Global<const std::uint64_t>(reinterpret_cast<const std::uint64_t*>(args.embedding)) +
                  (token * args.hidden + tile * kTileRows + row) / 4);
    } else {
      old_ = load(residual_at<columns>(context_.args, tile * kTileRows + row, column));
    }
    norm_ = load(context_.parameter(task_.norm) + (tile * kTileRows + row) / 4);
  }
  /// [warp] Sends a tile's sums to all ranks. Of the four threads of four rows, two have the first two rows, for half of the ranks each.
  FARWARP_DEVICE void send_sums(const FourSums& four) const {
    if (four.column >= columns) return;
    const WorldView& view = context_.args.view;
    const bool later = lane_index() % 2 != 0;
    const std::int64_t at =
        rank_sums_at(columns, task_.matrix.tiles, view.rank, four.tile, four.column, four.row + (later ? 2 : 0));
    const std::uint64_t two = pack_two(later ? four.sums[2] : four.sums[0], later ? four.sums[3] : four.sums[1]);
    for (int peer = lane_index() / 2 % 2; peer < view.size; peer += 2)
      store_packet(peer_address<Packet>(view, peer, task_.rank_sums) + at, two, context_.call.epoch);
  }

  /// [warp] Adds the sums of all ranks, two tiles at once: of the four threads of four rows, two have a tile, and each has two of its rows. All ranks add
  /// in the same order, so they get the same bits.
  FARWARP_DEVICE void add_ranks() {
    constexpr int kTogether = 4;  ///< ranks
    const WorldView& view = context_.args.view;
    const int row = finisher_.row() / 4 * 4, column = finisher_.column();
    const int half = lane_index() / 2 % 2;
    const bool later = lane_index() % 2 != 0;
    Call call = waiting_on_peers(context_.call);
#pragma unroll 1
    for (int number = 0; number < task_.count; number += 2) {
      const int tile = task_.first + number + half;
      const bool exists = finisher_.exists() && number + half < task_.count;
      if (exists && !later) load_residual(tile, row, column);
      FourSums four{exists && !later, tile, row, column, {}, {}};
#pragma unroll 1
      for (int first = 0; first < view.size; first += kTogether) {
        Global<Packet> from[kTogether];
        std::uint64_t data[kTogether] = {};
        std::uint32_t wanted = 0;
#pragma unroll
        for (int i = 0; i < kTogether; ++i) {
          from[i] = vector_at(view, task_.rank_sums) +
                    rank_sums_at(columns, task_.matrix.tiles, first + i, tile, column, row + (later ? 2 : 0));
          if (exists && first + i < view.size) wanted |= 1u << i;
        }
        wait_packets<1>(call, from, wanted, data, Wait{.site = kSiteRankSums, .peer = -1 - first});
        warp_sync();  // lanes leave the wait one by one
#pragma unroll
        for (const std::uint64_t bits : data) {
          const Two two = unpack_two(bits);
          four.sums[0] = add(four.sums[0], two.first);
          four.sums[1] = add(four.sums[1], two.second);
        }
      }
      four.sums[2] = shuffle_xor(four.sums[0], 1);
      four.sums[3] = shuffle_xor(four.sums[1], 1);
      add_residual(four);
    }
    context_.call.live = call.live;
  }

  FARWARP_DEVICE void add_residual(const FourSums& four) const {
    Call later = context_.call;
    if (kind() == Kind::kDown) ++later.epoch;  // it is the next layer's input
    float squares = 0;
    if (four.first) {
      const std::uint64_t sums =
          pack_four(add(number_of(old_, 0), four.sums[0]), add(number_of(old_, 1), four.sums[1]),
                    add(number_of(old_, 2), four.sums[2]), add(number_of(old_, 3), four.sums[3]));
      squares = store_hidden(context_, later, task_.out, four.tile * kTileRows + four.row, four.column, sums, norm_);
    }
    squares = add(squares, shuffle_xor(squares, 4));
    squares = add(squares, shuffle_xor(squares, 8));
    const float of_next_column = shuffle_xor(squares, kTileRows);
    if (four.first && four.row == 0 && four.column % 2 == 0)
      store_squares(context_, later, task_.out, four.tile, four.column / 2, squares, columns > 1 ? of_next_column : 0);
  }

  /// Rows 0 to 7 of a tile are of gate, rows 8 to 15 the same of up.
  FARWARP_DEVICE void store_activated(const FourSums& four) const {
    if (four.row >= 8) return;
    float numbers[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) numbers[i] = multiply(swish(four.sums[i]), four.others[i]);
    store_four<columns>(context_.call, context_.worker, task_.out, four.tile * (kTileRows / 2) + four.row, four.column,
                        pack_four(numbers[0], numbers[1], numbers[2], numbers[3]));
  }

  FARWARP_DEVICE void take_logits(const FourSums& four) {
    const Args& args = context_.args;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int token = args.first_token + four.tile * kTileRows + four.row + i;
      if (token >= args.vocabulary) continue;
      if constexpr (!samples) best_.take(Candidate::of(four.sums[i], token));
      if (args.logits != nullptr)
        store(Global<float>(args.logits) + ((std::int64_t{number_} * columns + four.column) * args.vocabulary + token),
              four.sums[i]);
    }
    if constexpr (samples) {
      const int column = recomputed(four.column), row = recomputed(four.row);
#pragma unroll
      for (int i = 0; i < 4; i += 2)
        store_vector(
            context_.call, context_.worker,
            peer_address<Packet>(args.view, args.view.rank, task_.out) + logits_at(columns, four.tile, column, row + i),
            pack_two(four.sums[i], four.sums[i + 1]));
    }
  }

  /// The best token of each column among the worker's, for all workers of all ranks. A column's candidates are on 16 lanes.
  FARWARP_DEVICE void send_candidates() {
    const Args& args = context_.args;
#pragma unroll
    for (int lanes = 1; lanes < kTileRows; lanes *= 2)
      best_.take(Candidate::unpack(shuffle_xor(best_.packed(), lanes)));
    const int peer = lane_index() % kTileRows;
    if (finisher_.exists() && peer < args.view.size)
      store_packet(peer_address<Packet>(args.view, peer, args.candidates) +
                       ((args.view.rank * args.workers + context_.worker.number()) * columns + finisher_.column()),
                   best_.packed(), context_.call.epoch);
    best_ = {};
  }

  const Context<columns>& context_;
  TileFinisher<columns> finisher_;
  Task task_{};
  int number_ = 0;
  std::uint64_t old_ = 0, norm_ = 0;  ///< of the next tile, on the first thread of four rows
  Candidate best_;
};

}  // namespace farwarp::FARWARP_TARGET::qwen3
