// The kernel: a worker's list of tasks, token by token.
#pragma once

#include "farwarp/fleet/phases.dev.h"
#include "farwarp/models/qwen3/steps.dev.h"

namespace farwarp::FARWARP_TARGET::qwen3 {

/// Whether all sequences have ended, or the call has been given up.
template <int columns>
FARWARP_DEVICE bool stops(const Context<columns>& context) {
  if (load(word_at<const std::uint32_t>(context.memory, Layout<columns>::kStop)) != 0) return true;
  for (int column = 0; column < columns; ++column) {
    if (context.sequence(column).alive != 0) return false;
  }
  return true;
}

/// The tag of a token and layer: the launch's first tag + its number among all tokens' layers.
FARWARP_DEVICE std::uint32_t tag_of(const Args& args, std::uint32_t first_tag, int token, int layer) {
  return first_tag + static_cast<std::uint32_t>(token * (args.layers + 1) + layer);
}

template <int columns>
FARWARP_DEVICE SharedTasks shared_tasks(const Context<columns>& context) {
  return {context.memory + Layout<columns>::kTasks};
}

/// A warp's way through the tasks.
template <int columns>
class NextTasks {
 public:
  FARWARP_DEVICE NextTasks(const Context<columns>& context, const TaskList& list) : context_(context), list_(list) {}

  FARWARP_DEVICE void begin_token() { waits_.until = 0; }  // the deadline is of a token, not of the launch
  /// [warp] Task `number`, which comes after the last one that the warp has got. False if the wait has expired: all warps of the block must then end.
  FARWARP_DEVICE bool get(int number, Task& task) {
    if constexpr (Target::kHasBulkCopy) return shared_tasks(context_).get(waits_, context_.args.view, position_, task);
    task = uniform_task(list_.load_at(number));
    return true;
  }
  FARWARP_DEVICE const BlockWaits& waits() const { return waits_; }

