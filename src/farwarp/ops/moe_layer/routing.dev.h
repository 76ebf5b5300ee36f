// Which rows each expert of this rank has. Some blocks count a slice of all sources' entries each; then every block
// knows how many rows each expert has, and those blocks list them. An expert's rows begin at a tile of rows, so a tile
// belongs to one expert. The order of an expert's rows is not fixed; no result depends on it.
//
//   block of a slice   waits for its entries, counts those of each expert -> counts[slice] -> counted += 1
//   every block        waits until counted == slices; adds up -> its table of tiles, in shared memory
//   block of a slice   gives each of its entries a row -> row_ids[row], position[entry] -> listed += 1
#pragma once

#include "farwarp/ops/moe_layer/memory.dev.h"
#include "farwarp/tile/gemm/group_tiles.dev.h"

namespace farwarp::FARWARP_TARGET::moe_layer {

/// A tile of h or of y.
struct Work {
  int expert;
  int tile;    ///< of rows
  int rows;    ///< that it has
  int column;  ///< number of the tile's columns
};

/// Shared memory: i32 [experts], tiles; bytes [experts], rows of each expert's last tile.
template <int tile_rows>
class ExpertTable {
 public:
  FARWARP_DEVICE ExpertTable(Shared<std::byte> memory, int experts)
      : tiles_(memory, experts), last_rows_(reinterpret_cast<std::uint8_t*>((memory + 4 * experts).raw)) {}

  /// [warp] `rows_of(expert)`: [thread]. A block_sync() must follow.
  template <class RowsOf>
  FARWARP_DEVICE void build(const RowsOf& rows_of) const {
    tiles_.build([&](int expert) {
      const int rows = rows_of(expert), tiles = (rows + tile_rows - 1) / tile_rows;
      store(last_rows_ + expert, static_cast<std::uint8_t>(rows - (tiles - 1) * tile_rows));
      return tiles;
    });
  }
  FARWARP_DEVICE int tiles() const { return tiles_.count(); }
  FARWARP_DEVICE int first_row(int expert) const { return tiles_.before(expert) * tile_rows; }

  /// [thread] Tile `number` of h or of y, which has `columns` tiles side by side: experts in their order, of an expert
  /// a column of tiles after the other, so that blocks that run side by side read the same rows of w1 or w2.
  FARWARP_DEVICE Work work(int number, int columns) const {
    const int expert = tiles_.group_of(number / columns), before = tiles_.before(expert);
    const int tiles = tiles_.through(expert) - before, in_expert = number - before * columns;
    const int tile = in_expert % tiles;
    const int rows = tile + 1 < tiles ? tile_rows : load(last_rows_ + expert);
    return {expert, before + tile, rows, in_expert / tiles};
  }

 private:
  tile::GroupTiles tiles_;
  Shared<std::uint8_t> last_rows_;
};

/// [thread] Counts a part of a tile of rows, whose writes are this thread's, and counts it among the parts of all
/// tiles. No addition is waited for.
FARWARP_DEVICE void count_part(Global<std::uint32_t> of_tile, Global<std::uint32_t> of_all) {
  fence<Order::release, Scope::device>();
  fetch_add<Order::relaxed, Scope::device>(of_tile, 1u);
  fetch_add<Order::relaxed, Scope::device>(of_all, 1u);
}

/// Waits for tiles of rows. One thread's.
template <Failure failure>
class TileWaits {
 public:
  /// `of_all`: counts the parts of all tiles, to `count`.
  FARWARP_DEVICE TileWaits(Call& call, Global<std::uint32_t> of_all, int count)
      : call_(call), of_all_(of_all), count_(count) {}

  /// [thread] Until all parts of a tile are counted. Then copies may read it. Waits no more when all tiles are there.
  /// False if the call is over.
  FARWARP_DEVICE bool wait(Global<std::uint32_t> of_tile, int parts, Site site) {
    if (all_) return call_.live;
    all_ = load<Order::acquire, Scope::device>(of_all_) == counted_to(count_);
    if (!all_) wait_counted<failure>(call_, of_tile, parts, site, kProductsDepth);
    proxy_fence();
    return call_.live;
  }

