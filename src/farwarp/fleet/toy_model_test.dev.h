// The smallest model (toy_model_test.h) as the runtime sees it.
#pragma once

#include "farwarp/fleet/run.dev.h"
#include "farwarp/fleet/toy_model_test.h"

namespace farwarp::FARWARP_TARGET::fleet::toy {

using namespace farwarp::fleet::toy;

template <int columns_>
struct Model {
  static constexpr int columns = columns_;
  using Args = toy::Args;
  using Layout = SharedLayout<columns, Target::kHasBulkCopy>;
  struct Context : WorkerContext<Args, columns> {};

  class Tasks {
   public:
    FARWARP_DEVICE Tasks(const Context& context, WeightReader<columns>&) : context_(context) {}
    FARWARP_DEVICE void run(const Task& task, int) {
      static_cast<Kind>(task.kind) == Kind::kSquare ? square(task) : finish(task);
    }

   private:
    FARWARP_DEVICE void square(const Task& task) const {
      const int workers = context_.args.launch.workers;
      for (int column = task.first; column < task.first + task.count * workers; column += workers) {
        for (int row = 4 * thread_index(); row < kWideRows; row += 4 * kComputingThreads) {
          const std::uint64_t four = read(task, row, column, kSiteSquare);
          float numbers[4];
          for (int i = 0; i < 4; ++i) numbers[i] = multiply(number_of(four, i), number_of(four, i));
          store_four<columns>(context_.call, context_.worker, task.out, row, column,
                              pack_four(numbers[0], numbers[1], numbers[2], numbers[3]));
        }
        warp_sync();  // lanes leave a wait one by one
      }
    }
    FARWARP_DEVICE void finish(const Task& task) const {
      const Global<std::uint64_t> outputs(context_.args.outputs);
      for (int i = thread_index(); i < kRows / 4 * columns; i += kComputingThreads) {
        const std::uint64_t four = read(task, i / columns * 4, i % columns, kSiteFinish);
        if (context_.worker.number() == 0) store(outputs + i, four);
      }
      if (!context_.call.live) stop_launch<Layout>(context_.memory);
      sync_warps();
    }
    FARWARP_DEVICE std::uint64_t read(const Task& task, int row, int column, std::uint32_t site) const {
      return read_four<columns>(context_.call, context_.worker, task.in, row, column, site);
    }
    const Context& context_;
  };

  struct OwnEpilogue {  // no step has one of its own
    FARWARP_DEVICE explicit OwnEpilogue(const Context&) {}
    FARWARP_DEVICE void begin_task() {}
    FARWARP_DEVICE void take(const Task&, int, const Four&, const float (&)[4]) {}
    FARWARP_DEVICE void end_task(const Task&, bool, int) {}
  };
  struct Loader {  // nor does one read anything but weights through the ring
    FARWARP_DEVICE explicit Loader(const Context&) {}
    FARWARP_DEVICE bool load(WeightLoader<columns>&, const Task&) { return true; }
  };

  static FARWARP_DEVICE std::uint64_t first_hidden(const Context& context, const Four& four) {
    return load(Global<const std::uint64_t>(context.args.inputs) + (four.row_of_matrix() / 4 * columns + four.column));
  }
  static FARWARP_DEVICE std::uint32_t input_site(std::int32_t kind) {
    return static_cast<Kind>(kind) == Kind::kWiden ? kSiteWiden : kSiteNarrow;
  }
  static FARWARP_DEVICE void begin(const Context&) {}
  static FARWARP_DEVICE bool ended(const Context&) { return false; }
  static FARWARP_DEVICE void end(const Context&) {}
};

}  // namespace farwarp::FARWARP_TARGET::fleet::toy
