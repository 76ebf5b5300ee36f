// The tasks that multiply by weights, the embedding, and the choice of the next token.
#pragma once

#include "farwarp/models/qwen3/attend.dev.h"
#include "farwarp/models/qwen3/merge.dev.h"

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

template <int columns>
class Steps {
 public:
  FARWARP_DEVICE Steps(const Context<columns>& context, WeightReader& reader)
      : context_(context), reader_(reader), project_(context.memory + Layout<columns>::kProject, reader) {}

  /// [the warps that compute] `number`: of the token in this launch.
  FARWARP_DEVICE void run(const Task& task, int number) {
    switch (static_cast<Kind>(task.kind)) {
      case Kind::kEmbed: embed(task); break;
      case Kind::kAttend: Attention<columns>(context_, reader_, task).run(); break;
      case Kind::kMerge: HeadMerge<columns>(context_).run(task); break;
      case Kind::kSample: sample(number); break;
      default: project(task, number);
    }
  }

 private:
  /// The worker's rows of the tokens' embeddings.
  FARWARP_DEVICE void embed(const Task& task) const {
    const Args& args = context_.args;
    const int fours = task.count * kTileRows / 4;
    for (int i = thread_index(); i < fours * columns; i += kWorkerThreads) {
      const int column = i % columns, row = task.first * kTileRows + i / columns * 4;
      const std::int64_t token = context_.sequence(column).token;
      const auto four = load(Global<const std::uint64_t>(reinterpret_cast<const std::uint64_t*>(args.embedding)) +
                             (token * args.hidden + row) / 4);
      store_four<columns>(context_.call, task.out, row, column, four);
      if (has_residual(task, row / kTileRows)) store(residual(task, row / kTileRows, row % kTileRows, column), four);
    }
  }

  /// All kinds that multiply by weights: in one place, so that the kernel has the product's code once.
  FARWARP_DEVICE void project(const Task& task, int number) {
    const Args& args = context_.args;
    const auto kind = static_cast<Kind>(task.kind);
    const bool normalised = kind != Kind::kOut && kind != Kind::kDown;
    Candidate best;
    project_.run(context_.call, task, normalised ? context_.parameter(task.norm) : Global<const std::uint64_t>(),
                 args.hidden, args.epsilon, site_of(kind), [&](const FourSums& four) {
                   switch (kind) {
                     case Kind::kGateUp: store_activated(task, four); break;
                     case Kind::kHead: take_logits(four, number, best); break;
                     case Kind::kQkv: store_rows(context_.call, task, four, {}); break;
                     default: add_old(task, kind, four);
                   }
                 });
    if (kind == Kind::kHead) store_candidates(best);
  }

  static FARWARP_DEVICE std::uint32_t site_of(Kind kind) {
    return kind == Kind::kQkv ? kSiteQkv
           : kind == Kind::kOut ? kSiteOut
           : kind == Kind::kGateUp ? kSiteGateUp
           : kind == Kind::kDown ? kSiteDown
                                 : kSiteHead;
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
    const std::uint64_t old = has_residual(task, four.tile)
                                  ? load(residual(task, four.tile, four.row, four.column))
                                  : wait_four<columns>(context_.call, task.old, four.tile * kTileRows + four.row,
                                                       four.column, kSiteOld);
    Call later = context_.call;
    if (kind == Kind::kDown) ++later.epoch;  // it is the next layer's input
    const std::uint64_t sums = store_rows(later, task, four, old);
    if (has_residual(task, four.tile)) store(residual(task, four.tile, four.row, four.column), sums);
  }

