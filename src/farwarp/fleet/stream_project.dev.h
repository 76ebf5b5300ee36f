// A task that multiplies a matrix of weights by a streamed vector: the sums of a group of tiles are in registers until
// the whole vector has been multiplied (drawn in STREAM.md). The warps that compute finish the tiles of a portion
// together: a thread finishes four rows of a column at once, and has the same column and the same four rows of all its
// tiles.
//
// Several ranks, two-shot: each column has an owner rank, which gets all ranks' sums, adds them in the order of the
// ranks to the residual, and sends all ranks the hidden vector.
#pragma once

#include "farwarp/fleet/epilogue.dev.h"
#include "farwarp/fleet/multiply_mfma.dev.h"
#include "farwarp/fleet/multiply_wgmma.dev.h"

namespace farwarp::FARWARP_TARGET::fleet {

/// Tiles of a portion of a group: the number of the first in the group, and how many.
FARWARP_DEVICE Share tiles_of_portion(const Task& group, int portion) {
  const int first = portion * kPortionTiles, rest = group.count - first;
  return {first, rest < kPortionTiles ? rest : kPortionTiles};
}

template <int columns>
class StreamedProjection {
 public:
  using Multiplier = std::conditional_t<kMfma, MfmaMultiplier<columns>, WgmmaMultiplier<columns>>;

  FARWARP_DEVICE StreamedProjection(Shared<std::byte> memory, WeightReader<columns>& weights)
      : multiplier_(memory, weights) {}

  /// [the warps that compute] Calls finish(group, portion) for each portion of each group when its partial sums are in
  /// shared memory. `group`: group_of(). `norm`: of the input; if it exists, finish() may call
  /// inverse_root_of_column().
  template <class Finish>
  FARWARP_DEVICE void run(Call& call, const Worker<columns>& worker, const Task& task, std::uint32_t site,
                          const InputNorm& norm, const Finish& finish) {
    constexpr int kPortions = Multiplier::kPortions;
    const int groups = task.matrix.groups(task.count);
    multiplier_.begin_task(worker, task, norm);
#pragma unroll 1
    for (int group_number = 0; group_number < groups; ++group_number) {
      const Task group = group_of(task, group_number);
      typename Multiplier::PortionSums sums[kPortions] = {};
      multiplier_.multiply(call, worker, group, group_number, site, sums);
#pragma unroll 1
      for (int portion = 0; portion * kPortionTiles < group.count; ++portion) {
#pragma unroll
        for (int i = 0; i < kPortions; ++i) {
          if (i == portion) multiplier_.store_partials(sums[i]);
        }
        sync_warps();
        finish(group, portion);
        sync_warps();
      }
    }
  }

 private:
  Multiplier multiplier_;
};

/// All functions: [the warps that compute].
template <class Model>
class StreamFinisher {
  static constexpr int columns = Model::columns;

 public:
  FARWARP_DEVICE explicit StreamFinisher(const typename Model::Context& context) : context_(context), own_(context) {}

