#include "farwarp/ops/all_reduce/all_reduce.h"

#include <fmt/format.h>

#include <utility>

#include "farwarp/base/arguments.h"
#include "farwarp/base/overlap.h"
#include "farwarp/ops/all_reduce/args.h"
#include "farwarp/world/host/opened_operator.h"

namespace farwarp {
namespace {

/// Ranks that differed in their blocks could wait for each other in a circle.
std::uint64_t configuration_of(const AllReduceDesc& desc, int most_blocks) {
  return hash_of(
      {desc.max_elements, static_cast<int>(desc.dtype), static_cast<int>(desc.mode), desc.max_sms, most_blocks});
}

Status check_tensors(const AllReduceDesc& desc, const void* x, const void* out, std::int64_t elements) {
  if (elements < 0 || elements > desc.max_elements)
    return invalid_argument(
        fmt::format("elements is {}; allowed: 0 to {}, AllReduceDesc.max_elements", elements, desc.max_elements));
  if (elements == 0) return {};
  Status status = first_failure(
      {check_pointer("x", x, all_reduce::kVectorBytes), check_pointer("out", out, all_reduce::kVectorBytes)});
  if (!status.ok() || x == out) return status;
  const std::int64_t bytes = elements * static_cast<std::int64_t>(bytes_of(desc.dtype));
  if (!overlap({"x", x, bytes}, {"out", out, bytes})) return {};
  const auto a = reinterpret_cast<std::uintptr_t>(x), b = reinterpret_cast<std::uintptr_t>(out);
  return invalid_argument(
      fmt::format("out begins {} bytes from x; allowed: 0 (in place), or {} and more, so that they do not overlap",
                  a < b ? b - a : a - b, bytes));
}

}  // namespace

struct AllReduce::State {
  World* world = nullptr;
  AllReducePlan plan;
  OpenedOperator opened;  ///< kernels: one-shot, two-shot; buffers: words, parts, signals
  all_reduce::Args args{};
};

Result<AllReduce> AllReduce::create(World& world, const AllReduceDesc& desc) {
  const auto plan = plan_all_reduce(desc, world.device().shape(), world.size());
  const AllReducePlan wanted = plan.ok() ? *plan : AllReducePlan{};
  auto opened = open_state<State>(world, plan,
                                  {.name = "all-reduce",
                                   .site_names = all_reduce::kSiteNames,
                                   .configuration = configuration_of(desc, wanted.most_blocks),
                                   .kernels = {wanted.one_shot_kernel, wanted.two_shot_kernel},
                                   .buffers = {{wanted.word_bytes, 0xff}, {wanted.part_bytes}, {wanted.signal_bytes}}});
  if (!opened.ok()) return opened.status();
  std::unique_ptr<State> state = std::move(*opened);
  all_reduce::Args& args = state->args;
  args.view = world.view();
  args.slot = state->opened.slot();
  args.words = static_cast<std::int64_t>(state->opened.buffer(0).offset);
  args.word_pitch = plan->one_shot_vectors;
  args.parts = static_cast<std::int64_t>(state->opened.buffer(1).offset);
  args.part_pitch = plan->part_vectors;
  args.signals = static_cast<std::int64_t>(state->opened.buffer(2).offset);
  args.signal_pitch = plan->part_chunks;
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

void AllReduce::drop_put(int number) {
  if (state_) state_->args.drop_put = static_cast<std::uint32_t>(number);
}

Status AllReduce::operator()(const void* x, void* out, std::int64_t elements, Stream stream) {
  if (Status open = check_open("AllReduce", state_); !open.ok()) return open;
  State& state = *state_;
  Status status = check_tensors(state.plan.desc, x, out, elements);
  if (status.ok()) status = state.world->status();
  if (!status.ok() || elements == 0) return status;
  const AllReduceLaunch call = launch_of(state.plan, elements);
  all_reduce::Args args = state.args;
  args.elements = elements;
  args.vectors = call.vectors;
  args.part_vectors = call.part_vectors;
  args.chunk_vectors = call.chunk_vectors;
  args.groups = call.groups;
  args.in = x;
  args.out = out;
  return launch(state.world->device(), state.opened.kernel(call.two_shot ? 1 : 0), {call.blocks, call.threads, 0}, args,
                stream);
}

}  // namespace farwarp
