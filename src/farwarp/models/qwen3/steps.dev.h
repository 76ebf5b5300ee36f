// The tasks of the warps that compute.
#pragma once

#include "farwarp/models/qwen3/attend.dev.h"
#include "farwarp/models/qwen3/finish.dev.h"
#include "farwarp/models/qwen3/merge.dev.h"
#include "farwarp/models/qwen3/sampling.dev.h"
#include "farwarp/models/qwen3/stream_finish.dev.h"

namespace farwarp::FARWARP_TARGET::qwen3 {

/// `samples`: sequences have temperatures; else the best token is chosen.
template <int columns, bool samples>
class Steps {
 public:
  FARWARP_DEVICE Steps(const Context<columns>& context, WeightReader<columns>& reader)
      : context_(context),
        reader_(reader),
        project_(context.memory + Layout<columns>::kProject, reader),
        finisher_(finisher_of(context)) {}

  /// [the warps that compute] `number`: of the token in this launch.
  FARWARP_DEVICE void run(const Task& task, int number) {
    if constexpr (samples) {
      const Sampler<columns> sampler(context_);
      switch (static_cast<Kind>(task.kind)) {
        case Kind::kSelect: sampler.select(task); return;
        case Kind::kChoose: sampler.choose(task); return;
        case Kind::kSample: take_chosen(task, number); return;
        default: break;
      }
    }
    switch (static_cast<Kind>(task.kind)) {
      case Kind::kEmbed:
        if (streams(columns) || may_finish()) finisher_.embed(task);
        break;
      case Kind::kAttend: Attention<columns>(context_, reader_, task).run(); break;
      case Kind::kMerge: HeadMerge<columns>(context_).run(task); break;
      case Kind::kSample: sample(number); break;
      default: project(task, number);
    }
  }

 private:
  /// All kinds that multiply by weights: in one place, so that the kernel has the product's code once.
  FARWARP_DEVICE void project(const Task& task, int number) {
    const std::uint32_t site = site_of(static_cast<Kind>(task.kind));
    if constexpr (streams(columns)) {
      if (task.count == 0) return;
      finisher_.begin_task(task);
      project_.run(context_.call, context_.worker, task, site, norm_of(context_, task),
                   [&](const Task& group, int unit) { finisher_.finish(group, number, unit); });
      finisher_.end_task(task);
    } else {
      const bool finishes = may_finish() && task.count > 0;
      if (finishes) finisher_.begin_task(task, number);
      project_.run(context_.call, context_.worker, task, site, [&](int pass, int tile, int buffer) {
        if (finishes) finisher_.finish(pass, tile, buffer);
      });
      if (finishes) finisher_.end_task();
    }
  }
  /// Whether the thread finishes packets' tiles, too.
  static FARWARP_DEVICE bool may_finish() {
    return !has_finisher(columns) && thread_index() < TileFinisher<columns>::kThreads;
  }

  static FARWARP_DEVICE std::uint32_t site_of(Kind kind) {
    return kind == Kind::kQkv      ? kSiteQkv
           : kind == Kind::kOut    ? kSiteOut
           : kind == Kind::kGateUp ? kSiteGateUp
           : kind == Kind::kDown   ? kSiteDown
                                   : kSiteHead;
  }

  /// Every worker finds the best token of all workers of all ranks, and knows the next input of each sequence.
  FARWARP_DEVICE void sample(int number) const {
    const Args& args = context_.args;
    // A thread waits for four candidates at once: of one rank, or one of each of four ranks, so that the ledger can name the rank.
    constexpr int kMost = 4;
    const bool several = args.view.size > 1;
    const int of_rank = args.workers * columns, pitch = several ? of_rank : kWorkerThreads;
    const int step = several ? kWorkerThreads : kMost * kWorkerThreads;
    Call call = context_.call;
    if (several) call.deadline_ns -= call.grace_ns;  // as in Finisher::add_ranks()
    Candidate best;
#pragma unroll 1
    for (int rank = 0; rank < args.view.size; rank += kMost) {
#pragma unroll 1
      for (int begin = 0; begin < of_rank; begin += step) {
        const int first = begin + thread_index();
        Global<Packet> from[kMost];
        std::uint64_t data[kMost] = {};
        std::uint32_t wanted = 0;
#pragma unroll
        for (int i = 0; i < kMost; ++i) {
          from[i] = vector_at(args.view, args.candidates) + (rank * of_rank + first + i * pitch);
          if (several ? first < of_rank && rank + i < args.view.size : first + i * pitch < of_rank) wanted |= 1u << i;
        }
        wait_packets<1>(call, from, wanted, data,
                        Wait{.site = kSiteCandidate, .peer = several ? -1 - rank : args.view.rank});
        warp_sync();  // lanes leave the wait one by one
#pragma unroll
        for (int i = 0; i < kMost; ++i) {
          if (wanted >> i & 1) best.take(Candidate::unpack(data[i]));
        }
      }
    }
    context_.call.live = call.live;
#pragma unroll
    for (int lanes = kColumnsOfWarp; lanes < Target::kWarpSize; lanes *= 2)
      best.take(Candidate::unpack(shuffle_xor(best.packed(), lanes)));
    const auto bests = word_at<std::uint64_t>(context_.memory, Layout<columns>::kBest);
    if (lane_index() < kColumnsOfWarp) store(bests + (warp_index() * kColumnsOfWarp + lane_index()), best.packed());
    sync_warps();
    if (thread_index() < columns) advance(thread_index(), number, best_of_warps(thread_index()).token);
    if (!context_.call.live) fetch_add(word_at<std::uint32_t>(context_.memory, Layout<columns>::kStop), 1u);
    sync_warps();
  }

