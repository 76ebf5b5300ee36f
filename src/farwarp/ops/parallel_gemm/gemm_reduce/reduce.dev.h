// Sends partial sums to the ranks that own their rows, and adds them up there: what all kernels share. Sums are sent in bands of boxes with
// flags, or as words.
#pragma once

#include "farwarp/ops/parallel_gemm/gemm_reduce/args.h"
#include "farwarp/tile/gemm/raster.h"
#include "farwarp/world/device/wait.dev.h"
#include "farwarp/world/device/words.dev.h"

namespace farwarp::FARWARP_TARGET::gemm_reduce {

using namespace farwarp::gemm_reduce;

// ---- bands: permission to write, and flags --------------------------------------------------------------------------

using Flag = SystemCell<std::uint64_t>;

/// The flag at `owner` of this rank's band that begins at (row, column) of the whole sum.
FARWARP_DEVICE Peer<Flag> flag_at(const Args& args, int owner, int row, int column) {
  const Bands& bands = args.bands;
  return peer_address<Flag>(args.view, owner, args.at.flags) +
         bands.flag(args.view.rank, row / bands.rows - bands.first_of(owner), column / bands.columns);
}

/// [thread] Remembers which owners' memory may be written in this call.
class Permissions {
 public:
  /// Waits for the ready cell of each of `owners`, once in a call. False: the call is over.
  template <Failure failure>
  FARWARP_DEVICE bool await(Call& call, const Args& args, OwnerRange owners) {
    for (int owner = owners.first; owner <= owners.last; ++owner) {
      if (ready_ >> owner & 1) continue;
      wait_ready<failure>(call, args.at.ready_cells, owner, kSiteReady);
      ready_ |= 1u << owner;
    }
    return call.live;
  }

 private:
  std::uint32_t ready_ = 0;
};

// ---- owners of bands: add the partial sums of all ranks, in the order of the ranks, into rows of y ------------------

template <class T>
FARWARP_DEVICE T element(Vec16 eight, int i) {
  return T{static_cast<std::uint16_t>((i < 4 ? eight.lo : eight.hi) >> (16 * (i & 3)))};
}

/// [thread] Eight sums over `ranks` sources (at most `most`), added in fp32 in the order of the sources and rounded once.
template <class T, int most>
FARWARP_DEVICE Vec16 sum_in_order(const Vec16 (&parts)[most], int ranks) {
  float sums[8] = {};
#pragma unroll
  for (int source = 0; source < most; ++source) {
    if (source >= ranks) continue;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float term = to_float(element<T>(parts[source], i));
      sums[i] = source == 0 ? term : add(sums[i], term);
    }
  }
  std::uint64_t pairs[4];
#pragma unroll
  for (int pair = 0; pair < 4; ++pair) pairs[pair] = round_pair<T>(sums[2 * pair], sums[2 * pair + 1]);
  return {pairs[1] << 32 | pairs[0], pairs[3] << 32 | pairs[2]};
}

/// [thread] For each of `from` whose bit is set in `wanted`: the sums of eight neighbours of a row over `ranks` sources (at most `most`),
/// which lie `stride` bytes apart. Added in fp32 in the order of the sources and rounded once.
template <class T, int most, int vectors>
FARWARP_DEVICE void sum_sources(const Global<const std::byte> (&from)[vectors], std::uint32_t wanted,
                                std::int64_t stride, int ranks, Vec16 (&result)[vectors]) {
  Vec16 parts[vectors][most] = {};
#pragma unroll
  for (int v = 0; v < vectors; ++v) {
#pragma unroll
    for (int source = 0; source < most; ++source) {  // all loads are issued before the first result is used
      if (source < ranks && (wanted >> v & 1) != 0)
        parts[v][source] = load<Cache::streaming>(
            Global<const Vec16>(reinterpret_cast<const Vec16*>((from[v] + source * stride).raw)));
    }
  }
#pragma unroll
  for (int v = 0; v < vectors; ++v) result[v] = sum_in_order<T>(parts[v], ranks);
}

/// The bands, at one band of columns, that hold a chunk's rows.
struct Cover {
  int first, last;  ///< row bands, counted from the owner's first
  int column;
  friend constexpr bool operator==(const Cover&, const Cover&) = default;
};

FARWARP_DEVICE Cover cover_of(const Args& args, int row, int column) {
  const Bands& bands = args.bands;
  const int first_row = args.view.rank * bands.owned;  // of the whole sum
  const int first_band = bands.first_of(args.view.rank);
  const int last = row + kChunkRows < bands.owned ? row + kChunkRows - 1 : bands.owned - 1;
  return {(first_row + row) / bands.rows - first_band, (first_row + last) / bands.rows - first_band, column};
}

