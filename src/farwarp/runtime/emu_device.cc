// Emulated devices, on substrate/emu/machine.h.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "farwarp/runtime/launch_check.h"
#include "farwarp/runtime/targets.h"
#include "farwarp/substrate/emu/machine.h"

namespace farwarp {
namespace {

using emu::Machine;
using emu::StreamId;

/// One operation of a stream; a graph is a list of them.
using Work = std::function<Status(StreamId)>;

struct EmuGraph final : Graph {
  std::vector<Work> work;
  Result<std::size_t> launches() const override { return work.size(); }
};

/// The virtual time at which the stream reached the event; shared with the work that stores it.
struct EmuEvent final : Event {
  static constexpr std::uint64_t kNotYet = ~std::uint64_t{0};
  std::shared_ptr<std::atomic<std::uint64_t>> time = std::make_shared<std::atomic<std::uint64_t>>(kNotYet);
};

/// The modelled multiprocessor holds 32 blocks, 2048 threads, and the shared memory of one largest block.
int resident_blocks(const MachineShape& shape, int threads, std::size_t shared_bytes) {
  const int by_threads = std::min(32, 2048 / threads);
  if (shared_bytes == 0) return by_threads;
  return std::min(by_threads, static_cast<int>(static_cast<std::size_t>(shape.traits.shared_bytes) / shared_bytes));
}

class EmuDevice final : public Device {
 public:
  EmuDevice(int ordinal, const MachineShape& shape) {
    ordinal_ = ordinal;
    shape_ = shape;
    model_ = shape.target == TargetKind::kEmuSm90 ? "emulated sm90" : "emulated gfx942";
    name_ = fmt::format("{} ({} multiprocessors)", model_, shape.multiprocessors);
  }

  Result<TensorMap> encode_checked(const TensorMapDesc& desc) const override {
    if (target() != TargetKind::kEmuSm90) return Device::encode_checked(desc);
    return emu::encode(desc);
  }

  Status while_current(const std::function<Status()>& calls) override { return calls(); }

  Result<void*> allocate(std::size_t bytes) override { return machine_.allocate(target(), ordinal_, bytes); }
  void release(void* pointer) override { machine_.release(target(), ordinal_, pointer); }

  // Kernels can access the emulator's memory only, so "host memory" is allocated there, too. The host accesses it
  // directly.
  Result<void*> allocate_host(std::size_t bytes, void** device_pointer) override {
    Result<void*> pointer = machine_.allocate(target(), ordinal_, bytes);
    if (!pointer.ok()) return pointer;
    machine_.host_fill(*pointer, 0, bytes);
    *device_pointer = *pointer;
    return pointer;
  }
  void release_host(void* host_pointer) override { machine_.release(host_pointer); }

  Status copy_in(void* destination, const void* host_source, std::size_t bytes, Stream stream) override {
    if (Status known = check_stream(stream); !known.ok()) return known;
    if (capturing(id_of(stream))) return not_captured("copy_in");
    const auto* source = static_cast<const std::byte*>(host_source);
    const auto copy = std::make_shared<std::vector<std::byte>>(source, source + bytes);
    machine_.enqueue_host(target(), ordinal_, id_of(stream), [&machine = machine_, copy, destination] {
      machine.host_write(destination, copy->data(), copy->size());
    });
    return {};
  }

  Status copy_out(void* host_destination, const void* source, std::size_t bytes, Stream stream) override {
    if (Status known = check_stream(stream); !known.ok()) return known;
    if (capturing(id_of(stream))) return not_captured("copy_out");
    machine_.enqueue_host(target(), ordinal_, id_of(stream), [=] {
      if (bytes > 0) std::memcpy(host_destination, source, bytes);
    });
    return machine_.synchronize(target(), ordinal_, id_of(stream));
  }

  Status fill(void* destination, std::uint8_t byte, std::size_t bytes, Stream stream) override {
    return enqueue(stream, [=, this](StreamId id) {
      machine_.enqueue_host(target(), ordinal_, id,
                            [=, &machine = machine_] { machine.host_fill(destination, byte, bytes); });
      return Status();
    });
  }

  Result<void*> allocate_shareable(std::size_t bytes, MemoryHandle* handle) override {
    int fd = -1;
    Result<void*> pointer = machine_.allocate_shared(target(), ordinal_, bytes, &fd);
    if (!pointer.ok()) return pointer;
    *handle = {.kind = MemoryHandle::Kind::kPosixFd, .bytes = bytes, .fd = fd, .address = *pointer};
    return pointer;
  }
  void release_shareable(void* pointer, const MemoryHandle&) override { machine_.release(pointer); }

  // All devices of a process share one address space. After a mapping of another process's memory, schedules no longer
  // replay exactly.
  Result<void*> import(const MemoryHandle& handle, int) override {
    if (handle.address != nullptr) return handle.address;
    if (handle.kind != MemoryHandle::Kind::kPosixFd) {
      return invalid_argument("handle has neither an address nor a descriptor");
    }
    return machine_.map_shared(handle.fd, handle.bytes);
  }
  void release_import(void* pointer, const MemoryHandle& handle) override {
    if (handle.address == nullptr) machine_.release(pointer);
  }
  std::string sharing_path() const override {
    return "addresses within one process, memfd between processes: it is all host memory";
  }