  /// [thread] Of one column.
  FARWARP_DEVICE Candidate best_of_warps(int column) const {
    Candidate best;
    for (int warp = column / kColumnsOfWarp; warp < kWarps; warp += columns / kColumnsOfWarp)
      best.take(Candidate::unpack(load(word_at<const std::uint64_t>(context_.memory, Layout<columns>::kBest) +
                                       (warp * kColumnsOfWarp + column % kColumnsOfWarp))));
    return best;
  }

  /// Every worker waits for the tokens that have been drawn on its rank.
  FARWARP_DEVICE void take_chosen(const Task& task, int number) const {
    std::int32_t token = Candidate::kNotANumber;
    const int column = recomputed(thread_index());
    if (column < columns && context_.sequence(column).alive != 0)
      token = Sampler<columns>(context_).wait_chosen(task, column);
    sync_warps();  // also because lanes leave the wait one by one; all warps have read the sequences
    if (column < columns) advance(column, number, token);
    if (!context_.call.live) fetch_add(word_at<std::uint32_t>(context_.memory, Layout<columns>::kStop), 1u);
    sync_warps();
  }

  /// [thread] One column has got its next token.
  FARWARP_DEVICE void advance(int column, int number, std::int32_t chosen) const {
    const Args& args = context_.args;
    SequenceState sequence = context_.sequence(column);
    if (sequence.alive == 0 || !context_.call.live) return;
    if (chosen < 0 || chosen >= args.vocabulary) {
      const std::uint32_t raised_by = load<Order::relaxed>(abort_cell(context_.call));
      if (raised_by != 0) {  // numbers are wrong because waits have ended
        record_abort(context_.call, raised_by);
      } else if (context_.worker.number() == 0)
        give_up(context_.call, StatusCode::kBadInput, kSiteLogits, -1, kNothingSeen,
                static_cast<std::uint64_t>(column) << 32 | static_cast<std::uint32_t>(sequence.position));
      context_.call.live = false;
      return;
    }
    if (context_.worker.number() == 0)
      store(Global<std::int32_t>(args.sampled) + (column * args.sampled_pitch + number), chosen);
    ++sequence.position;
    const bool in_prompt = sequence.position < sequence.prompt;
    sequence.token =
        in_prompt ? load(Global<const std::int32_t>(args.prompts) + (column * args.max_prompt + sequence.position))
                  : chosen;
    for (const std::int32_t end : args.end_tokens) {
      if (!in_prompt && chosen == end) sequence.alive = 0;
    }
    context_.set_sequence(column, sequence);
  }

  using TileFinishing =
      std::conditional_t<streams(columns), StreamFinisher<columns, samples>, Finisher<columns, samples>>;
  static FARWARP_DEVICE TileFinishing finisher_of(const Context<columns>& context) {
    if constexpr (streams(columns)) {
      return TileFinishing(context);
    } else {
      return TileFinishing(context, thread_index());
    }
  }

  /// Of a warp's lanes that collect candidates: lane i has column i of them, or of the next so many columns on the next warp.
  static constexpr int kColumnsOfWarp = columns < Target::kWarpSize ? columns : Target::kWarpSize;

  const Context<columns>& context_;
  WeightReader<columns>& reader_;
  std::conditional_t<streams(columns), StreamedProjection<columns>, Projection<columns>> project_;
  TileFinishing finisher_;  ///< where no warp of its own finishes tiles
};

}  // namespace farwarp::FARWARP_TARGET::qwen3
