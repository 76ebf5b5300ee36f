// The lesson as a submission: what somebody with a kernel of farwarp's kind hands to `farwarp submit`.
#include "farwarp/submission.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "all_reduce.h"
#include "farwarp/runtime/device_memory.h"

namespace farwarp::lessons {
namespace {

constexpr std::chrono::seconds kPatience{20};

struct Submission {
  std::optional<World> world;
  std::optional<AllReduce> op;
  // The emulator of this object does not know the memory of the program that loads it.
  bool emulated = false;
  Stream stream;
  DeviceMemory in, out;

  ~Submission() {
    if (op) (void)op->close();
    if (emulated && world) world->device().destroy_stream(stream);
  }

  Status create(const farwarp_submission_problem& problem) {
    constexpr std::pair<std::string_view, TargetKind> kTargets[] = {{"cuda", TargetKind::kCuda},
                                                                    {"hip", TargetKind::kHip},
                                                                    {"emu_sm90", TargetKind::kEmuSm90},
                                                                    {"emu_gfx942", TargetKind::kEmuGfx942}};
    if (std::string_view(problem.op) != "lesson-05")
      return invalid_argument(fmt::format("operator is '{}': allowed is lesson-05", problem.op));
    WorldOptions options;
    for (const auto& [name, target] : kTargets) {
      if (name == problem.target) options.target = target;
    }
    emulated = is_emulated(options.target);
    // The ranks meet under a name that rank 0 chooses.
    char mine[32] = {}, names[8][32] = {};
    std::snprintf(mine, sizeof(mine), "lesson-05-%d", static_cast<int>(::getpid()));
    if (problem.allgather(problem.context, mine, sizeof(mine), names) != 0)
      return internal_error("the ranks cannot meet");
    auto bootstrap = make_process_bootstrap(problem.rank, problem.ranks, names[0], kPatience);
    if (!bootstrap.ok()) return bootstrap.status();
    AllReduceDesc desc;
    desc.elements = static_cast<std::int32_t>(problem.inputs[0].shape[0]);
    const auto device = Device::open(options.target, problem.device);
    if (!device.ok()) return device.status();
    const auto plan = plan_all_reduce(desc, (*device)->shape(), problem.ranks);
    if (!plan.ok()) return plan.status();
    options.heap_bytes = static_cast<std::size_t>(plan->flag_bytes + plan->vector_bytes) + (1 << 20);
    auto made = World::create(std::move(*bootstrap), options);
    if (!made.ok()) return made.status();
    world.emplace(std::move(*made));
    auto created = AllReduce::create(*world, desc);
    if (!created.ok()) return created.status();
    op.emplace(std::move(*created));
    return emulated ? create_copies(4 * static_cast<std::size_t>(desc.elements)) : Status();
  }

  Status create_copies(std::size_t bytes) {
    const auto created = world->device().create_stream();
    if (!created.ok()) return created.status();
    stream = *created;
    for (DeviceMemory* buffer : {&in, &out}) {
      auto memory = DeviceMemory::create(world->device(), bytes);
      if (!memory.ok()) return memory.status();
      *buffer = std::move(*memory);
    }
    return {};
  }

  Status run(void* from, void* to, void* native_stream) {
    Device& device = world->device();
    if (!emulated) return (*op)(static_cast<float*>(from), static_cast<float*>(to), Stream{native_stream});
    Status status = device.copy_in(in.get(), from, in.bytes(), stream);
    if (status.ok()) status = (*op)(in.as<float>(), out.as<float>(), stream);
    if (status.ok()) status = device.synchronize(stream, 20'000'000'000);
    if (status.ok()) status = world->status();
    return status.ok() ? device.copy_out(to, out.get(), out.bytes(), stream) : status;
  }
};

}  // namespace
}  // namespace farwarp::lessons

using farwarp::lessons::Submission;

uint32_t farwarp_submission_abi_version(void) { return FARWARP_SUBMISSION_ABI_VERSION; }

int farwarp_submission_create(const farwarp_submission_problem* problem, void** state, char* error,
                              size_t error_bytes) {
  auto submission = std::make_unique<Submission>();
  const farwarp::Status status = submission->create(*problem);
  std::snprintf(error, error_bytes, "%s", status.message().c_str());
  if (!status.ok()) return 1;
  *state = submission.release();
  return 0;
}

int farwarp_submission_run(void* state, const farwarp_submission_tensor* inputs, int32_t /*input_count*/,
                           const farwarp_submission_tensor* outputs, int32_t /*output_count*/, void* stream) {
  const farwarp::Status status = static_cast<Submission*>(state)->run(inputs[0].data, outputs[0].data, stream);
  if (!status.ok()) std::fprintf(stderr, "lesson 05: %s\n", status.to_string().c_str());
  return status.ok() ? 0 : 1;
}

void farwarp_submission_destroy(void* state) { delete static_cast<Submission*>(state); }
