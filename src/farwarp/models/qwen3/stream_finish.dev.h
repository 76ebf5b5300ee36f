// The epilogues of tasks that multiply by weights, with more than eight sequences: the warps that compute finish a unit of tiles together. A thread finishes
// four rows of a column at once, and has the same column and the same four rows of all its tiles.
#pragma once

#include "farwarp/fleet/stream_project.dev.h"
#include "farwarp/models/qwen3/finish.dev.h"

namespace farwarp::FARWARP_TARGET::qwen3 {

/// All functions: [the warps that compute]. `samples`: as of Finisher.
template <int columns, bool samples>
class StreamFinisher {
 public:
  FARWARP_DEVICE explicit StreamFinisher(const Context<columns>& context) : context_(context) {}

  /// The worker's rows of the tokens' embeddings.
  FARWARP_DEVICE void embed(const Task& task) {
    task_ = task;
    const Args& args = context_.args;
    const std::int64_t token = context_.sequence(column()).token;
    for_all_fours([&](const Four& four) {
      const std::uint64_t norm = norm_at(four);
      take_hidden(four,
                  load(Global<const std::uint64_t>(reinterpret_cast<const std::uint64_t*>(args.embedding)) +
                       (token * args.hidden + four.row) / 4),
                  norm);
    });
  }
  FARWARP_DEVICE void begin_task(const Task& task) const {
    if (chooses(task)) store(place(), Candidate().packed());
  }
  /// A unit of a group, whose partial sums are in shared memory. `number`: of the token in this launch.
  FARWARP_DEVICE void finish(const Task& group, int number, int unit) {
    task_ = group;
    const InputNorm norm = norm_of(context_, group);
    inverse_ = norm.exists ? inverse_root<columns>(context_.memory + Layout<columns>::kProject, norm, column()) : 1.0f;
    const Share tiles = tiles_of_unit(group, unit);
    const auto kind = static_cast<Kind>(group.kind);
    if (group.rank_sums != 0) {
      for_fours(tiles, [&](const Four& four) { send_sums(four, sums_of(four)); });
    } else if (kind == Kind::kOut || kind == Kind::kDown) {
      for_fours(tiles, [&](const Four& four) {
        const std::uint64_t old = residual_of(four), norm = norm_at(four);
        take_hidden(four, added(old, sums_of(four)), norm);
      });
    } else if (kind == Kind::kGateUp) {
      for_fours(tiles, [&](const Four& four) { store_activated(four); });
    } else if (kind == Kind::kHead) {
      Candidate best;
      if constexpr (!samples) best = Candidate::unpack(load(place()));
      for_fours(tiles, [&](const Four& four) { take_logits(four, number, sums_of(four), best); });
      if constexpr (!samples) store(place(), best.packed());
    } else {
      for_fours(tiles, [&](const Four& four) { store_numbers(four.row, sums_of(four)); });
    }
  }
  FARWARP_DEVICE void end_task(const Task& task) {
    task_ = task;
    if (chooses(task)) send_candidates();
    if (task.rank_sums == 0) return;
    Call call = waiting_on_peers(context_.call, 1);
    // All sums of the task have been sent. First the owners send the results of all tiles, so that their flights overlap.
#pragma unroll 1
    for (int shot = 0; shot < 2; ++shot) for_all_fours([&](const Four& four) { add_ranks(call, four, shot == 0); });
    context_.call.live = call.live;
  }

 private:
  struct Numbers {
    float of[4];
  };
  /// The thread's rows of a tile.
  struct Four {
    int tile;     ///< of the matrix
    int in_unit;  ///< the tile's number
    int row;      ///< of the matrix, the first of the four
  };
  static constexpr int kOfTile = columns * kTileRows / 4;  ///< threads
  static constexpr int kTilesAtOnce = kWorkerThreads / kOfTile;
  static_assert(kGroupTiles % kUnitTiles == 0, "a tile's number in its task and in its group tell the same thread");
  static constexpr int kRounds = (kUnitTiles + kTilesAtOnce - 1) / kTilesAtOnce;  ///< of a unit

  static FARWARP_DEVICE int column() { return thread_index() / 4 % columns; }
  static FARWARP_DEVICE int row_of_tile() { return thread_index() % 4 * 4; }

  /// Round `round` of a unit. Its tile exists or not for whole warps.
  FARWARP_DEVICE Four four_of(const Share& tiles, int round) const {
    const int in_unit = round * kTilesAtOnce + thread_index() / kOfTile;
    const int tile = task_.first + tiles.first + in_unit;
    return {tile, in_unit, tile * kTileRows + row_of_tile()};
  }
  template <class Use>
  FARWARP_DEVICE void for_fours(const Share& tiles, const Use& use) const {
#pragma unroll 1
    for (int round = 0; round < kRounds; ++round) {
      const Four four = four_of(tiles, round);
      if (four.in_unit < tiles.count) use(four);
    }
  }

