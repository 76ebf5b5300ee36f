// The runtime: a launch of a model's graph, from a worker's list of tasks to the end of the last token.
//
// A model is a class with
//   columns                     sequences that the kernel decodes
//   Args                        the kernel's arguments, with a Launch as `launch`
//   Layout                      WorkerShared of these columns and the model's own memory
//   Context                     derived from WorkerContext<Args, columns>
//   Tasks(context, reader)      run(task, token): [the warps that compute] a task that multiplies nothing
//   OwnEpilogue(context)        sums of Epilogue::kModel. begin_task(): streamed vectors only; take(task, token, four,
//                               sums): [thread], of packets the first of four threads that have the same; of streamed
//                               vectors `task` has the tiles of a group only. end_task(task, exists, column): [warp];
//                               of streamed vectors [the warps that compute], together. Not on a worker without tiles
//   Loader(context)             load(weight loader, task): [thread] of a task without weights: what it reads through
//                               their ring, if anything; false if a wait has expired. It runs ahead of the tasks: it
//                               reads only what was written before this token began
//   first_hidden(context, four) [thread] what the hidden vector begins with. It is not told the token's number in the
//                               launch: the call's epoch is the token's tag
//   input_site(kind)            the wait site of the input of a task that multiplies packets
//   begin(context)              [block] before the first token: the model's shared memory
//   ended(context)              [thread] after a token: whether no sequence needs another one. All warps ask, loaders
//                               too, and must get the same answer, from shared memory
//   end(context)                [the warps that compute, first worker] after the last token: the model's state for
//                               the next launch
// and its tasks call stop_launch() if the call has been given up. The plan must give each worker a task in each layer.
// The last step has no weights, and the first worker's share of it must do: the graph dispatcher launches only that.
// A dispatcher has join(), worker(), begin_step(), end_step() and end_launch(), as PacketDispatcher; the vector loader
// has a copy of StreamDispatcher, and counts steps by itself. fleet's tests have the smallest model
// (toy_model_test.dev.h); HACKING.md says how to add one.
#pragma once

#include "farwarp/fleet/packet_finisher.dev.h"
#include "farwarp/fleet/stream_dispatcher.dev.h"
#include "farwarp/fleet/stream_project.dev.h"

namespace farwarp::FARWARP_TARGET::fleet {

/// [thread] No token follows this one. A barrier of the warps that compute must follow.
template <class Layout>
FARWARP_DEVICE void stop_launch(Shared<std::byte> memory) {
  fetch_add(word_at<std::uint32_t>(memory, Layout::kStop), 1u);
}
/// Whether the launch ends with this token.
template <class Model>
FARWARP_DEVICE bool stops(const typename Model::Context& context) {
  return load(word_at<const std::uint32_t>(context.memory, Model::Layout::kStop)) != 0 || Model::ended(context);
}

/// The tag of a token and layer: the launch's first tag + its number among all tokens' layers.
FARWARP_DEVICE std::uint32_t tag_of(const Launch& launch, std::uint32_t first_tag, int token, int layer) {
  return first_tag + static_cast<std::uint32_t>(token * launch.tags_of_token + layer);
}

/// [thread] The end of work on task `index`, in a trace.
FARWARP_DEVICE void trace_task(TraceStart start, const Launch& launch, TraceWork work, int index) {
  if constexpr (kTraced)
    trace_end(start, {.where = static_cast<std::uint64_t>(index % launch.steps),
                      .slot = static_cast<std::uint8_t>(launch.slot),
                      .work = work});
}

template <class Model>
FARWARP_DEVICE SharedTasks shared_tasks(const typename Model::Context& context) {
  return {context.memory + Model::Layout::kTasks};
}

/// A warp's way through the tasks.
template <class Model>
class NextTasks {
 public:
  FARWARP_DEVICE NextTasks(const typename Model::Context& context, const TaskList& list)
      : context_(context), list_(list) {}

  FARWARP_DEVICE void begin_token() { waits_.until = 0; }  // the deadline is of a token, not of the launch
  /// [warp] Task `index` of the list, which comes after the last one that the warp has got. False if the wait has
  /// expired: all warps of the block must then end.
  FARWARP_DEVICE bool get(int index, Task& task) {
    if constexpr (Target::kHasBulkCopy)
      return shared_tasks<Model>(context_).get(waits_, context_.args.launch.view, position_, task);
    task = uniform_task(list_.load_at(index));
    return true;
  }
  FARWARP_DEVICE const BlockWaits& waits() const { return waits_; }

