// Finishes the tiles of tasks whose vectors do not stream, of up to eight columns: a thread has one sum of each tile,
// and four threads the same four rows.
//
// Several ranks, one-shot: a finisher sends the sums of all its tiles to all ranks, itself included, then adds all
// ranks' sums in the order of the ranks.
#pragma once

#include "farwarp/fleet/epilogue.dev.h"

namespace farwarp::FARWARP_TARGET::fleet {

template <class Model>
class PacketFinisher {
  static constexpr int columns = Model::columns;

 public:
  /// `thread`: 0 to TileFinisher::kThreads - 1.
  FARWARP_DEVICE PacketFinisher(const typename Model::Context& context, int thread)
      : context_(context), tiles_(context.memory + Model::Layout::kProject, thread), own_(context) {}

  /// [the warps that finish] A task without weights that begins the hidden vector.
  FARWARP_DEVICE void begin_hidden(const Task& task) {
    task_ = task;
    for (int tile = task.first; tile < task.first + task.count; ++tile) tiles_.without_sums(tile, *this);
  }
  /// [the warps that finish] All tiles of a task. `token`: its number in this launch.
  FARWARP_DEVICE void run(BlockWaits& waits, const Task& task, int token) {
    if (task.count == 0) return;
    begin_task(task, token);
    tiles_.run(waits, task, *this);
    end_task();
  }

  // Where the warps that compute finish tiles.
  FARWARP_DEVICE void begin_task(const Task& task, int token) {
    task_ = task;
    token_ = token;
    tiles_.begin_task(context_.call, context_.worker, task, norm_of(launch(), task), kSiteSquares);
  }
  /// [warp]
  FARWARP_DEVICE void finish(int pass, int tile, int buffer) {
    tiles_.prepare(task_, pass, tile, *this);
    tiles_.finish(task_, pass, tile, buffer, *this);
  }
  /// [warp]
  FARWARP_DEVICE void end_task() {
    if (task_.epilogue == Epilogue::kModel) own_.end_task(task_, tiles_.exists(), tiles_.column());
    if (task_.rank_sums >= 0) add_ranks();
  }

  // What TileFinisher calls.
  FARWARP_DEVICE const WorldView& view() const { return launch().view; }
  FARWARP_DEVICE void prepare(int tile, int row, int column) {
    if (task_.epilogue == Epilogue::kHidden && task_.rank_sums < 0) load_residual({tile, row, column});
  }
  /// [warp]
  FARWARP_DEVICE void take(const FourSums& sums) {
    const Four four{sums.tile, sums.row, sums.column};
    if (task_.rank_sums >= 0) {
      send_sums(sums);
    } else if (task_.epilogue == Epilogue::kHidden) {
      add_residual(four, sums.first, sums.sums);
    } else if (!sums.first) {
      return;
    } else if (task_.epilogue == Epilogue::kGated) {
      if (four.row < 8) store_gated<columns>(context_.call, context_.worker, task_, four, sums.sums, sums.others);
    } else if (task_.epilogue == Epilogue::kModel) {
      own_.take(task_, token_, four, sums.sums);
    } else {
      store_sums<columns>(context_.call, context_.worker, task_, four, sums.sums);
    }
  }

 private:
  FARWARP_DEVICE const Launch& launch() const { return context_.args.launch; }

  FARWARP_DEVICE void load_residual(const Four& four) {
    if (task_.matrix.slices == 0) {
      old_ = Model::first_hidden(context_, four);
    } else {
      old_ = load(residual_at<columns>(launch(), four));
    }
    norm_ = norm_at(launch(), task_, four);
  }
  /// [warp] Sends a tile's sums to all ranks. Of the four threads of four rows, two have the first two rows, for half
  /// of the ranks each.
  FARWARP_DEVICE void send_sums(const FourSums& four) const {
    if (four.column >= columns) return;
    const WorldView& view = launch().view;
    const bool later = lane_index() % 2 != 0;
    const std::int64_t at =
        rank_sums_at(columns, task_.matrix.tiles, view.rank, four.tile, four.column, four.row + (later ? 2 : 0));
    const std::uint64_t two = pack_two(later ? four.sums[2] : four.sums[0], later ? four.sums[3] : four.sums[1]);
    for (int peer = lane_index() / 2 % 2; peer < view.size; peer += 2)
      store_packet(peer_address<Packet>(view, peer, task_.rank_sums) + at, two, context_.call.epoch);
  }

  /// [warp] Adds the sums of all ranks, two tiles at once: of the four threads of four rows, two have a tile, and each
  /// has two of its rows. All ranks add in the same order, so they get the same bits.
  FARWARP_DEVICE void add_ranks() {
    constexpr int kTogether = 4;  ///< ranks
    const WorldView& view = launch().view;
    const int row = tiles_.row() / 4 * 4, column = tiles_.column();
    const int half = lane_index() / 2 % 2;
    const bool later = lane_index() % 2 != 0;
    Call call = waiting_on_peers(context_.call);
#pragma unroll 1
    for (int pair = 0; pair < task_.count; pair += 2) {
      const Four four{task_.first + pair + half, row, column};
      const bool exists = tiles_.exists() && pair + half < task_.count;
      if (exists && !later) load_residual(four);
      float sums[4] = {};
#pragma unroll 1
      for (int first = 0; first < view.size; first += kTogether) {
        Global<Packet> from[kTogether];
        std::uint64_t data[kTogether] = {};
        std::uint32_t wanted = 0;
#pragma unroll
        for (int i = 0; i < kTogether; ++i) {
          from[i] = packets_at(view, task_.rank_sums) +
                    rank_sums_at(columns, task_.matrix.tiles, first + i, four.tile, column, row + (later ? 2 : 0));
          if (exists && first + i < view.size) wanted |= 1u << i;
        }
        wait_packets<1>(call, from, wanted, data, Wait{.site = kSiteRankSums, .peer = -1 - first});
        warp_sync();  // lanes leave the wait one by one
#pragma unroll
        for (const std::uint64_t bits : data) {
          const Two two = unpack_two(bits);
          sums[0] = add(sums[0], two.first);
          sums[1] = add(sums[1], two.second);
        }
      }
      sums[2] = shuffle_xor(sums[0], 1);
      sums[3] = shuffle_xor(sums[1], 1);
      add_residual(four, exists && !later, sums);
    }
    context_.call.live = call.live;
  }

  /// [warp] A row is a lane, so a column's fours of a tile are on every fourth one.
  FARWARP_DEVICE void add_residual(const Four& four, bool stores, const float (&sums)[4]) const {
    Call later = context_.call;
    later.epoch += static_cast<std::uint32_t>(task_.out_later);
    store_hidden<columns, 4>(launch(), later, context_.worker, task_, four, stores ? added(old_, sums) : 0, norm_,
                             stores);
  }

  const typename Model::Context& context_;
  TileFinisher<columns> tiles_;
  typename Model::OwnEpilogue own_;
  Task task_{};
  int token_ = 0;
  std::uint64_t old_ = 0, norm_ = 0;  ///< of the next tile, on the first thread of four rows; in
                                      ///< add_ranks() on the first of the two that have the tile
};

}  // namespace farwarp::FARWARP_TARGET::fleet