  /// A task without weights that begins the hidden vector.
  FARWARP_DEVICE void begin_hidden(const Task& task) {
    task_ = task;
    for_all([&](const Four& four, int) {
      const std::uint64_t norm = norm_at(launch(), task_, four);
      store_hidden_four(context_.call, four, Model::first_hidden(context_, four), norm);
    });
  }
  FARWARP_DEVICE void begin_task(const Task& task) {
    if (task.epilogue == Epilogue::kModel) own_.begin_task();
  }
  /// A portion of a group's tiles, whose partial sums are in shared memory. `token`: its number in this launch.
  FARWARP_DEVICE void finish(const Task& group, int token, int portion) {
    task_ = group;
    const InputNorm input_norm = norm_of(launch(), group);
    inverse_ = input_norm.exists ? inverse_root_of_column<columns>(project(), input_norm, column()) : 1.0f;
    const Share tiles = tiles_of_portion(group, portion);
    if (group.rank_sums >= 0) {
      for_each(tiles, [&](const Four& four, int in_portion) { send_sums(four, sums_of(in_portion)); });
    } else if (group.epilogue == Epilogue::kHidden) {
      for_each(tiles, [&](const Four& four, int in_portion) {
        const std::uint64_t old = load(residual_at<columns>(launch(), four)), norm = norm_at(launch(), task_, four);
        store_hidden_four(context_.call, four, added(old, sums_of(in_portion).of), norm);
      });
    } else if (group.epilogue == Epilogue::kGated) {
      for_each(tiles, [&](const Four& four, int in_portion) {
        if (four.row >= 8) return;
        store_gated<columns>(context_.call, context_.worker, task_, four, sums_of(in_portion).of,
                             sums_of(in_portion, four.row + 8).of);
      });
    } else if (group.epilogue == Epilogue::kModel) {
      for_each(tiles, [&](const Four& four, int in_portion) { own_.take(task_, token, four, sums_of(in_portion).of); });
    } else {
      for_each(tiles, [&](const Four& four, int in_portion) {
        store_sums<columns>(context_.call, context_.worker, task_, four, sums_of(in_portion).of);
      });
    }
  }
  FARWARP_DEVICE void end_task(const Task& task) {
    task_ = task;
    if (task.epilogue == Epilogue::kModel) own_.end_task(task, true, column());
    if (task.rank_sums < 0) return;
    Call call = waiting_on_peers(context_.call, 1);
    // All sums of the task have been sent. First the owners send the results of all tiles, so that their flights
    // overlap.
#pragma unroll 1
    for (int shot = 0; shot < 2; ++shot) for_all([&](const Four& four, int) { add_ranks(call, four, shot == 0); });
    context_.call.live = call.live;
  }

 private:
  struct Sums4 {
    float of[4];
  };
  static constexpr int kOfTile = columns * kTileRows / 4;  ///< threads
  static constexpr int kTilesAtOnce = kComputingThreads / kOfTile;
  static_assert(kGroupTiles % kPortionTiles == 0, "a tile's number in its task and in its group tell the same thread");
  static constexpr int kRounds = (kPortionTiles + kTilesAtOnce - 1) / kTilesAtOnce;  ///< of a portion

  FARWARP_DEVICE const Launch& launch() const { return context_.args.launch; }
  FARWARP_DEVICE Shared<std::byte> project() const { return context_.memory + Model::Layout::kProject; }
  static FARWARP_DEVICE int column() { return thread_index() / 4 % columns; }
  static FARWARP_DEVICE int row() { return thread_index() % 4 * 4; }  ///< of a tile

  /// use(four, number of its tile in the portion). A tile exists or not for whole warps.
  template <class Use>
  FARWARP_DEVICE void for_each(const Share& tiles, const Use& use) const {
#pragma unroll 1
    for (int round = 0; round < kRounds; ++round) {
      const int in_portion = round * kTilesAtOnce + thread_index() / kOfTile;
      if (in_portion < tiles.count) use(Four{task_.first + tiles.first + in_portion, row(), column()}, in_portion);
    }
  }
  /// The same of all tiles of the task.
  template <class Use>
  FARWARP_DEVICE void for_all(const Use& use) const {
#pragma unroll 1
    for (int portion = 0; portion * kPortionTiles < task_.count; ++portion)
      for_each(tiles_of_portion(task_, portion), use);
  }

  /// The sums from `row` on.
  FARWARP_DEVICE Sums4 sums_of(int in_portion, int row) const {
    using Project = typename Model::Layout::Project;
    Sums4 sums{};
#pragma unroll
    for (int partial = 0; partial < Project::kPartials; ++partial) {
      const Shared<float> at = SharedSums<columns>{project()}.floats(Project::partials(0, partial)) +
                               portion_sums_at(columns, in_portion, column(), row);
      const Vec16 words = load(Shared<const Vec16>(reinterpret_cast<const Vec16*>(at.raw)));
      const Two low = unpack_two(words.lo), high = unpack_two(words.hi);
      sums = {{add(sums.of[0], low.first), add(sums.of[1], low.second), add(sums.of[2], high.first),
               add(sums.of[3], high.second)}};
    }
#pragma unroll
    for (float& sum : sums.of) sum = multiply(sum, inverse_);
    return sums;
  }
  FARWARP_DEVICE Sums4 sums_of(int in_portion) const { return sums_of(in_portion, row()); }

