#include "farwarp/substrate/emu/machine.h"

#include <fmt/format.h>

#include "farwarp/substrate/emu/engine.h"

namespace farwarp::emu {

struct Machine::State {
  Engine& engine = emu::engine();

  Result<Device*> device(TargetKind personality, int ordinal) {
    Device* found = engine.find_device(personality, ordinal);
    if (found) return found;
    return invalid_argument(
        fmt::format("emulator: device {} of {} has not been opened", ordinal, name_of(personality)));
  }
};

Machine::Machine() : state_(std::make_unique<State>()) {}
Machine::~Machine() = default;

Machine& Machine::instance() {
  static Machine* machine = new Machine;
  return *machine;
}

Status Machine::open_device(TargetKind personality, int ordinal, const MachineShape& shape) {
  return state_->engine.open_device(personality, ordinal, shape);
}

Result<void*> Machine::allocate(TargetKind personality, int ordinal, std::size_t bytes) {
  auto device = state_->device(personality, ordinal);
  if (!device.ok()) return device.status();
  Engine::HostLock held(state_->engine);
  return state_->engine.arena.allocate((*device)->index, bytes);
}

Result<void*> Machine::allocate_shared(TargetKind personality, int ordinal, std::size_t bytes, int* fd) {
  auto device = state_->device(personality, ordinal);
  if (!device.ok()) return device.status();
  Engine::HostLock held(state_->engine);
  return state_->engine.arena.allocate_memfd((*device)->index, bytes, fd);
}

Result<void*> Machine::map_shared(int fd, std::size_t bytes) {
  Engine::HostLock held(state_->engine);
  if (Status reserved = state_->engine.arena.reserve(); !reserved.ok()) return reserved;
  auto mapped = state_->engine.arena.map_memfd(fd, bytes);
  if (mapped.ok()) state_->engine.several_processes = true;
  return mapped;
}

void Machine::release(void* pointer) {
  Engine::HostLock held(state_->engine);
  state_->engine.arena.release(pointer);
}

void Machine::release(TargetKind personality, int ordinal, void* pointer) {
  auto device = state_->device(personality, ordinal);
  if (!device.ok()) return;
  Engine::HostLock held(state_->engine);
  state_->engine.wait_until_idle(held, **device, kPatience);
  state_->engine.arena.release(pointer);
}

bool Machine::has_stream(TargetKind personality, int ordinal, StreamId stream) {
  auto device = state_->device(personality, ordinal);
  return device.ok() && state_->engine.has_stream(**device, stream);
}

StreamId Machine::create_stream(TargetKind personality, int ordinal) {
  auto device = state_->device(personality, ordinal);
  if (!device.ok()) return 0;
  Engine::HostLock held(state_->engine);
  const StreamId stream = (*device)->next_stream++;
  (*device)->streams[stream];
  return stream;
}

void Machine::destroy_stream(TargetKind personality, int ordinal, StreamId stream) {
  auto device = state_->device(personality, ordinal);
  if (!device.ok() || stream == 0) return;
  (void)state_->engine.synchronize(**device, stream, kPatience);
  Engine::HostLock held(state_->engine);
  (*device)->streams.erase(stream);
}

Status Machine::launch(TargetKind personality, int ordinal, StreamId stream, const KernelRecord& kernel,
                       LaunchShape shape, const void* args) {
  auto device = state_->device(personality, ordinal);
  if (!device.ok()) return device.status();
  return state_->engine.enqueue_launch(**device, stream, kernel, shape, args);
}

void Machine::enqueue_host(TargetKind personality, int ordinal, StreamId stream, std::function<void()> work) {
  auto device = state_->device(personality, ordinal);
  if (!device.ok()) return;
  WorkItem item;
  item.kind = WorkItem::Kind::host;
  item.host = std::move(work);
  state_->engine.enqueue(**device, stream, std::move(item));
}

void Machine::enqueue_delay(TargetKind personality, int ordinal, StreamId stream, std::uint64_t nanoseconds) {
  auto device = state_->device(personality, ordinal);
  if (!device.ok()) return;
  WorkItem item;
  item.kind = WorkItem::Kind::delay;
  item.nanoseconds = nanoseconds;
  state_->engine.enqueue(**device, stream, std::move(item));
}

Status Machine::synchronize(TargetKind personality, int ordinal, StreamId stream, std::chrono::nanoseconds patience) {
  auto device = state_->device(personality, ordinal);
  if (!device.ok()) return device.status();
  return state_->engine.synchronize(**device, stream, patience);
}

Status Machine::synchronize_all(TargetKind personality, int ordinal, std::chrono::nanoseconds patience) {
  auto device = state_->device(personality, ordinal);
  if (!device.ok()) return device.status();
  return state_->engine.synchronize_all(**device, patience);
}

void Machine::host_write(void* destination, const void* source, std::size_t bytes) {
  state_->engine.host_write(destination, source, bytes);
}

void Machine::host_fill(void* destination, std::uint8_t byte, std::size_t bytes) {
  state_->engine.host_fill(destination, byte, bytes);
}

std::uint64_t Machine::nanoseconds() {
  Engine::HostLock held(state_->engine);
  return state_->engine.schedule.nanoseconds();
}

void Machine::set_schedule(const ScheduleOptions& options) { state_->engine.set_schedule(options); }

void Machine::record_loads(std::vector<LoadRecord>* records) {
  Engine::HostLock held(state_->engine);
  state_->engine.load_records = records;
}

void Machine::set_tracing(TargetKind personality, int ordinal, bool on) {
  Device& device = *state_->engine.find_device(personality, ordinal);
  Engine::HostLock held(state_->engine);
  device.tracing = on;
}

std::vector<LaunchTrace> Machine::take_traces(TargetKind personality, int ordinal) {
  Device& device = *state_->engine.find_device(personality, ordinal);
  Engine::HostLock held(state_->engine);
  std::vector<LaunchTrace> traces;
  for (const auto& trace : device.traces) traces.push_back(std::move(*trace));
  device.traces.clear();
  return traces;
}

ScheduleReport Machine::report() {
  Engine::HostLock held(state_->engine);
  return state_->engine.report();
}

}  // namespace farwarp::emu