 private:
  Call& call_;
  Global<std::uint32_t> of_all_;
  int count_;
  bool all_ = false;
};

/// How many tokens each source has, what follows from it, and how many rows the experts here have. `memory`: shared,
/// i32 [kMaxRanks + 1].
class CallSize {
 public:
  FARWARP_DEVICE CallSize(const Args& args, Shared<std::int32_t> memory) : args_(args), tokens_(memory) {}

  FARWARP_DEVICE void set(int source, int tokens) const { store(tokens_ + source, tokens); }
  FARWARP_DEVICE int tokens(int source) const { return load(tokens_ + source); }
  FARWARP_DEVICE void set_rows(std::uint32_t rows) const {
    store(tokens_ + farwarp::kMaxRanks, static_cast<std::int32_t>(rows));
  }
  FARWARP_DEVICE int rows() const { return load(tokens_ + farwarp::kMaxRanks); }
  FARWARP_DEVICE int all_tokens() const {
    int all = 0;
    for (int source = 0; source < args_.view.size; ++source) all += tokens(source);
    return all;
  }
  /// Blocks that count entries; at least 1.
  FARWARP_DEVICE int slices() const {
    const int slices = (all_tokens() * args_.k + kEntriesOfSlice - 1) / kEntriesOfSlice;
    return slices < 1 ? 1 : slices < args_.max_slices ? slices : args_.max_slices;
  }
  /// Parts of a row, so that each of `warps` warps has one, if rows are long enough.
  FARWARP_DEVICE int parts(int warps) const {
    const int tokens = all_tokens(), parts = (warps + tokens - 1) / (tokens > 0 ? tokens : 1);
    return parts < 1 ? 1 : parts < args_.max_parts ? parts : args_.max_parts;
  }

 private:
  const Args& args_;
  Shared<std::int32_t> tokens_;
};

/// A block's part in routing. `scratch`: shared memory, 12 bytes for each expert and 4 more, until run() returns.
template <int tile_rows, Failure failure>
class Routing {
 public:
  FARWARP_DEVICE Routing(Call& call, const Memory& memory, const ExpertTable<tile_rows>& table, const CallSize& size,
                         Shared<std::byte> scratch)
      : call_(call),
        memory_(memory),
        args_(memory.args),
        table_(table),
        size_(size),
        totals_(reinterpret_cast<std::uint32_t*>(scratch.raw)),
        next_(totals_ + args_.local_experts),
        counts_(next_ + args_.local_experts),
        entries_(counts_ + args_.local_experts) {}

  /// [block] Builds the table. False if the call is over.
  FARWARP_DEVICE bool run(int own_tokens) const {
    if (thread_index() < args_.view.size) take_tokens(thread_index(), own_tokens);
    for (int i = thread_index(); i < 3 * args_.local_experts + 1; i += num_threads()) store(totals_ + i, 0u);
    if (block_any(!call_.live)) return false;
    const int slices = size_.slices();
    const bool has_slice = block_index() < slices;
    if (has_slice && !count_slice(slices)) return false;
    if (thread_index() == 0) wait_counted<failure>(call_, memory_.counted(), slices, kSiteCounts, kRoutingDepth);
    if (block_any(!call_.live)) return false;
    add_up(slices);
    block_sync();
    if (warp_index() == 0) table_.build([&](int expert) { return static_cast<int>(load(totals_ + expert)); });
    if (block_any(!has_room())) return false;
    if (has_slice && !list_slice(slices)) return false;
    proxy_fence();  // copies overwrite the scratch next
    block_sync();
    return true;
  }

 private:
  FARWARP_DEVICE void take_tokens(int source, int own_tokens) const {
    std::uint64_t tokens[1] = {static_cast<std::uint64_t>(own_tokens)};
    const Global<Packet> from[] = {mine(memory_.header(args_.view.rank, source))};
    if (source != args_.view.rank)
      wait_packets<1, failure>(call_, from, 1, tokens, Wait{.site = kSiteHeader, .peer = source});
    size_.set(source, static_cast<std::int32_t>(tokens[0]));
  }