 private:
  const typename Model::Context& context_;
  const TaskList& list_;
  SharedTasks::Position position_;
  BlockWaits waits_;
};

/// Each worker does its list of tasks at its own pace: vectors are packets.
struct PacketDispatcher {
  FARWARP_DEVICE bool join(Call&, Shared<std::byte>) { return true; }
  template <int columns>
  FARWARP_DEVICE Worker<columns> worker() const {
    return {block_index(), {}};
  }
  FARWARP_DEVICE void begin_step(Call&) {}
  FARWARP_DEVICE void end_step(const Call&) {}
  FARWARP_DEVICE void end_launch() const {}
};

/// The tasks of the warps that compute.
template <class Model>
class Computing {
  static constexpr int columns = Model::columns;
  static constexpr bool kStreams = streams(columns);

 public:
  FARWARP_DEVICE Computing(const typename Model::Context& context, WeightReader<columns>& reader)
      : context_(context),
        reader_(reader),
        project_(context.memory + Model::Layout::kProject, reader),
        finisher_(finisher_of(context)) {}

  /// [the warps that compute]
  FARWARP_DEVICE void run(const Task& task, int token) {
    if (task.matrix.slices > 0) {
      project(task, token);
    } else if (task.epilogue == Epilogue::kHidden) {
      if (kStreams || may_finish()) finisher_.begin_hidden(task);
    } else {
      typename Model::Tasks(context_, reader_).run(task, token);
    }
  }