/// [warp] Waits for the flags of the bands of `cover` from all sources, one lane for each flag. False: the call is over.
template <Failure failure>
FARWARP_DEVICE bool await_bands(Call& call, const Args& args, Cover cover) {
  const int source = lane_index() % args.view.size;
  const int band = cover.first + lane_index() / args.view.size;
  if (band <= cover.last) {
    const Global<Flag> flags = own_address<Flag>(args.view, args.at.flags);
    std::uint32_t value = 0;
    // The peer may itself be waiting for a ready cell: depth 1.
    wait_tagged<failure>(call, flags + args.bands.flag(source, band, cover.column), call.epoch, value,
                         {.site = kSitePartials, .peer = source, .depth = 1});
  }
  warp_sync();
  return ballot(!call.live) == 0;
}

/// [warp] Adds up one chunk: `kChunkRows` of the owned rows from `row` by `columns` columns from `column`, without what lies outside.
/// `put(row, column, eight)` gets eight neighbours of a row. A lane loads `vectors` vectors at a time, each from all sources (at most
/// `most`).
template <class T, int columns, int vectors, int most, class Put>
FARWARP_DEVICE void reduce_chunk(const Args& args, int row, int column, const Put& put) {
  constexpr int kRowVectors = columns / 8, kWarp = Target::kWarpSize;
  static_assert(kChunkRows * kRowVectors % (kWarp * vectors) == 0);
  const Global<const std::byte> inbox = own_address<const std::byte>(args.view, args.at.inbox);
  const std::int64_t stride = std::int64_t{args.bands.owned} * args.n * 2;
  const auto row_of = [&](int vector) { return row + vector / kRowVectors; };
  const auto column_of = [&](int vector) { return column + vector % kRowVectors * 8; };
#pragma unroll 1
  for (int first = lane_index(); first < kChunkRows * kRowVectors; first += kWarp * vectors) {
    Global<const std::byte> from[vectors];
    std::uint32_t wanted = 0;
#pragma unroll
    for (int v = 0; v < vectors; ++v) {
      const int at = row_of(first + v * kWarp), to = column_of(first + v * kWarp);
      if (at < args.bands.owned && to < args.n) wanted |= 1u << v;
      from[v] = inbox + (std::int64_t{at} * args.n + to) * 2;
    }
    Vec16 sums[vectors];
    sum_sources<T, most>(from, wanted, stride, args.view.size, sums);
#pragma unroll
    for (int v = 0; v < vectors; ++v) {
      if (wanted >> v & 1) put(row_of(first + v * kWarp), column_of(first + v * kWarp), sums[v]);
    }
  }
}

/// The largest number up to `wanted` that divides a lane's vectors of a chunk.
template <int columns>
consteval int vectors_of_chunk(int wanted) {
  constexpr int kOfLane = kChunkRows * (columns / 8) / Target::kWarpSize;
  while (kOfLane % wanted != 0) --wanted;
  return wanted;
}

/// [warp] reduce_chunk() with at most as many loads in flight as `vectors` vectors of eight sources take: with fewer sources, a lane loads
/// more vectors at a time.
template <class T, int columns, int vectors, class Put>
FARWARP_DEVICE void reduce_unit_of(const Args& args, int row, int column, const Put& put) {
  if (args.view.size <= 2) {
    reduce_chunk<T, columns, vectors_of_chunk<columns>(4 * vectors), 2>(args, row, column, put);
  } else if (args.view.size <= 4) {
    reduce_chunk<T, columns, vectors_of_chunk<columns>(2 * vectors), 4>(args, row, column, put);
  } else {
    reduce_chunk<T, columns, vectors, kMaxRanks>(args, row, column, put);
  }
}

/// [warp] Adds up the chunks of this rank's rows that `next()` names, until it names one past the last. `put` gets their vectors;
/// `done(chunk)` is called after each chunk. `await(cover)` waits for a chunk's bands (await_bands()). When it returns false, the call is
/// over, and neither is called any more.
template <class T, int columns, int vectors, class Next, class Await, class Put, class Done>
FARWARP_DEVICE void reduce_role(const Args& args, Next&& next, const Await& await, const Put& put, const Done& done) {
  const int chunks = chunks_of(args.bands);
  Cover awaited{-1, -1, -1};
  for (std::int64_t chunk = next(); chunk < chunks; chunk = next()) {
    const auto [row, column] = chunk_at(args.bands, static_cast<int>(chunk));
    const Cover cover = cover_of(args, row, column);
    if (cover != awaited && !await(cover)) return;
    awaited = cover;
    reduce_unit_of<T, columns, vectors>(args, row, column * columns, put);
    done(static_cast<int>(chunk));
  }
}