  /// A column's fours of a tile are on neighbouring lanes.
  FARWARP_DEVICE void store_hidden_four(const Call& call, const Four& four, std::uint64_t hidden,
                                        std::uint64_t norm) const {
    store_hidden<columns, 1>(launch(), call, context_.worker, task_, four, hidden, norm, true);
  }

  FARWARP_DEVICE int owner() const { return column_owner(columns, launch().view.size, column()); }
  FARWARP_DEVICE void send_sums(const Four& four, const Sums4& sums) const {
    const WorldView& view = launch().view;
    const auto to = [&](int row) {
      return peer_address<Packet>(view, owner(), task_.rank_sums) +
             rank_sums_at(columns, task_.matrix.tiles, view.rank, four.tile, four.column, four.row + row);
    };
    store_packet(to(0), pack_two(sums.of[0], sums.of[1]), context_.call.epoch);
    store_packet(to(2), pack_two(sums.of[2], sums.of[3]), context_.call.epoch);
  }
  FARWARP_DEVICE std::int64_t place_of_hidden(const Four& four) const {
    return rank_hidden_at(columns, task_.matrix.tiles, launch().view.size, four.tile, four.column, four.row);
  }
  /// To all ranks, from the one after this rank on: not all ranks to one peer at once.
  FARWARP_DEVICE void send_hidden(const Four& four, std::uint64_t hidden) const {
    const WorldView& view = launch().view;
    const std::int64_t at = place_of_hidden(four);
    const auto send = [&](int peer) {
      store_packet(peer_address<Packet>(view, peer, task_.rank_sums) + at, hidden, context_.call.epoch);
    };
    for (int peer = view.rank + 1; peer < view.size; ++peer) send(peer);
    for (int peer = 0; peer <= view.rank; ++peer) send(peer);
  }
  /// [warp] `first_shot`: the owner of the column adds up the sums of all ranks, in their order, and sends what becomes
  /// of the four rows; other threads do nothing. Else all threads take it. One function, so that the kernel has the
  /// wait once.
  FARWARP_DEVICE void add_ranks(Call& call, const Four& four, bool first_shot) const {
    constexpr int kTogether =
        Target::kHasBulkCopy ? 4 : 1;  ///< ranks, of which each has two packets; CDNA has no registers for more
    const WorldView& view = launch().view;
    const bool owns = first_shot && owner() == view.rank;
    const std::uint64_t old = owns ? load(residual_at<columns>(launch(), four)) : 0,
                        norm = first_shot ? 0 : norm_at(launch(), task_, four);
    Sums4 sums{};
    std::uint64_t hidden = 0;
#pragma unroll 1
    for (int first = 0; first < (first_shot ? view.size : 1); first += kTogether) {
      Global<Packet> from[2 * kTogether];
      std::uint64_t data[2 * kTogether] = {};
      std::uint32_t wanted = first_shot ? 0 : 1;
#pragma unroll
      for (int i = 0; i < 2 * kTogether; ++i) {
        const std::int64_t of_sums =
            rank_sums_at(columns, task_.matrix.tiles, first + i / 2, four.tile, four.column, four.row + i % 2 * 2);
        from[i] = packets_at(view, task_.rank_sums) + (first_shot ? of_sums : place_of_hidden(four));
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
      store_hidden_four(context_.call, four, hidden, norm);
    } else if (owns && call.live) {
      send_hidden(four, added(old, sums.of));
    }
  }

  const typename Model::Context& context_;
  typename Model::OwnEpilogue own_;
  Task task_{};
  float inverse_ = 1;  ///< of the root of the mean of the column's squares
};

}  // namespace farwarp::FARWARP_TARGET::fleet