  /// The numbers at `row` of a tile's first or other half.
  FARWARP_DEVICE Numbers sums_of(const Four& four, int row) const {
    using Shared4 = Shared<const Vec16>;
    Numbers sums{};
#pragma unroll
    for (int number = 0; number < Project::kPartials; ++number) {
      const Shared<float> at =
          shared().floats(Project::partials(0, number)) + unit_sums_at(columns, four.in_unit, column(), row);
      const Vec16 words = load(Shared4(reinterpret_cast<const Vec16*>(at.raw)));
      const Two low = unpack_two(words.lo), high = unpack_two(words.hi);
      sums = {{add(sums.of[0], low.first), add(sums.of[1], low.second), add(sums.of[2], high.first),
               add(sums.of[3], high.second)}};
    }
#pragma unroll
    for (float& sum : sums.of) sum = multiply(sum, inverse_);
    return sums;
  }
  FARWARP_DEVICE Numbers sums_of(const Four& four) const { return sums_of(four, row_of_tile()); }

  FARWARP_DEVICE std::uint64_t residual_of(const Four& four) const {
    return load(residual_at<columns>(context_.args, four.row, column()));
  }
  FARWARP_DEVICE void store_numbers(int row, const Numbers& numbers) const {
    store_four<columns>(context_.call, context_.worker, task_.out, row, column(),
                        pack_four(numbers.of[0], numbers.of[1], numbers.of[2], numbers.of[3]));
  }
  /// Rows 0 to 7 of a tile are of gate, rows 8 to 15 the same of up.
  FARWARP_DEVICE void store_activated(const Four& four) const {
    if (row_of_tile() >= 8) return;
    const Numbers gate = sums_of(four), up = sums_of(four, row_of_tile() + 8);
    Numbers activated;
#pragma unroll
    for (int i = 0; i < 4; ++i) activated.of[i] = multiply(swish(gate.of[i]), up.of[i]);
    store_numbers(four.tile * (kTileRows / 2) + row_of_tile(), activated);
  }

  template <class Use>
  FARWARP_DEVICE void for_all_fours(const Use& use) const {
#pragma unroll 1
    for (int unit = 0; unit * kUnitTiles < task_.count; ++unit) for_fours(tiles_of_unit(task_, unit), use);
  }
  FARWARP_DEVICE std::uint64_t norm_at(const Four& four) const {
    return load(context_.parameter(task_.norm) + four.row / 4);
  }

  static FARWARP_DEVICE std::uint64_t added(std::uint64_t old, const Numbers& numbers) {
    return pack_four(add(number_of(old, 0), numbers.of[0]), add(number_of(old, 1), numbers.of[1]),
                     add(number_of(old, 2), numbers.of[2]), add(number_of(old, 3), numbers.of[3]));
  }
  /// x or middle: four rows of it.
  FARWARP_DEVICE void take_hidden(const Four& four, std::uint64_t hidden, std::uint64_t norm) const {
    float squares = store_hidden(context_, context_.call, task_.out, four.row, column(), hidden, norm);
    squares = add(squares, shuffle_xor(squares, 1));
    squares = add(squares, shuffle_xor(squares, 2));
    const float of_next_column = shuffle_xor(squares, 4);
    if (row_of_tile() == 0 && column() % 2 == 0)
      store_squares(context_, context_.call, task_.out, four.tile, column() / 2, squares, of_next_column);
  }