  Result<Stream> create_stream() override {
    return Stream{reinterpret_cast<void*>(std::uintptr_t{machine_.create_stream(target(), ordinal_)})};
  }
  void destroy_stream(Stream stream) override { machine_.destroy_stream(target(), ordinal_, id_of(stream)); }

  // The machine itself ends kernels that cannot progress. The timeout bounds the wait for host threads that keep it
  // from running.
  Status synchronize(Stream stream, std::uint64_t timeout_ns) override {
    return machine_.synchronize(target(), ordinal_, id_of(stream), patience_of(timeout_ns));
  }
  Status synchronize_all(std::uint64_t timeout_ns) override {
    return machine_.synchronize_all(target(), ordinal_, patience_of(timeout_ns));
  }
  std::string late_host_threads() const override { return machine_.report().host_threads; }

  Status enqueue_delay(Stream stream, std::uint64_t nanoseconds) override {
    return enqueue(stream, [=, this](StreamId id) {
      machine_.enqueue_delay(target(), ordinal_, id, nanoseconds);
      return Status();
    });
  }

  Result<std::unique_ptr<Event>> create_event() override {
    return std::unique_ptr<Event>(std::make_unique<EmuEvent>());
  }

  Status record(Event& event, Stream stream) override {
    if (Status known = check_stream(stream); !known.ok()) return known;
    if (capturing(id_of(stream))) return not_captured("record");
    const auto time = static_cast<EmuEvent&>(event).time;
    *time = EmuEvent::kNotYet;
    machine_.enqueue_host(target(), ordinal_, id_of(stream),
                          [&machine = machine_, time] { *time = machine.nanoseconds(); });
    return {};
  }

  Result<double> microseconds_between(Event& start, Event& end) override {
    const std::uint64_t from = *static_cast<EmuEvent&>(start).time;
    const std::uint64_t to = *static_cast<EmuEvent&>(end).time;
    if (from == EmuEvent::kNotYet || to == EmuEvent::kNotYet) {
      return Status(StatusCode::kMisuse,
                    "microseconds_between: an event has not completed; synchronize its stream first");
    }
    return (static_cast<double>(to) - static_cast<double>(from)) * 1e-3;
  }

  Result<Kernel> kernel(std::string_view name) override {
    const emu::KernelRecord* record = emu::find_kernel(name, target());
    if (record == nullptr) return unavailable(fmt::format("no kernel {} is linked in for {}", name, name_of(target())));
    return Kernel{const_cast<emu::KernelRecord*>(record), record->args_bytes, record->name};
  }

  Status launch(const Kernel& kernel, const LaunchConfig& config, const void* args, std::size_t args_bytes,
                Stream stream) override {
    const Result<int> resident = blocks_per_multiprocessor(kernel, config.threads, config.shared_bytes);
    if (!resident.ok()) return resident.status();
    if (Status status = check_grid(kernel, config, args_bytes, *resident, shape_); !status.ok()) return status;
    const auto* first = static_cast<const std::byte*>(args);
    const auto copy = std::make_shared<std::vector<std::byte>>(first, first + args_bytes);
    return enqueue(
        stream, [this, copy, config, record = static_cast<const emu::KernelRecord*>(kernel.handle)](StreamId id) {
          return machine_.launch(target(), ordinal_, id, *record,
                                 {config.blocks, config.threads, config.shared_bytes, config.cluster}, copy->data());
        });
  }

  Result<int> blocks_per_multiprocessor(const Kernel& kernel, int threads, std::size_t shared_bytes) override {
    if (kernel.handle == nullptr) return invalid_argument("kernel is empty: it must come from Device::kernel()");
    const auto& record = *static_cast<const emu::KernelRecord*>(kernel.handle);
    const auto shared_limit = static_cast<std::size_t>(shape_.traits.shared_bytes);
    Status status = check_block(kernel, threads, shared_bytes, {record.max_threads, shared_limit});
    if (!status.ok()) return status;
    return resident_blocks(shape_, threads, shared_bytes);
  }

  Status begin_capture(Stream stream) override {
    if (stream.handle == nullptr) return invalid_argument("begin_capture: the default stream cannot be captured");
    std::lock_guard lock(mutex_);
    if (!captures_.try_emplace(id_of(stream), std::make_unique<EmuGraph>()).second) {
      return {StatusCode::kMisuse, "begin_capture: the stream is being captured already"};
    }
    return {};
  }

  Result<std::unique_ptr<Graph>> end_capture(Stream stream) override {
    std::lock_guard lock(mutex_);
    auto node = captures_.extract(id_of(stream));
    if (node.empty()) return Status(StatusCode::kMisuse, "end_capture: the stream is not being captured");
    return std::unique_ptr<Graph>(std::move(node.mapped()));
  }

  Status launch(Graph& graph, Stream stream) override {
    for (const Work& work : static_cast<EmuGraph&>(graph).work) {
      if (Status status = enqueue(stream, work); !status.ok()) return status;
    }
    return {};
  }

