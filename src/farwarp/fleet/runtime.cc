#include "farwarp/fleet/runtime.h"

#include <utility>

namespace farwarp::fleet {

Result<Runtime> Runtime::create(World& world, std::uint32_t slot, RuntimePlan plan, std::int64_t packets_at,
                                Stream stream) {
  const bool bulk_copy = world.device().shape().traits.bulk_copy;
  if (Status status = plan.graph.check_launch(plan.columns, bulk_copy); !status.ok()) return status;
  Runtime runtime;
  runtime.world_ = &world;
  runtime.slot_ = slot;
  runtime.plan_ = std::move(plan);
  const RuntimePlan& own = runtime.plan_;
  std::vector<std::string> names;
  for (const Step& step : own.graph.steps) names.push_back(step.name);
  world.name_steps(static_cast<int>(slot), std::move(names));
  const Graph of_gang = own.gang ? own.graph.with_plain_buffers() : Graph{};
  const std::int64_t task_bytes = std::int64_t{own.workers} * runtime.steps() * static_cast<std::int64_t>(sizeof(Task));
  const std::pair<DeviceMemory*, std::int64_t> wanted[] = {
      {&runtime.tasks_, task_bytes},
      {&runtime.residual_, std::int64_t{own.rows} * own.columns * 2},
      {&runtime.tag_, 4},
      {&runtime.plain_, own.gang ? of_gang.plain_bytes : own.graph.plain_bytes},
      {&runtime.step_cells_, streams(own.columns) ? sizeof(StepCells) : 0},
      {&runtime.gang_tasks_, own.gang ? task_bytes : 0},
      {&runtime.gang_cells_, own.gang ? sizeof(GangCells) : 0}};
  for (const auto& [memory, bytes] : wanted) {
    if (bytes == 0) continue;
    auto created = DeviceMemory::create(world.device(), static_cast<std::size_t>(bytes));
    if (!created.ok()) return created.status();
    *memory = std::move(*created);
  }
  Status status = runtime.copy_tasks(own.graph, packets_at, runtime.tasks_, stream);
  if (status.ok() && own.gang) status = runtime.copy_tasks(of_gang, packets_at, runtime.gang_tasks_, stream);
  if (status.ok()) status = runtime.reset(stream);
  if (!status.ok()) return status;
  return runtime;
}

Status Runtime::copy_tasks(const Graph& graph, std::int64_t packets_at, const DeviceMemory& to, Stream stream) const {
  const auto lists = plan_static(graph, plan_.workers, packets_at);
  if (!lists.ok()) return lists.status();
  return world_->device().copy_in(to.get(), lists->tasks.data(), to.bytes(), stream);
}

Status Runtime::reset(Stream stream) const {
  const std::uint32_t first_tag = 1;
  Status status = world_->device().copy_in(tag_.get(), &first_tag, sizeof first_tag, stream);
  // Tasks read all columns of plain buffers; those without a sequence may never have been written.
  for (const DeviceMemory* zeros : {&plain_, &step_cells_, &gang_cells_}) {
    if (status.ok() && zeros->bytes() > 0) status = world_->device().fill(zeros->get(), 0, zeros->bytes(), stream);
  }
  return status;
}

Launch Runtime::launch(const std::byte* weights, float epsilon) const {
  return {.view = world_->view(),
          .slot = slot_,
          .workers = plan_.workers,
          .tasks = tasks_.as<const Task>(),
          .steps = steps(),
          .first_task = 0,
          .end_task = steps(),
          .tokens = 1,
          .tags_of_token = plan_.graph.tags_of_token(),
          .ends_token = 1,
          .next_tag = tag_.as<std::uint32_t>(),
          .weights = weights,
          .plain = plain_.as<std::byte>(),
          .residual = residual_.as<std::uint64_t>(),
          .epsilon = epsilon,
          .step_cells = step_cells_.as<StepCells>(),
          .gang = gang_cells_.as<GangCells>()};
}

}  // namespace farwarp::fleet