 private:
  /// All kinds that multiply by weights: in one place, so that the kernel has the product's code once.
  FARWARP_DEVICE void project(const Task& task, int token) {
    const std::uint32_t site = Model::input_site(task.kind);
    if constexpr (kStreams) {
      if (task.count == 0) return;
      finisher_.begin_task(task);
      project_.run(context_.call, context_.worker, task, site, norm_of(context_.args.launch, task),
                   [&](const Task& group, int portion) { finisher_.finish(group, token, portion); });
      finisher_.end_task(task);
    } else {
      const bool finishes = may_finish() && task.count > 0;
      if (finishes) finisher_.begin_task(task, token);
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

  using Finisher = std::conditional_t<kStreams, StreamFinisher<Model>, PacketFinisher<Model>>;
  static FARWARP_DEVICE Finisher finisher_of(const typename Model::Context& context) {
    if constexpr (kStreams) {
      return Finisher(context);
    } else {
      return Finisher(context, thread_index());
    }
  }

  const typename Model::Context& context_;
  WeightReader<columns>& reader_;
  std::conditional_t<kStreams, StreamedProjection<columns>, Projection<columns>> project_;
  Finisher finisher_;  ///< where no warps of their own finish tiles
};

/// [the warps that compute] The number of tokens that have been decoded.
template <class Model, class Dispatcher>
FARWARP_DEVICE int compute_tokens(const typename Model::Context& context, WeightReader<Model::columns>& weights,
                                  const TaskList& tasks, Dispatcher& dispatcher) {
  const Launch& launch = context.args.launch;
  Call& call = context.call;
  Computing<Model> computing(context, weights);
  const std::uint64_t budget = call.deadline_ns - call.started_ns;
  const std::uint32_t first_tag = call.epoch;
  NextTasks<Model> next(context, tasks);
  for (int token = 0; token < launch.tokens; ++token) {
    call.deadline_ns = nanoseconds() + budget;
    weights.waits().until = 0;
    next.begin_token();
    for (int index = tasks.first; index < tasks.end; ++index) {
      Task task;
      if (!next.get(index, task)) {
        weights.waits() = next.waits();
        call.live = false;
        return token + 1;
      }
      call.epoch = tag_of(launch, first_tag, token, task.layer);
      const TraceStart start = trace_start();
      dispatcher.begin_step(call);
      computing.run(task, token);
      dispatcher.end_step(call);
      if (kTraced && lane_index() == 0) trace_task(start, launch, TraceWork::kTask, index);
      if (weights.waits().expired) call.live = false;
    }
    const bool stop = stops<Model>(context);
    if constexpr (Target::kHasBulkCopy) {
      sync_warps();
      if (thread_index() == 0) mbarrier_arrive(word_at<Mbarrier>(context.memory, Model::Layout::kDecided));
    }
    if (stop) return token + 1;
  }
  return launch.tokens;
}

/// Waits until the token is decided. False if it was the last one.
template <class Model>
FARWARP_DEVICE bool goes_on(const typename Model::Context& context, BlockWaits& waits, int token) {
  return wait_mbarrier(waits, context.args.launch.view, word_at<Mbarrier>(context.memory, Model::Layout::kDecided),
                       token & 1) &&
         !stops<Model>(context);
}

/// [the warps that finish] Finishes the tiles of all tasks.
template <class Model>
FARWARP_DEVICE void finish_tiles(const typename Model::Context& context, const TaskList& tasks, BlockWaits& waits) {
  const Launch& launch = context.args.launch;
  Call& call = context.call;
  PacketFinisher<Model> finisher(context, thread_index() - kComputingThreads);
  const std::uint64_t budget = call.deadline_ns - call.started_ns;
  const std::uint32_t first_tag = call.epoch;
  NextTasks<Model> next(context, tasks);
  for (int token = 0; token < launch.tokens; ++token) {
    call.deadline_ns = nanoseconds() + budget;
    waits.until = 0;
    next.begin_token();
    for (int index = tasks.first; index < tasks.end; ++index) {
      Task task;
      if (!next.get(index, task)) {
        waits = next.waits();
        return;
      }
      call.epoch = tag_of(launch, first_tag, token, task.layer);
      const TraceStart start = trace_start();
      if (task.matrix.slices > 0) {
        finisher.run(waits, task, token);
        if (kTraced && lane_index() == 0) trace_task(start, launch, TraceWork::kStore, index);
      } else if (task.epilogue == Epilogue::kHidden) {
        finisher.begin_hidden(task);
      }
    }
    if (!goes_on<Model>(context, waits, token)) break;
  }
}

/// [thread] Hands over all tasks, and loads their weights, or what the model loads for a task without any.
template <class Model>
FARWARP_DEVICE void load_weights(const typename Model::Context& context, const TaskList& tasks, BlockWaits& reported) {
  constexpr int columns = Model::columns;
  const Launch& launch = context.args.launch;
  WeightLoader<columns> loader(launch.view, context.memory, Global<const std::byte>(launch.weights));
  typename Model::Loader own(context);
  SharedTasks::Position position;
  TaskWords next = tasks.load_at(tasks.first);
  for (int token = 0; token < launch.tokens; ++token) {
    bool ok = true;
    loader.waits().until = 0;
    for (int index = tasks.first; index < tasks.end && ok; ++index) {
      ok = shared_tasks<Model>(context).put(loader.waits(), launch.view, position, next);
      const Task task = std::bit_cast<Task>(next);
      next = tasks.load_at(tasks.after(index));  // while this task is loaded
      if (!ok) break;
      const TraceStart start = trace_start();
      if (task.matrix.slices == 0) {
        ok = own.load(loader, task);
      } else if constexpr (streams(columns)) {
        ok = loader.load_pairs(task);
      } else {
        ok = loader.load(task);
      }
      trace_task(start, launch, TraceWork::kLoad, index);
    }
    if (!ok || !goes_on<Model>(context, loader.waits(), token)) break;
  }
  loader.drain();
  reported = loader.waits();
}

/// [thread] Loads the vectors of all tasks, if they stream.
template <class Model>
FARWARP_DEVICE void load_vectors(const typename Model::Context& context, const TaskList& tasks,
                                 StreamDispatcher dispatcher, BlockWaits& reported) {
  const Launch& launch = context.args.launch;
  VectorLoader<Model::columns> loader(launch.view, context.memory + Model::Layout::kProject, context.worker.buffers);
  Call call = context.call;
  const std::uint64_t budget = call.deadline_ns - call.started_ns;
  SharedTasks::Position position;
  for (int token = 0; token < launch.tokens; ++token) {
    call.deadline_ns = nanoseconds() + budget;
    loader.waits().until = 0;
    bool ok = true;
    for (int index = tasks.first; index < tasks.end && ok; ++index) {
      Task task;
      ok = shared_tasks<Model>(context).get_alone(loader.waits(), launch.view, position, task);
      if (ok && task.matrix.slices > 0 && task.count > 0) {
        dispatcher.wait_step(call);
        ok = call.live && loader.load(task, task.in_norm_rows != 0);
      }
      dispatcher.advance();
    }
    if (!ok || !goes_on<Model>(context, loader.waits(), token)) break;
  }
  loader.drain();
  reported = loader.waits();
}

/// [block] The barriers in shared memory.
template <class Model>
FARWARP_DEVICE void initialise_barriers(Shared<std::byte> memory) {
  constexpr int columns = Model::columns;
  using Layout = typename Model::Layout;
  if (!Target::kHasBulkCopy || thread_index() != 0) return;
  mbarrier_init(word_at<Mbarrier>(memory, Layout::kDecided), 1);
  weight_ring<columns>(memory).initialise(kWarps);
  if constexpr (streams(columns)) {
    vector_ring<columns>(memory + Layout::kProject).initialise(kWarps / 2);  // of one warpgroup
  } else {
    SharedSums<columns>{memory + Layout::kProject}.initialise();
  }
  SharedTasks{memory + Layout::kTasks}.ring().initialise(block_threads(columns) / Target::kWarpSize - 1);
}

/// [the warps that compute] All tokens, and then what the next launch begins with.
template <class Model, class Dispatcher>
FARWARP_DEVICE BlockWaits compute(const typename Model::Context& context, const TaskList& tasks,
                                  Dispatcher& dispatcher) {
  const Launch& launch = context.args.launch;
  WeightReader<Model::columns> weights(launch.view, context.memory, Global<const std::byte>(launch.weights),
                                       context.worker);
  const int tokens = compute_tokens<Model>(context, weights, tasks, dispatcher);
  if (context.worker.number() == 0 && launch.ends_token != 0) {
    if (context.call.live) Model::end(context);
    if (thread_index() == 0) {
      const Global<std::uint32_t> tag(launch.next_tag);
      store(tag, tag_of(launch, load(tag), context.call.live ? tokens : launch.tokens, 0));
      dispatcher.end_launch();
    }
  }
  return weights.waits();
}

/// A launch. `dispatcher`: how the workers' steps follow each other.
template <class Model, class Dispatcher>
FARWARP_DEVICE void run(const typename Model::Args& args, Dispatcher dispatcher) {
  constexpr int columns = Model::columns;
  using Layout = typename Model::Layout;
  static_assert(Layout::kBytes <= (Target::kHasBulkCopy ? 232448 : 65536), "a block has no more shared memory");
  const Launch& launch = args.launch;
  const Shared<std::byte> memory = block_shared();
  initialise_barriers<Model>(memory);
  Call call = begin_call(launch.view, launch.slot, 0);
  if (!call.live) return;
  if (!dispatcher.join(call, memory + Layout::kTasks)) {
    end_call(call, 0);
    return;
  }
  Call tagged = call;
  const typename Model::Context context{{args, tagged, memory, dispatcher.template worker<columns>()}};
  Model::begin(context);
  if (thread_index() == 0) store(word_at<std::uint32_t>(memory, Layout::kStop), 0u);
  tagged.epoch = load(Global<const std::uint32_t>(launch.next_tag));
  const int begin = context.worker.number() * launch.steps;
  const TaskList tasks{Global<const Vec16>(reinterpret_cast<const Vec16*>(launch.tasks)), begin + launch.first_task,
                       begin + launch.end_task};
  block_sync();
  BlockWaits waits;
  std::uint32_t site = kSiteOperands;  // by role: a site for each wait would take a register, and spill
  if (thread_index() < kComputingThreads) {
    waits = compute<Model>(context, tasks, dispatcher);
  } else if constexpr (Target::kHasBulkCopy && streams(columns)) {
    if (thread_index() == kComputingThreads) load_weights<Model>(context, tasks, waits);
    if (thread_index() == kComputingThreads + Target::kWarpSize) load_vectors<Model>(context, tasks, dispatcher, waits);
    site = thread_index() == kComputingThreads ? kSiteSlot : kSiteVectorSlot;
  } else if constexpr (Target::kHasBulkCopy) {
    constexpr int kLoader = kComputingThreads + TileFinisher<columns>::kThreads;
    if (thread_index() < kLoader) {
      finish_tiles<Model>(context, tasks, waits);
      site = kSiteSums;
    } else if (thread_index() == kLoader) {
      load_weights<Model>(context, tasks, waits);
      site = kSiteSlot;
    }
  }
  report_expired(waits, launch.view, launch.slot, site);
  end_call(call, 0);
}

/// Streamed vectors with the static dispatcher.
FARWARP_DEVICE StreamDispatcher stream_dispatcher_of(const Launch& launch) {
  const bool one_step = launch.end_task - launch.first_task == 1;
  return {launch.step_cells, {launch.plain}, !one_step};
}

}  // namespace farwarp::FARWARP_TARGET::fleet