/// [warp] reduce_role() into y, which holds the owned rows.
template <class T, int columns, int vectors, class Next, class Await>
FARWARP_DEVICE void reduce_into_y(const Args& args, Next&& next, const Await& await) {
  const auto put = [&](int row, int column, Vec16 eight) {
    store(Global<Vec16>(reinterpret_cast<Vec16*>(static_cast<T*>(args.y) + (std::int64_t{row} * args.n + column))),
          eight);
  };
  reduce_role<T, columns, vectors>(args, next, await, put, [](int) {});
}

/// Chunks dealt in advance: a run of neighbouring chunks for warp `number` of `count` on this rank.
class EvenShare {
 public:
  FARWARP_DEVICE EvenShare(const Args& args, int number, int count) : chunks_(chunks_of(args.bands)) {
    next_ = chunks_ * number / count;
    end_ = chunks_ * (number + 1) / count;
  }
  FARWARP_DEVICE std::int64_t operator()() { return next_ < end_ ? next_++ : chunks_; }

 private:
  std::int64_t chunks_, next_, end_;
};

// ---- words ----------------------------------------------------------------------------------------------------------
//
// A vector is eight neighbours of a row. Each of its words is its own flag, so there is no other flag and no fence. A vector has one
// reader, which adds it up and then clears it.

static_assert(sizeof(Vec16) == WordInbox::kVectorBytes);

/// [thread] Sends eight sums to vector `vector` of row `row` in `rank`'s inbox.
FARWARP_DEVICE void send_vector(const Call& call, const WordInbox& inbox, int rank, int row, int vector, Vec16 eight) {
  const std::int64_t place = inbox.place(call.epoch, call.view.rank, row, vector);
  store_words(peer_address<Vec16>(call.view, rank, place), sendable(eight));
}

/// Stores vector `vector` of row `row` of y.
struct IntoY {
  const Args& args;
  FARWARP_DEVICE void operator()(int row, int vector, Vec16 eight) const {
    store(Global<Vec16>(static_cast<Vec16*>(args.y)) + (std::int64_t{row} * args.word_inbox.vectors + vector), eight);
  }
};

/// [thread] Adds up vector `vector` of the owned row `row` over all sources, passes the sum to `put(row, vector, eight)`, and clears the
/// vectors for the next call but one. False: the call is over.
template <class T, Failure failure, class Put>
FARWARP_DEVICE bool reduce_vector(Call& call, const Args& args, int row, int vector, const Put& put) {
  const WordInbox& inbox = args.word_inbox;
  const int ranks = args.view.size;
  Global<const Vec16> from[kMaxRanks];
#pragma unroll
  for (int source = 0; source < kMaxRanks; ++source)
    from[source] =
        own_address<const Vec16>(args.view, inbox.place(call.epoch, source < ranks ? source : 0, row, vector));
  Vec16 parts[kMaxRanks] = {};
  const Wait wait{.site = kSitePartials, .peer = -1};
  if (!wait_words<1, failure>(call, from, (1u << ranks) - 1, parts, wait)) return false;
  put(row, vector, sum_in_order<T>(parts, ranks));
#pragma unroll
  for (int source = 0; source < kMaxRanks; ++source) {
    if (source < ranks) clear_words(Global<Vec16>(const_cast<Vec16*>(from[source].raw)));
  }
  return true;
}

/// Thread number `number` of `count` on this rank.
struct VectorShare {
  int number, count;
};

/// [thread] Calls `work(row, vector)` for its share of the vectors of the inbox's first `rows` rows, until the call is over. Neighbouring
/// threads take neighbouring vectors.
template <class Visit>
FARWARP_DEVICE void for_each_vector(const Call& call, const WordInbox& inbox, int rows, VectorShare share,
                                    const Visit& work) {
  const int vectors = rows * inbox.vectors;
  for (int i = share.number; i < vectors && call.live; i += share.count) work(i / inbox.vectors, i % inbox.vectors);
}

/// [warp] Calls `work(row, vector)` for the vectors of the chunks that `next()` names, one for each lane, within the inbox's first `rows`
/// rows. Ends when `next()` names a chunk past the last, or the call is over.
template <class Next, class Visit>
FARWARP_DEVICE void for_each_vector_of_chunks(const Call& call, const WordInbox& inbox, int rows, const Next& next,
                                              const Visit& work) {
  static_assert(kWordChunkRows * kWordChunkVectors <= Target::kWarpSize);
  const int chunks = chunks_of(inbox);
  for (std::int64_t chunk = next(); chunk < chunks; chunk = next()) {
    const auto [first_row, first_vector] = chunk_at(inbox, static_cast<int>(chunk));
    const int row = first_row + lane_index() / kWordChunkVectors,
              vector = first_vector + lane_index() % kWordChunkVectors;
    if (row < rows && vector < inbox.vectors) work(row, vector);
    if (ballot(!call.live) != 0) return;
  }
}

}  // namespace farwarp::FARWARP_TARGET::gemm_reduce