  FARWARP_DEVICE int owner() const { return column_owner(columns, context_.args.view.size, column()); }
  FARWARP_DEVICE void send_sums(const Four& four, const Numbers& sums) const {
    const WorldView& view = context_.args.view;
    const auto to = [&](int row) {
      return peer_address<Packet>(view, owner(), task_.rank_sums) +
             rank_sums_at(columns, task_.matrix.tiles, view.rank, four.tile, column(), row_of_tile() + row);
    };
    store_packet(to(0), pack_two(sums.of[0], sums.of[1]), context_.call.epoch);
    store_packet(to(2), pack_two(sums.of[2], sums.of[3]), context_.call.epoch);
  }
  FARWARP_DEVICE std::int64_t place_of_hidden(const Four& four) const {
    return rank_hidden_at(columns, task_.matrix.tiles, context_.args.view.size, four.tile, column(), row_of_tile());
  }
  /// To all ranks, from the one after this rank on: not all ranks to one peer at once.
  FARWARP_DEVICE void send_hidden(const Four& four, std::uint64_t hidden) const {
    const WorldView& view = context_.args.view;
    const std::int64_t at = place_of_hidden(four);
    const auto send = [&](int peer) {
      store_packet(peer_address<Packet>(view, peer, task_.rank_sums) + at, hidden, context_.call.epoch);
    };
    for (int peer = view.rank + 1; peer < view.size; ++peer) send(peer);
    for (int peer = 0; peer <= view.rank; ++peer) send(peer);
  }
  /// [warp] `first_shot`: the owner of the column adds up the sums of all ranks, in their order, and sends what becomes of the four rows; other threads do nothing.
  /// Else all threads take it. One function, so that the kernel has the wait once.
  FARWARP_DEVICE void add_ranks(Call& call, const Four& four, bool first_shot) const {
    constexpr int kTogether =
        Target::kHasBulkCopy ? 4 : 1;  ///< ranks, of which each has two packets; CDNA has no registers for more
    const WorldView& view = context_.args.view;
    const bool owns = first_shot && owner() == view.rank;
    const std::uint64_t old = owns ? residual_of(four) : 0, norm = first_shot ? 0 : norm_at(four);
    Numbers sums{};
    std::uint64_t hidden = 0;
#pragma unroll 1
    for (int first = 0; first < (first_shot ? view.size : 1); first += kTogether) {
      Global<Packet> from[2 * kTogether];
      std::uint64_t data[2 * kTogether] = {};
      std::uint32_t wanted = first_shot ? 0 : 1;
#pragma unroll
      for (int i = 0; i < 2 * kTogether; ++i) {
        const std::int64_t of_sums =
            rank_sums_at(columns, task_.matrix.tiles, first + i / 2, four.tile, column(), row_of_tile() + i % 2 * 2);
        from[i] = vector_at(view, task_.rank_sums) + (first_shot ? of_sums : place_of_hidden(four));
        if (owns && first + i / 2 < view.size) wanted |= 1u << i;
      }
      wait_packets<2>(call, from, wanted, data,
                      first_shot ? Wait{.site = kSiteRankSums, .peer = -1 - first}
                                 : Wait{.site = kSiteHidden, .peer = owner(), .depth = 1});
      warp_sync();  // lanes leave the wait one by one
      hidden = data[0];
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        const Two low = unpack_two(data[2 * i]), high = unpack_two(data[2 * i + 1]);
        sums = {{add(sums.of[0], low.first), add(sums.of[1], low.second), add(sums.of[2], high.first),
                 add(sums.of[3], high.second)}};
      }
    }
    if (!first_shot) {
      take_hidden(four, hidden, norm);
    } else if (owns && call.live) {
      send_hidden(four, added(old, sums));
    }
  }

  FARWARP_DEVICE void take_logits(const Four& four, int number, const Numbers& logits, Candidate& best) const {
    const Args& args = context_.args;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int token = args.first_token + four.row + i;
      if (token >= args.vocabulary) continue;
      if constexpr (!samples) best.take(Candidate::of(logits.of[i], token));
      if (args.logits != nullptr)
        store(Global<float>(args.logits) + ((std::int64_t{number} * columns + column()) * args.vocabulary + token),
              logits.of[i]);
    }
    if constexpr (samples) {
      const Peer<Packet> to = peer_address<Packet>(args.view, args.view.rank, task_.out);
#pragma unroll
      for (int i = 0; i < 4; i += 2)
        store_vector(context_.call, context_.worker, to + logits_at(columns, four.tile, column(), row_of_tile() + i),
                     pack_two(logits.of[i], logits.of[i + 1]));
    }
  }
  /// The best token of each column among the worker's, for all workers of all ranks.
  FARWARP_DEVICE void send_candidates() const {
    const Args& args = context_.args;
    Candidate best = Candidate::unpack(load(place()));
#pragma unroll
    for (int lanes = 1; lanes < 4; lanes *= 2) best.take(Candidate::unpack(shuffle_xor(best.packed(), lanes)));
    store(place(), best.packed());
    sync_warps();
    for (int i = thread_index(); i < columns * args.view.size; i += kWorkerThreads) {
      const int of = i % columns, peer = i / columns;
      Candidate best_of_column;
#pragma unroll
      for (int at = 0; at < kWorkerThreads / 4; at += columns)
        best_of_column.take(Candidate::unpack(load(places() + 4 * (at + of))));
      store_packet(peer_address<Packet>(args.view, peer, args.candidates) +
                       ((args.view.rank * args.workers + context_.worker.number()) * columns + of),
                   best_of_column.packed(), context_.call.epoch);
    }
  }

  /// Whether a task keeps the best tokens: the head's, of a decoder that does not sample.
  static FARWARP_DEVICE bool chooses(const Task& task) {
    return !samples && static_cast<Kind>(task.kind) == Kind::kHead;
  }
  /// The best token of each thread's logits of a task so far: where attention has scores, because registers are few.
  FARWARP_DEVICE Shared<std::uint64_t> places() const {
    return word_at<std::uint64_t>(context_.memory, Layout<columns>::kScores);
  }
  FARWARP_DEVICE Shared<std::uint64_t> place() const { return places() + thread_index(); }

  using Project = typename Layout<columns>::Project;
  static_assert(kWorkerThreads * 8 <= Layout<columns>::kQueries - Layout<columns>::kScores);
  FARWARP_DEVICE SharedSums<columns> shared() const { return {context_.memory + Layout<columns>::kProject}; }

  const Context<columns>& context_;
  Task task_{};
  float inverse_ = 1;  ///< of the root of the mean of the column's squares
};

}  // namespace farwarp::FARWARP_TARGET::qwen3