  Result<std::unique_ptr<Graph>> unordered(const std::vector<Graph*>&) override {
    return unavailable("the emulator runs a graph's work one after the other");
  }

  Status start_trace(Stream stream) override {
    (void)machine_.take_traces(target(), ordinal_);
    if (Status known = check_stream(stream); !known.ok()) return known;
    machine_.set_tracing(target(), ordinal_, true);
    return {};
  }

  Status stop_trace(Stream stream) override {
    machine_.set_tracing(target(), ordinal_, false);
    return check_stream(stream);
  }

  Result<DeviceTrace> take_trace() override {
    DeviceTrace trace;
    for (const emu::LaunchTrace& launch : machine_.take_traces(target(), ordinal_)) {
      if (launch.kernel == nullptr) continue;
      TracedLaunch& traced = trace.launches.emplace_back();
      traced.kernel = launch.kernel->name;
      for (const auto& block : launch.blocks)
        traced.blocks.push_back({block.multiprocessor, static_cast<double>(block.begin),
                                 static_cast<double>(std::max(block.begin, block.end))});
      for (const auto& entry : launch.entries)
        traced.events.push_back({static_cast<double>(entry.record.begin), static_cast<double>(entry.record.length),
                                 entry.block, entry.warp, entry.record});
    }
    return trace;
  }

 private:
  // At least 2 s: on a busy machine the time that a rank takes to prepare its data must not affect the schedule.
  static std::chrono::nanoseconds patience_of(std::uint64_t timeout_ns) {
    constexpr std::chrono::nanoseconds kLeast = std::chrono::seconds(2), kMost = std::chrono::hours(24);
    const auto most = static_cast<std::uint64_t>(kMost.count());
    return std::max(kLeast, std::chrono::nanoseconds(std::min(timeout_ns, most)));
  }

  // A stream's handle is its number; number 0 is the default stream.
  static StreamId id_of(Stream stream) {
    return static_cast<StreamId>(reinterpret_cast<std::uintptr_t>(stream.handle));
  }

  Status check_stream(Stream stream) const {
    const auto handle = reinterpret_cast<std::uintptr_t>(stream.handle);
    if (handle == id_of(stream) && machine_.has_stream(target(), ordinal_, id_of(stream))) return {};
    return invalid_argument(
        fmt::format("stream is {}, which does not exist on device {}; allowed: what create_stream() gives, or null",
                    handle, ordinal_));
  }

  /// Does the work, or records it if the stream is being captured.
  Status enqueue(Stream stream, Work work) {
    if (Status known = check_stream(stream); !known.ok()) return known;
    const StreamId id = id_of(stream);
    {
      std::lock_guard lock(mutex_);
      if (const auto capture = captures_.find(id); capture != captures_.end()) {
        capture->second->work.push_back(std::move(work));
        return {};
      }
    }
    return work(id);
  }

  bool capturing(StreamId id) {
    std::lock_guard lock(mutex_);
    return captures_.contains(id);
  }

  static Status not_captured(const char* operation) {
    return {StatusCode::kMisuse, fmt::format("{} cannot be captured: end the capture of its stream first", operation)};
  }

  Machine& machine_ = Machine::instance();
  std::mutex mutex_;  // of what follows
  std::map<StreamId, std::unique_ptr<EmuGraph>> captures_;
};

/// 1 to `most`, or `otherwise` if the variable is not set.
Result<int> from_environment(const char* variable, int otherwise, int most) {
  const char* text = std::getenv(variable);
  if (text == nullptr || *text == '\0') return otherwise;
  int value = 0;
  const char* const end = text + std::strlen(text);
  const auto [parsed, error] = std::from_chars(text, end, value);
  if (error != std::errc() || parsed != end || value < 1 || value > most)
    return invalid_argument(fmt::format("{} is '{}', allowed are 1 to {}", variable, text, most));
  return value;
}

}  // namespace

Result<std::shared_ptr<Device>> open_emu_device(TargetKind personality, int ordinal) {
  if (Status status = check_ordinal(personality, ordinal, kEmulatedDevices); !status.ok()) return status;
  constexpr int kMaxMultiprocessors = 304;  // of an MI300X
  const Result<int> multiprocessors = from_environment("FARWARP_EMU_MULTIPROCESSORS", 8, kMaxMultiprocessors);
  if (!multiprocessors.ok()) return multiprocessors.status();
  const bool several = personality == TargetKind::kEmuGfx942;
  const Result<int> xcds =
      several ? from_environment("FARWARP_EMU_XCDS", *multiprocessors % 8 == 0 ? 8 : 1, kMaxXcds) : Result<int>(1);
  if (!xcds.ok()) return xcds.status();
  MachineShape shape;
  shape.target = personality;
  shape.traits = traits_of(personality);
  shape.multiprocessors = *multiprocessors;
  shape.xcds = *xcds;
  if (Status status = Machine::instance().open_device(personality, ordinal, shape); !status.ok()) return status;
  return std::shared_ptr<Device>(std::make_shared<EmuDevice>(ordinal, shape));
}

}  // namespace farwarp