 private:
  const Context<columns>& context_;
  const TaskList& list_;
  SharedTasks::Position position_;
  BlockWaits waits_;
};

/// Each worker does its list of tasks at its own pace: vectors are packets.
struct StaticDispatcher {
  FARWARP_DEVICE bool join(Call&, Shared<std::byte>) { return true; }
  FARWARP_DEVICE auto worker() const { return Worker<1>::of_block(); }
  FARWARP_DEVICE void begin_step(Call&) {}
  FARWARP_DEVICE void end_step(const Call&) {}
  FARWARP_DEVICE void end_launch() const {}
};

/// [the warps that compute] The number of tokens that have been decoded.
template <int columns, bool samples, class Dispatcher>
FARWARP_DEVICE int decode_tokens(const Context<columns>& context, WeightReader<columns>& weights, const TaskList& tasks,
                                 Dispatcher& dispatcher) {
  const Args& args = context.args;
  Call& call = context.call;
  Steps<columns, samples> steps(context, weights);
  const std::uint64_t budget = call.deadline_ns - call.started_ns;
  const std::uint32_t first_tag = call.epoch;
  NextTasks<columns> next(context, tasks);
  for (int token = 0; token < args.tokens; ++token) {
    call.deadline_ns = nanoseconds() + budget;
    weights.waits().until = 0;
    next.begin_token();
    for (int number = tasks.first; number < tasks.end; ++number) {
      Task task;
      if (!next.get(number, task)) {
        weights.waits() = next.waits();
        call.live = false;
        return token + 1;
      }
      call.epoch = tag_of(args, first_tag, token, task.layer);
      dispatcher.begin_step(call);
      steps.run(task, token);
      dispatcher.end_step(call);
      if (weights.waits().expired) call.live = false;
    }
    const bool stop = stops(context);
    if constexpr (Target::kHasBulkCopy) {
      sync_warps();
      if (thread_index() == 0) mbarrier_arrive(word_at<Mbarrier>(context.memory, Layout<columns>::kDecided));
    }
    if (stop) return token + 1;
  }
  return args.tokens;
}

/// Waits until the token is decided. False if it was the last one.
template <int columns>
FARWARP_DEVICE bool goes_on(const Context<columns>& context, BlockWaits& waits, int token) {
  return wait_mbarrier(waits, context.args.view, word_at<Mbarrier>(context.memory, Layout<columns>::kDecided),
                       token & 1) &&
         !stops(context);
}

/// [the warps that finish] Finishes the tiles of all tasks.
template <int columns, bool samples>
FARWARP_DEVICE void finish_tiles(const Context<columns>& context, const TaskList& tasks, BlockWaits& waits) {
  const Args& args = context.args;
  Call& call = context.call;
  Finisher<columns, samples> finisher(context, thread_index() - kWorkerThreads);
  const std::uint64_t budget = call.deadline_ns - call.started_ns;
  const std::uint32_t first_tag = call.epoch;
  NextTasks<columns> next(context, tasks);
  for (int token = 0; token < args.tokens; ++token) {
    call.deadline_ns = nanoseconds() + budget;
    waits.until = 0;
    next.begin_token();
    for (int number = tasks.first; number < tasks.end; ++number) {
      Task task;
      if (!next.get(number, task)) {
        waits = next.waits();
        return;
      }
      call.epoch = tag_of(args, first_tag, token, task.layer);
      if (static_cast<Kind>(task.kind) == Kind::kEmbed) {
        finisher.embed(task);
      } else if (task.matrix.stages > 0) {
        finisher.run(waits, task, token);
      }
    }
    if (!goes_on(context, waits, token)) break;
  }
}

/// [thread] Hands over all tasks, and loads their weights, keys and values.
template <int columns>
FARWARP_DEVICE void load_weights(const Context<columns>& context, const TaskList& tasks, BlockWaits& reported) {
  const Args& args = context.args;
  WeightLoader<columns> loader(args.view, context.memory, Global<const std::byte>(args.weights));
  PageLoader<columns> pages(context);
  SharedTasks::Position position;
  TaskWords next = tasks.load_at(tasks.first);
  for (int token = 0; token < args.tokens; ++token) {
    bool ok = true;
    loader.waits().until = 0;
    for (int number = tasks.first; number < tasks.end && ok; ++number) {
      ok = shared_tasks(context).put(loader.waits(), args.view, position, next);
      const Task task = std::bit_cast<Task>(next);
      next = tasks.load_at(tasks.after(number));  // while this task is loaded
      if (!ok) break;
      if (static_cast<Kind>(task.kind) == Kind::kAttend) ok = pages.load(loader, task.layer);
      if (task.matrix.stages == 0) continue;
      if constexpr (streams(columns)) {
        ok = loader.load_pairs(task);
      } else {
        ok = loader.load(task);
      }
    }
    if (!ok || !goes_on(context, loader.waits(), token)) break;
  }
  loader.drain();
  reported = loader.waits();
}

/// [thread] Loads the vectors of all tasks, of more than eight columns.
template <int columns>
FARWARP_DEVICE void load_vectors(const Context<columns>& context, const TaskList& tasks, Phases phases,
                                 BlockWaits& reported) {
  const Args& args = context.args;
  VectorLoader<columns> loader(args.view, context.memory + Layout<columns>::kProject, context.worker);
  Call call = context.call;
  const std::uint64_t budget = call.deadline_ns - call.started_ns;
  SharedTasks::Position position;
  for (int token = 0; token < args.tokens; ++token) {
    call.deadline_ns = nanoseconds() + budget;
    loader.waits().until = 0;
    bool ok = true;
    for (int number = tasks.first; number < tasks.end && ok; ++number) {
      Task task;
      ok = shared_tasks(context).get_alone(loader.waits(), args.view, position, task);
      if (ok && task.matrix.stages > 0 && task.count > 0) {
        phases.wait_step(call);
        ok = call.live && loader.load(task, norm_of(context, task).exists);
      }
      phases.advance();
    }
    if (!ok || !goes_on(context, loader.waits(), token)) break;
  }
  loader.drain();
  reported = loader.waits();
}

/// `dispatcher`: how the workers' steps follow each other.
template <int columns, bool samples, class Dispatcher>
FARWARP_DEVICE void decode(const Args& args, Dispatcher dispatcher) {
  const Shared<std::byte> memory = block_shared();
  if constexpr (Target::kHasBulkCopy) {
    if (thread_index() == 0) {
      mbarrier_init(word_at<Mbarrier>(memory, Layout<columns>::kDecided), 1);
      weight_ring<columns>(memory).initialise(kWarps);
      if constexpr (streams(columns)) {
        vector_ring<columns>(memory + Layout<columns>::kProject).initialise(kWarps);
      } else {
        SharedSums<columns>{memory + Layout<columns>::kProject}.initialise();
      }
      SharedTasks{memory + Layout<columns>::kTasks}.ring().initialise(block_threads(columns) / Target::kWarpSize - 1);
    }
  }
  Call call = begin_call(args.view, args.slot, 0);
  if (!call.live) return;
  if (!dispatcher.join(call, memory + Layout<columns>::kTasks)) {
    end_call(call, 0);
    return;
  }
  Call tagged = call;
  const Context<columns> context{args, tagged, memory, dispatcher.worker()};
  const auto zero = [&](int offset, int bytes) {
    for (int i = thread_index() * 8; i < bytes; i += num_threads() * 8)
      store(word_at<std::uint64_t>(memory, offset + i), 0u);
  };
  zero(Layout<columns>::kQueries, kMostGroup * kMostHeadDim * 2);  // rows that are no query stay zeros
  if (thread_index() == 0) store(word_at<std::uint32_t>(memory, Layout<columns>::kStop), 0u);
  const Global<const Vec16> state(reinterpret_cast<const Vec16*>(args.state));
  if (thread_index() < columns)
    store(word_at<Vec16>(memory, Layout<columns>::kSequences) + thread_index(), load(state + 1 + thread_index()));
  tagged.epoch = static_cast<std::uint32_t>(load(state).lo);
  const std::uint32_t first_tag = tagged.epoch;
  const Global<const std::int32_t> lists(args.lists);
  const int begin = uniform(load(lists + context.worker.number()));
  const TaskList tasks{Global<const Vec16>(reinterpret_cast<const Vec16*>(args.tasks)), begin + args.first_task,
                       begin + args.end_task};
  block_sync();
  BlockWaits waits;
  if (thread_index() < kWorkerThreads) {
    WeightReader<columns> weights(args.view, memory, Global<const std::byte>(args.weights), context.worker);
    const int decoded = decode_tokens<columns, samples>(context, weights, tasks, dispatcher);
    waits = weights.waits();
    const bool whole = static_cast<Kind>(std::bit_cast<Task>(tasks.load_at(tasks.end - 1)).kind) == Kind::kSample;
    if (context.worker.number() == 0 && whole) {
      const Global<Vec16> to(reinterpret_cast<Vec16*>(args.state));
      if (thread_index() < columns && tagged.live)
        store(to + 1 + thread_index(),
              load(word_at<const Vec16>(memory, Layout<columns>::kSequences) + thread_index()));
      if (thread_index() == 0) {
        store(Global<std::uint32_t>(&args.state->tag),
              first_tag + static_cast<std::uint32_t>((tagged.live ? decoded : args.tokens) * (args.layers + 1)));
        dispatcher.end_launch();
      }
    }
  } else if constexpr (Target::kHasBulkCopy && streams(columns)) {
    if (thread_index() == kWorkerThreads) load_weights(context, tasks, waits);
    if (thread_index() == kWorkerThreads + Target::kWarpSize) load_vectors(context, tasks, dispatcher, waits);
  } else if constexpr (Target::kHasBulkCopy) {
    constexpr int kLoader = kWorkerThreads + TileFinisher<columns>::kThreads;
    if (thread_index() < kLoader) {
      finish_tiles<columns, samples>(context, tasks, waits);
    } else if (thread_index() == kLoader) {
      load_weights(context, tasks, waits);
    }
  }
  report_expired(waits, args.view, args.slot, kSiteWeights);
  end_call(call, 0);
}

}  // namespace farwarp::FARWARP_TARGET::qwen3