  /// A worker's tiles of x and of middle are the same. It needs each as the residual of the next, so it keeps the latter of both: the packets of its
  /// own tiles would take a flight to arrive. A kernel that has only one step keeps nothing.
  FARWARP_DEVICE bool has_residual(const Task& task, int tile) const {
    return context_.args.first_task == 0 && tile - task.first < kKeptTiles;
  }
  FARWARP_DEVICE Shared<std::uint64_t> residual(const Task& task, int tile, int row, int column) const {
    return word_at<std::uint64_t>(context_.memory, Layout<columns>::kResidual) +
           (((tile - task.first) * columns + column) * kTileRows + row) / 4;
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
        store(Global<float>(args.logits) +
                  ((std::int64_t{number} * columns + four.column) * args.vocabulary + token),
              four.sums[i]);
    }
  }

  /// The best token of each column among the worker's, for all workers.
  FARWARP_DEVICE void store_candidates(Candidate best) const {
    const Args& args = context_.args;
    // A column's candidates are on 16 lanes of each half of the warps.
#pragma unroll
    for (int lanes = 1; lanes < kTileRows; lanes *= 2) best.take(Candidate::unpack(shuffle_xor(best.packed(), lanes)));
    const int half = thread_index() / (kWorkerThreads / 2), column = thread_index() % (kWorkerThreads / 2) / kTileRows;
    const auto bests = word_at<std::uint64_t>(context_.memory, Layout<columns>::kHeadBest);
    if (lane_index() % kTileRows == 0 && column < columns) store(bests + (half * columns + column), best.packed());
    sync_warps();
    if (thread_index() >= columns) return;
    best = Candidate::unpack(load(bests + thread_index()));
    best.take(Candidate::unpack(load(bests + (columns + thread_index()))));
    store_packet(
        peer_address<Packet>(args.view, args.view.rank, args.candidates) + (block_index() * columns + thread_index()),
        best.packed(), context_.call.epoch);
  }

  /// Every worker finds the best token of all workers, and knows the next input of each sequence.
  FARWARP_DEVICE void sample(int number) const {
    const Args& args = context_.args;
    constexpr int kMost = 8;  // candidates of a thread
    Global<Packet> from[kMost];
    std::uint64_t data[kMost] = {};
    std::uint32_t wanted = 0;
#pragma unroll
    for (int i = 0; i < kMost; ++i) {
      const int candidate = thread_index() + i * kWorkerThreads;
      from[i] = vector_at(args.view, args.candidates) + candidate;
      if (candidate < args.workers * columns) wanted |= 1u << i;
    }
    wait_packets<1>(context_.call, from, wanted, data, Wait{.site = kSiteCandidate, .peer = args.view.rank});
    Candidate best;
#pragma unroll
    for (int i = 0; i < kMost; ++i) {
      if (wanted >> i & 1) best.take(Candidate::unpack(data[i]));
    }
    warp_sync();
#pragma unroll
    for (int lanes = columns; lanes < Target::kWarpSize; lanes *= 2)
      best.take(Candidate::unpack(shuffle_xor(best.packed(), lanes)));
    const auto bests = word_at<std::uint64_t>(context_.memory, Layout<columns>::kBest);
    if (lane_index() < columns) store(bests + (warp_index() * columns + lane_index()), best.packed());
    sync_warps();
    if (thread_index() < columns) advance(thread_index(), number);
    if (!context_.call.live) fetch_add(word_at<std::uint32_t>(context_.memory, Layout<columns>::kStop), 1u);
    sync_warps();
  }

  /// [thread] Of one column.
  FARWARP_DEVICE void advance(int column, int number) const {
    const Args& args = context_.args;
    Candidate best;
    for (int warp = 0; warp < kWarps; ++warp)
      best.take(Candidate::unpack(
          load(word_at<const std::uint64_t>(context_.memory, Layout<columns>::kBest) + (warp * columns + column))));
    SequenceState sequence = context_.sequence(column);
    if (sequence.alive == 0 || !context_.call.live) return;
    if (best.token < 0 || best.token >= args.vocabulary) {
      const std::uint32_t raised_by = load<Order::relaxed>(abort_cell(context_.call));
      if (raised_by != 0) {  // numbers are wrong because waits have ended
        record_abort(context_.call, raised_by);
      } else if (block_index() == 0)
        give_up(context_.call, StatusCode::kBadInput, kSiteLogits, -1, static_cast<std::uint64_t>(column),
                static_cast<std::uint64_t>(sequence.position));
      context_.call.live = false;
      return;
    }
    if (block_index() == 0)
      store(Global<std::int32_t>(args.sampled) + (column * args.sampled_pitch + number), best.token);
    ++sequence.position;
    const bool in_prompt = sequence.position < sequence.prompt;
    sequence.token =
        in_prompt ? load(Global<const std::int32_t>(args.prompts) + (column * args.max_prompt + sequence.position))
                  : best.token;
    if (!in_prompt && best.token == args.end_token) sequence.alive = 0;
    context_.set_sequence(column, sequence);
  }

  const Context<columns>& context_;
  WeightReader& reader_;
  Projection<columns> project_;
};

}  // namespace farwarp::FARWARP_TARGET::qwen3
