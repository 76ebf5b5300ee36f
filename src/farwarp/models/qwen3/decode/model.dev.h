// Qwen3 as fleet's runtime sees it (fleet/run.dev.h): its tasks that multiply nothing, its epilogue, its pages, and its
// sequences.
#pragma once

#include "farwarp/fleet/run.dev.h"
#include "farwarp/models/qwen3/decode/attend.dev.h"
#include "farwarp/models/qwen3/decode/logits.dev.h"
#include "farwarp/models/qwen3/decode/merge.dev.h"
#include "farwarp/models/qwen3/decode/sampling.dev.h"

namespace farwarp::FARWARP_TARGET::qwen3 {

/// `samples`: sequences have temperatures; else the best token is chosen.
template <int columns, bool samples>
class Tasks {
 public:
  FARWARP_DEVICE Tasks(const Context<columns>& context, WeightReader<columns>& reader)
      : context_(context), reader_(reader) {}

  /// [the warps that compute] `launch_token`: the token's number in this launch.
  FARWARP_DEVICE void run(const Task& task, int launch_token) {
    if constexpr (samples) {
      const Sampler<columns> sampler(context_);
      switch (static_cast<Kind>(task.kind)) {
        case Kind::kSelect: sampler.select(task); return;
        case Kind::kChoose: sampler.choose(task); return;
        default: break;
      }
    }
    switch (static_cast<Kind>(task.kind)) {
      case Kind::kAttend: Attention<columns>(context_, reader_, task).run(); break;
      case Kind::kMerge: HeadMerge<columns>(context_).run(task); break;
      default: next_inputs(task, launch_token);
    }
  }

 private:
  FARWARP_DEVICE void next_inputs(const Task& task, int launch_token) const {
    if constexpr (samples) {
      take_chosen(task, launch_token);
    } else {
      choose_best(task, launch_token);
    }
  }
  /// Every worker finds the best token of all workers of all ranks, and knows the next input of each sequence.
  FARWARP_DEVICE void choose_best(const Task& task, int launch_token) const {
    const Launch& launch = context_.args.launch;
    // A thread waits for four candidates at once: of one rank, or one of each of four ranks, so that the ledger can
    // name the rank.
    constexpr int kAtOnce = 4;
    const bool several = launch.view.size > 1;
    const int of_rank = launch.workers * columns, pitch = several ? of_rank : kComputingThreads;
    const int step = several ? kComputingThreads : kAtOnce * kComputingThreads;
    Call call = several ? waiting_on_peers(context_.call) : context_.call;
    Candidate best;
#pragma unroll 1
    for (int rank = 0; rank < launch.view.size; rank += kAtOnce) {
#pragma unroll 1
      for (int begin = 0; begin < of_rank; begin += step) {
        const int first = begin + thread_index();
        Global<Packet> from[kAtOnce];
        std::uint64_t data[kAtOnce] = {};
        std::uint32_t wanted = 0;
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          from[i] = packets_at(launch.view, task.in) + (rank * of_rank + first + i * pitch);
          if (several ? first < of_rank && rank + i < launch.view.size : first + i * pitch < of_rank) wanted |= 1u << i;
        }
        wait_packets<1>(call, from, wanted, data,
                        Wait{.site = kSiteCandidate, .peer = several ? -1 - rank : launch.view.rank});
        warp_sync();  // lanes leave the wait one by one
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
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
    const int column = recomputed(thread_index());
    if (column < columns) advance(column, launch_token, best_of_warps(column).token);
    if (!context_.call.live) stop_launch<Layout<columns>>(context_.memory);
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
  FARWARP_DEVICE void take_chosen(const Task& task, int launch_token) const {
    std::int32_t token = Candidate::kNotANumber;
    const int column = recomputed(thread_index());
    if (column < columns && context_.sequence(column).alive != 0)
      token = Sampler<columns>(context_).wait_chosen(task, column);
    sync_warps();  // also because lanes leave the wait one by one; all warps have read the sequences
    if (column < columns) advance(column, launch_token, token);
    if (!context_.call.live) stop_launch<Layout<columns>>(context_.memory);
    sync_warps();
  }

  /// [thread] One column has got its next token.
  FARWARP_DEVICE void advance(int column, int launch_token, std::int32_t chosen) const {
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
      store(Global<std::int32_t>(args.sampled) + (column * args.sampled_pitch + launch_token), chosen);
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

  /// Of a warp's lanes that collect candidates: lane i has column i of them, or of the next so many columns on the next
  /// warp.
  static constexpr int kColumnsOfWarp = columns < Target::kWarpSize ? columns : Target::kWarpSize;

  const Context<columns>& context_;
  WeightReader<columns>& reader_;
};

template <int columns_, bool samples>
struct Model {
  static constexpr int columns = columns_;
  using Args = qwen3::Args;
  using Layout = qwen3::Layout<columns>;
  using Context = qwen3::Context<columns>;
  using Tasks = qwen3::Tasks<columns, samples>;
  using OwnEpilogue = LogitsEpilogue<columns, samples>;
  using Loader = PageLoader<columns>;

  /// The embedding of the column's token.
  static FARWARP_DEVICE std::uint64_t first_hidden(const Context& context, const Four& four) {
    const Args& args = context.args;
    const std::int64_t token = context.sequence(recomputed(four.column)).token;
    return load(Global<const std::uint64_t>(reinterpret_cast<const std::uint64_t*>(args.embedding)) +
                (token * args.hidden + four.row_of_matrix()) / 4);
  }
  static FARWARP_DEVICE std::uint32_t input_site(std::int32_t kind) {
    switch (static_cast<Kind>(kind)) {
      case Kind::kQkv: return kSiteQkv;
      case Kind::kOut: return kSiteOut;
      case Kind::kGateUp: return kSiteGateUp;
      case Kind::kDown: return kSiteDown;
      default: return kSiteHead;
    }
  }
  static FARWARP_DEVICE void begin(const Context& context) {
    for (int i = thread_index(); i < kQueryBytes / 8; i += num_threads())  // rows that are no query stay zeros
      store(word_at<std::uint64_t>(context.memory, Layout::kQueries) + i, 0u);
    if (thread_index() < columns)
      context.set_sequence(thread_index(), std::bit_cast<SequenceState>(load(sequences(context) + thread_index())));
  }
  static FARWARP_DEVICE bool ended(const Context& context) {
    for (int column = 0; column < columns; ++column) {
      if (context.sequence(column).alive != 0) return false;
    }
    return true;
  }
  static FARWARP_DEVICE void end(const Context& context) {
    const int column = recomputed(thread_index());  // the tokens' loops need all registers
    if (column < columns) store(sequences(context) + column, std::bit_cast<Vec16>(context.sequence(column)));
  }

 private:
  static FARWARP_DEVICE Global<Vec16> sequences(const Context& context) {
    return Global<Vec16>(reinterpret_cast<Vec16*>(context.args.state->sequences));
  }
};

}  // namespace farwarp::FARWARP_TARGET::qwen3
