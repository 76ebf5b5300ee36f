// The heads of a pair of KV head and sequence: the group's queries and the token's key and value, which all warps read in shared memory.
//
// Of streamed vectors on Hopper there are two buffers of them: the heads of a worker's next pair are loaded while it attends to this one.
#pragma once

#include "farwarp/models/qwen3/heads.dev.h"
#include "farwarp/models/qwen3/key_tiles.dev.h"

namespace farwarp::FARWARP_TARGET::qwen3 {

/// A head as it has arrived, and what is done to it.
struct RawHead {
  std::uint64_t four = 0;
  HeadParameters parameters;
  bool exists = false;  ///< the lane's rows, 4 * lane on
};

template <int columns>
class PairHeads {
 public:
  FARWARP_DEVICE PairHeads(const Context<columns>& context, const Task& task) : context_(context), task_(task) {}

  FARWARP_DEVICE int group() const { return context_.args.query_heads / context_.args.kv_heads; }

  /// [the warps that compute] Waits for the heads of a tile's pair.
  FARWARP_DEVICE void receive(const TileCursor<columns>& tile) const {
    const int position = tile.length() - 1, heads = count(tile);
    for (int i = warp_index(); i < heads; i += kWarps) {
      const bool query = i < group(), key = i == group();
      const Head one{i, query, key};
      RawHead raw;
      load_head(tile, one, position, raw);
      warp_sync();  // lanes leave the wait one by one
      store_head(one, raw, buffer_);
    }
    sync_warps();
  }

  /// [warp] Loads the warp's first head of the worker's pair after `tile`'s. Without a wait: of streamed vectors all have arrived.
  FARWARP_DEVICE void load_next(TileCursor<columns> tile, RawHead& raw) const {
    tile.advance_pair();
    if (tile.exists() && warp_index() < count(tile)) load_head(tile, head(warp_index()), tile.length() - 1, raw);
  }
  /// [warp] Stores the warp's heads of the next pair: `first`, which it has loaded, and a second one if a group of eight has one.
  FARWARP_DEVICE void store_next(const TileCursor<columns>& tile, RawHead& first) const {
    const int heads = count(tile);
    if (warp_index() < heads) store_head(head(warp_index()), first, 1 - buffer_);
    if (warp_index() + kWarps >= heads) return;
    const Head second = head(warp_index() + kWarps);
    load_head(tile, second, tile.length() - 1, first);
    store_head(second, first, 1 - buffer_);
  }
  /// [warp] What was the next pair is the present one.
  FARWARP_DEVICE void advance() { buffer_ = 1 - buffer_; }

  /// `offset`: in Layout, of the present pair's heads.
  template <class Word>
  FARWARP_DEVICE Shared<Word> at(int offset) const {
    return in_buffer<Word>(offset, buffer_);
  }
  template <class Word>
  FARWARP_DEVICE Shared<Word> in_buffer(int offset, int buffer) const {
    if constexpr (Layout<columns>::kLoadsHeadsAhead) offset += buffer * Layout<columns>::kToNextHeads;
    return word_at<Word>(context_.memory, offset);
  }

 private:
  struct Head {
    int number;  ///< of the pair's: the queries, then, if the worker's tiles have it, the token's key and value
    bool query, key;
  };
  FARWARP_DEVICE Head head(int number) const { return {number, number < group(), number == group()}; }
  FARWARP_DEVICE int count(const TileCursor<columns>& tile) const { return group() + (tile.shares_new_key() ? 2 : 0); }

  /// [warp] Waits for a head.
  FARWARP_DEVICE void load_head(const TileCursor<columns>& tile, const Head& head, int position, RawHead& raw) const {
    const Args& args = context_.args;
    const int of_vector = head.query ? tile.kv_head() * group() + head.number
                          : head.key ? args.query_heads + tile.kv_head()
                                     : args.query_heads + args.kv_heads + tile.kv_head();
    if (head.query || head.key)
      raw.parameters = HeadParameters::load_for(
          args, (head.query ? args.q_norm : args.k_norm) + task_.layer * args.norm_pitch, position);
    raw.exists = lane_index() * 4 < args.head_dim;
    if (raw.exists)
      raw.four = wait_four<columns>(context_.call, context_.worker, task_.in,
                                    of_vector * args.head_dim + lane_index() * 4, tile.column(), kSiteHeads);
  }
  /// [warp] Normalises and rotates a head, and stores it for all warps.
  FARWARP_DEVICE void store_head(const Head& head, RawHead& raw, int buffer) const {
    if (head.query || head.key) raw.four = normalise_and_rotate(context_.args, raw.four, raw.parameters);
    const int offset = head.query ? Layout<columns>::kQueries + head.number * kMostHeadDim * 2
                       : head.key ? Layout<columns>::kNewKey
                                  : Layout<columns>::kNewValue;
    if (raw.exists) store(in_buffer<std::uint64_t>(offset, buffer) + lane_index(), raw.four);
  }

  const Context<columns>& context_;
  const Task& task_;
  int buffer_ = 0;  ///< of the present pair
};

}  // namespace farwarp::FARWARP_TARGET::qwen3