  /// [block] Calls `visit(source, entry, local expert)` for each entry of the block's slice whose expert is here.
  /// Gives up if an expert of this rank's tokens is out of range.
  template <class Visit>
  FARWARP_DEVICE void for_each_entry(int slices, const Visit& visit) const {
    const int tokens = size_.all_tokens(), of_slice = (tokens + slices - 1) / slices;
    const int begin = block_index() * of_slice, past = begin + of_slice < tokens ? begin + of_slice : tokens;
    for (int i = begin * args_.k + thread_index(); i < past * args_.k; i += num_threads()) {
      int source = 0, entry = i;
      while (entry >= size_.tokens(source) * args_.k) entry -= size_.tokens(source++) * args_.k;
      std::int64_t bad = -1;
      const int local = local_expert(args_, entry_of<failure>(call_, memory_, source, entry, bad).expert);
      if (bad != -1) complain<failure>(call_, StatusCode::kBadInput, kSiteExpert, args_.num_experts - 1, bad);
      if (local >= 0) visit(source, entry, local);
    }
  }

  FARWARP_DEVICE bool count_slice(int slices) const {
    for_each_entry(slices, [&](int, int, int local) { fetch_add(counts_ + local, 1u); });
    if (block_any(!call_.live)) return false;
    const Global<std::uint32_t> counts = memory_.counts(block_index());
    for (int expert = thread_index(); expert < args_.local_experts; expert += num_threads())
      store(counts + expert, load(counts_ + expert));
    signal(memory_.counted());
    return true;
  }

  /// [block] Counts of all slices -> totals_; those of earlier slices -> next_. A thread adds those of a few slices.
  FARWARP_DEVICE void add_up(int slices) const {
    constexpr int kTogether = 8;
    const int experts = args_.local_experts, groups = (slices + kTogether - 1) / kTogether;
    for (int i = thread_index(); i < experts * groups; i += num_threads()) {
      const int group = i / experts, expert = i - group * experts;
      std::uint32_t total = 0, before = 0;
#pragma unroll
      for (int j = 0; j < kTogether; ++j) {
        const int slice = group * kTogether + j;
        const std::uint32_t count = slice < slices ? load(memory_.counts(slice) + expert) : 0;
        if (slice < block_index()) before += count;
        total += count;
      }
      fetch_add(totals_ + expert, total);
      fetch_add(next_ + expert, before);
      fetch_add(entries_, total);
    }
  }

  /// [block] Gives up if this rank's experts have more entries than there is room for.
  FARWARP_DEVICE bool has_room() const {
    if (thread_index() != 0) return true;
    const std::uint32_t entries = load(entries_);
    size_.set_rows(entries);
    if (entries <= args_.max_rows) return true;
    if (block_index() == 0) complain<failure>(call_, StatusCode::kCapacity, kSiteCapacity, args_.max_rows, entries);
    return false;
  }

  FARWARP_DEVICE bool list_slice(int slices) const {
    for (int expert = thread_index(); expert < args_.local_experts; expert += num_threads())
      store(next_ + expert, static_cast<std::uint32_t>(table_.first_row(expert)) + load(next_ + expert));
    block_sync();
    for_each_entry(slices, [&](int source, int entry, int local) {
      const auto row = static_cast<std::int32_t>(fetch_add(next_ + local, 1u));
      if (row >= args_.row_tiles * tile_rows) {  // another kernel of this operator has written the counts
        complain<failure>(call_, StatusCode::kMisuse, farwarp::kSiteBegin, 0, 0);
        return;
      }
      store(memory_.row_ids() + row, source * args_.max_tokens + entry / args_.k);
      store(memory_.position(source, entry), row);
    });
    if (block_any(!call_.live)) return false;
    signal(memory_.listed());
    return true;
  }

  /// [block] Publishes what the block has stored to this device.
  FARWARP_DEVICE static void signal(Global<std::uint32_t> counter) {
    drain_stores();
    block_sync();
    if (thread_index() == 0) fetch_add<Order::release, Scope::device>(counter, 1u);
  }

  Call& call_;
  const Memory& memory_;
  const Args& args_;
  const ExpertTable<tile_rows>& table_;
  const CallSize& size_;
  Shared<std::uint32_t> totals_;   ///< [experts]: entries of all slices
  Shared<std::uint32_t> next_;     ///< [experts]: entries of earlier slices, then the next row to give out
  Shared<std::uint32_t> counts_;   ///< [experts]: entries of this block's slice
  Shared<std::uint32_t> entries_;  ///< of all experts
};

}  // namespace farwarp::FARWARP_TARGET::moe_layer
