#include "all_reduce.h"

#include <utility>

#include "args.h"
#include "farwarp/base/arguments.h"
#include "farwarp/world/host/opened_operator.h"

namespace farwarp::lessons {

struct AllReduce::State {
  World* world = nullptr;
  AllReducePlan plan;
  OpenedOperator opened;  ///< with one kernel; buffers: flags, vectors
  all_reduce::Args args{};
};

Result<AllReduce> AllReduce::create(World& world, const AllReduceDesc& desc) {
  const auto plan = plan_all_reduce(desc, world.device().shape(), world.size());
  const AllReducePlan wanted = plan.ok() ? *plan : AllReducePlan{};
  // A rank without a plan opens as well, so that all ranks get the reason.
  auto opened = open_state<State>(world, plan,
                                  {.name = "lesson-05",
                                   .site_names = all_reduce::kSiteNames,
                                   .configuration = hash_of({desc.elements, wanted.blocks}),
                                   .kernels = {"lesson_05_all_reduce"},
                                   .buffers = {{wanted.flag_bytes}, {wanted.vector_bytes}}});
  if (!opened.ok()) return opened.status();
  std::unique_ptr<State> state = std::move(*opened);
  state->args.view = world.view();
  state->args.slot = state->opened.slot();
  state->args.elements = desc.elements;
  state->args.flags = static_cast<std::int64_t>(state->opened.buffer(0).offset);
  state->args.vectors = static_cast<std::int64_t>(state->opened.buffer(1).offset);
  return AllReduce(std::move(state));
}

AllReduce::AllReduce(std::unique_ptr<State> state) : state_(std::move(state)) {}
AllReduce::AllReduce(AllReduce&&) noexcept = default;
AllReduce& AllReduce::operator=(AllReduce&&) noexcept = default;
AllReduce::~AllReduce() = default;

Status AllReduce::close() { return close_opened("AllReduce", state_); }

const AllReducePlan& AllReduce::plan() const {
  static const AllReducePlan kNone;
  return state_ ? state_->plan : kNone;
}

Status AllReduce::operator()(const float* in, float* out, Stream stream) {
  if (Status open = check_open("AllReduce", state_); !open.ok()) return open;
  if (Status status =
          first_failure({check_pointer("in", in, 4), check_pointer("out", out, 4), state_->world->status()});
      !status.ok())
    return status;
  all_reduce::Args args = state_->args;
  args.in = in;
  args.out = out;
  return launch(state_->world->device(), state_->opened.kernel(0), {state_->plan.blocks, all_reduce::kThreads, 0}, args,
                stream);
}

}  // namespace farwarp::lessons
