// What CUDA and HIP devices have in common: everything except opening, sharing, launching, and finding kernels' limits.
// `Api` is cuda::Driver or hip::Runtime, whose functions of the same names take the same parameters.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <future>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>

#include "farwarp/base/host_activity.h"
#include "farwarp/runtime/device.h"
#include "farwarp/runtime/gpu_handles.h"
#include "farwarp/runtime/launch_check.h"
#include "farwarp/runtime/trace_room.h"
#include "farwarp/vendor/code_object.h"
#include "farwarp/vendor/kernel_info.h"

namespace farwarp {

/// Copies first wait for their stream with this bound, because the drivers' copies wait for it without one. A stream
/// that is busy for longer is stuck: every wait of our kernels ends far earlier.
inline constexpr std::chrono::nanoseconds kCopyTimeout = std::chrono::minutes(2);

template <class Api>
class GpuDevice : public Device {
 public:
  Status while_current(const std::function<Status()>& calls) override {
    const typename Api::DeviceScope scope(api_, token_);
    return scope.status().ok() ? calls() : scope.status();
  }

  Result<void*> allocate(std::size_t bytes) override {
    void* pointer = nullptr;
    if (Status status = call(api_.memory_allocate, &pointer, bytes); !status.ok()) {
      return allocation_error(status, bytes);
    }
    return pointer;
  }

  void release(void* pointer) override { (void)call(api_.memory_free, pointer); }

  Result<void*> allocate_host(std::size_t bytes, void** device_pointer) override {
    void* pointer = nullptr;
    if (Status status = call(api_.host_allocate, &pointer, bytes, Api::kHostAllocFlags); !status.ok()) {
      return allocation_error(status, bytes);
    }
    if (Status status = call(api_.host_device_pointer, device_pointer, pointer, 0u); !status.ok()) {
      release_host(pointer);
      return status;
    }
    std::memset(pointer, 0, bytes);
    return pointer;
  }

  void release_host(void* host_pointer) override { (void)call(api_.host_free, host_pointer); }

  // DMA may read the caller's buffer, so the caller may reuse it only when the stream has completed the copy.
  Status copy_in(void* destination, const void* host_source, std::size_t bytes, Stream stream) override {
    if (Status status = refuse_while_capturing(stream, "copy_in"); !status.ok()) return status;
    if (Status status = call(api_.copy_to_device, destination, host_source, bytes, native(stream)); !status.ok()) {
      return status;
    }
    return synchronize(stream, kCopyTimeout.count());
  }

  // Waits first, so that the copy cannot begin after this function has given up.
  Status copy_out(void* host_destination, const void* source, std::size_t bytes, Stream stream) override {
    if (Status status = refuse_while_capturing(stream, "copy_out"); !status.ok()) return status;
    if (Status status = synchronize(stream, kCopyTimeout.count()); !status.ok()) return status;
    if (Status status = call(api_.copy_to_host, host_destination, source, bytes, native(stream)); !status.ok()) {
      return status;
    }
    return synchronize(stream, kCopyTimeout.count());
  }

  Status fill(void* destination, std::uint8_t byte, std::size_t bytes, Stream stream) override {
    return call(api_.fill, destination, byte, bytes, native(stream));
  }

  Result<Stream> create_stream() override {
    typename Api::StreamHandle handle{};
    constexpr unsigned kNonBlocking = 1;  // no implicit order with the default stream
    if (Status status = call(api_.stream_create, &handle, kNonBlocking); !status.ok()) return status;
    return Stream{handle};
  }

  void destroy_stream(Stream stream) override { (void)call(api_.stream_destroy, native(stream)); }

  Status synchronize(Stream stream, std::uint64_t timeout_ns) override {
    using Clock = std::chrono::steady_clock;
    constexpr std::chrono::nanoseconds kLongest = std::chrono::hours(24 * 365);  // keeps the sum below from overflowing
    // Most kernels end during the spin. Linux's timer slack adds another 50 us to each sleep.
    constexpr auto kSpin = std::chrono::microseconds(200);
    constexpr auto kNap = std::chrono::microseconds(50);
    const auto start = Clock::now();
    const auto timeout = std::chrono::nanoseconds(std::min<std::uint64_t>(timeout_ns, kLongest.count()));
    for (;;) {
      const auto error = query(stream);
      if (error != Api::Error::kNotReady) return api_.status(api_.stream_query.symbol, error);
      const auto waited = Clock::now() - start;
      if (waited >= timeout) {
        return {StatusCode::kDeadline, fmt::format("a stream of {} is still busy after {:.3f} s", name_,
                                                   static_cast<double>(timeout.count()) * 1e-9)};
      }
      if (waited >= kSpin) std::this_thread::sleep_for(kNap);
    }
  }

  // The drivers' wait for a whole device has neither a timeout nor a polled form, so a new thread makes it. If that
  // thread does not return, it keeps the Device alive.
  Status synchronize_all(std::uint64_t timeout_ns) override {
    constexpr std::chrono::nanoseconds kLongest = std::chrono::hours(24 * 365);
    const std::chrono::nanoseconds timeout(std::min<std::uint64_t>(timeout_ns, kLongest.count()));
    std::promise<Status> promise;
    std::future<Status> outcome = promise.get_future();
    std::thread waiting;
    try {
      waiting = std::thread([this, keeps = shared_from_this(), promise = std::move(promise)]() mutable {
        promise.set_value(call(api_.device_synchronize));
      });
    } catch (const std::system_error& error) {
      return internal_error(fmt::format("cannot wait for {}: no thread: {}", name_, error.what()));
    }
    const HostBlockedScope blocked;
    if (outcome.wait_for(timeout) == std::future_status::ready) {
      waiting.join();
      return outcome.get();
    }
    waiting.detach();
    return {StatusCode::kDeadline,
            fmt::format("{} is still busy after {:.3f} s", name_, static_cast<double>(timeout.count()) * 1e-9)};
  }

  Status enqueue_delay(Stream stream, std::uint64_t nanoseconds) override {
    const auto sleep = [](void* data) {
      std::this_thread::sleep_for(std::chrono::nanoseconds(reinterpret_cast<std::uintptr_t>(data)));
    };
    return call(api_.launch_host_function, native(stream), +sleep, reinterpret_cast<void*>(nanoseconds));
  }

  Result<std::unique_ptr<Event>> create_event() override {
    typename Api::EventHandle handle{};
    constexpr unsigned kWithTiming = 0;
    if (Status status = call(api_.event_create, &handle, kWithTiming); !status.ok()) return status;
    return std::unique_ptr<Event>(std::make_unique<GpuEvent<Api>>(api_, handle));
  }

  Status record(Event& event, Stream stream) override {
    if (Status status = refuse_while_capturing(stream, "record"); !status.ok()) return status;
    auto& gpu_event = static_cast<GpuEvent<Api>&>(event);
    gpu_event.recorded = true;
    return call(api_.event_record, gpu_event.handle(), native(stream));
  }

  Result<double> microseconds_between(Event& start, Event& end) override {
    const auto& from = static_cast<GpuEvent<Api>&>(start);
    const auto& to = static_cast<GpuEvent<Api>&>(end);
    const typename Api::DeviceScope scope(api_, token_);
    if (Status status = scope.status(); !status.ok()) return status;
    float milliseconds = 0;
    auto error = Api::Error::kNotReady;
    if (from.recorded && to.recorded) error = api_.event_elapsed(&milliseconds, from.handle(), to.handle());
    if (error == Api::Error::kNotReady) {
      api_.forget_error();
      return Status(StatusCode::kMisuse,
                    "microseconds_between: an event has not completed; synchronize its stream first");
    }
    if (Status status = api_.status(api_.event_elapsed.symbol, error); !status.ok()) return status;
    return milliseconds * 1e3;
  }

  Result<Kernel> kernel(std::string_view name) override {
    std::lock_guard lock(mutex_);
    auto found = kernels_.find(name);
    if (found == kernels_.end()) {
      if (Status status = load(std::string(name)); !status.ok()) return status;
      found = kernels_.find(name);
    }
    return Kernel{found->second.get(), found->second->args_bytes, found->first};
  }

  Status launch(const Kernel& kernel, const LaunchConfig& config, const void* args, std::size_t args_bytes,
                Stream stream) override {
    Result<int> resident = blocks_per_multiprocessor(kernel, config.threads, config.shared_bytes);
    if (!resident.ok()) return resident.status();
    if (Status status = check_grid(kernel, config, args_bytes, *resident, shape_); !status.ok()) return status;
    void* parameters[] = {const_cast<void*>(args)};  // the driver copies it before it returns
    if (tracing_) {
      if (Status traced = trace_next(kernel.name, config, stream); !traced.ok()) return traced;
    }
    return launch_checked(static_cast<Loaded*>(kernel.handle)->function, config, parameters, stream);
  }

  Result<int> blocks_per_multiprocessor(const Kernel& kernel, int threads, std::size_t shared_bytes) override {
    if (kernel.handle == nullptr) return invalid_argument("kernel is empty: it must come from Device::kernel()");
    Loaded& loaded = *static_cast<Loaded*>(kernel.handle);
    if (Status status = check_block(kernel, threads, shared_bytes, loaded.limits); !status.ok()) return status;
    std::lock_guard lock(mutex_);
    if (loaded.asked_threads != threads || loaded.asked_shared_bytes != shared_bytes) {
      int blocks = 0;
      Status status = call(api_.blocks_per_multiprocessor, &blocks, loaded.function, threads, shared_bytes);
      if (!status.ok()) return status;
      loaded.asked_threads = threads;
      loaded.asked_shared_bytes = shared_bytes;
      loaded.blocks_per_multiprocessor = blocks;
    }
    return loaded.blocks_per_multiprocessor;
  }

  Status begin_capture(Stream stream) override {
    if (stream.handle == nullptr) return invalid_argument("begin_capture: the default stream cannot be captured");
    constexpr int kThreadLocal = 1;  // other host threads (ranks of this process) may still allocate
    return call(api_.stream_begin_capture, native(stream), kThreadLocal);
  }

  Result<std::unique_ptr<Graph>> end_capture(Stream stream) override {
    const typename Api::DeviceScope scope(api_, token_);
    if (Status status = scope.status(); !status.ok()) return status;
    typename Api::GraphHandle graph{};
    if (Status status = api_.call(api_.stream_end_capture, native(stream), &graph); !status.ok()) return status;
    return instantiate(api_, graph);
  }

  Status launch(Graph& graph, Stream stream) override {
    return call(api_.graph_launch, static_cast<GpuGraph<Api>&>(graph).handle(), native(stream));
  }

  Result<std::unique_ptr<Graph>> unordered(const std::vector<Graph*>& graphs) override {
    const typename Api::DeviceScope scope(api_, token_);
    if (Status status = scope.status(); !status.ok()) return status;
    return unordered_graph(api_, graphs);
  }

  Status start_trace(Stream stream) override {
    std::lock_guard lock(mutex_);
    for (const auto module : modules_) {
      void* symbol = nullptr;
      std::size_t bytes = 0;
      if (call(api_.module_global, &symbol, &bytes, module, "farwarp_trace").ok() && bytes == sizeof(TraceBuffer))
        trace_symbols_[module] = symbol;
    }
    if (trace_symbols_.empty())
      return unavailable("the kernels of this build have no stamps: configure it with -DFARWARP_TRACE=ON");
    if (Status status = trace_room_.open(*this, stream); !status.ok()) return status;
    tracing_ = true;
    return {};
  }

  Status stop_trace(Stream stream) override {
    tracing_ = false;
    Status status;
    for (const auto& [module, symbol] : trace_symbols_) {
      if (status.ok()) status = set_trace(symbol, {}, stream);
    }
    return status;
  }

  Result<DeviceTrace> take_trace() override {
    std::lock_guard lock(mutex_);
    return trace_room_.take(*this);
  }

 protected:
  struct Loaded {
    typename Api::FunctionHandle function{};
    std::size_t args_bytes = 0;
    KernelLimits limits;
    // The driver's last answer about residency: most launches ask about the same block as the launch before.
    int asked_threads = 0;
    std::size_t asked_shared_bytes = 0;
    int blocks_per_multiprocessor = 0;
  };

  virtual Status launch_checked(typename Api::FunctionHandle, const LaunchConfig&, void** parameters, Stream) = 0;

  GpuDevice(const Api& api, typename Api::DeviceToken token) : api_(api), token_(token) {}

  /// Calls a driver function with this device current.
  template <class Function, class... Arguments>
  Status call(const Function& function, Arguments... arguments) const {
    const typename Api::DeviceScope scope(api_, token_);
    if (Status status = scope.status(); !status.ok()) return status;
    return api_.call(function, arguments...);
  }

  /// Fills in what the launch checks need: the size of the argument block and the limits.
  virtual Status describe(const KernelInfo& info, Loaded& kernel) = 0;

  Status load_module(const CodeObject& object) {
    Result<std::vector<KernelInfo>> kernels = kernels_of(object);
    if (!kernels.ok()) return kernels.status();
    typename Api::ModuleHandle module{};
    if (Status status = call(api_.module_load, &module, static_cast<const void*>(object.image()->data()));
        !status.ok()) {
      return {status.code(), fmt::format("cannot load the kernels of {} ({}) on {}: {}", object.name, object.arch,
                                         name_, status.message())};
    }
    modules_.push_back(module);
    for (const KernelInfo& kernel : *kernels) homes_[kernel.name] = {module, kernel};
    return {};
  }

  bool has_kernels() const { return !homes_.empty(); }

  /// For the destructor of the derived class, while the device can still be made current.
  void unload_modules() {
    for (const auto module : modules_) (void)call(api_.module_unload, module);
    modules_.clear();
  }

  static Status allocation_error(const Status& status, std::size_t bytes) {
    return {status.code(), fmt::format("cannot allocate {} bytes: {}", bytes, status.message())};
  }

  static typename Api::StreamHandle native(Stream stream) {
    return static_cast<typename Api::StreamHandle>(stream.handle);
  }

  const Api& api_;
  const typename Api::DeviceToken token_;

 private:
  typename Api::Error query(Stream stream) const {
    const typename Api::DeviceScope scope(api_, token_);
    const auto error = api_.stream_query(native(stream));
    if (error == Api::Error::kNotReady) api_.forget_error();
    return error;
  }

  Status refuse_while_capturing(Stream stream, const char* operation) const {
    constexpr int kNotCapturing = 0;
    int capture_status = kNotCapturing;
    if (Status status = call(api_.stream_is_capturing, native(stream), &capture_status); !status.ok()) return status;
    if (capture_status == kNotCapturing) return {};
    return {StatusCode::kMisuse, fmt::format("{} cannot be captured: end the capture of its stream first", operation)};
  }

  /// Before a launch: where it writes its records, in the symbol of its module.
  Status trace_next(const std::string& kernel, const LaunchConfig& config, Stream stream) {
    std::lock_guard lock(mutex_);
    const auto symbol = trace_symbols_.find(homes_.find(kernel)->second.module);
    if (symbol == trace_symbols_.end()) return {};
    const int warp = shape_.traits.warp_size;
    return set_trace(symbol->second, trace_room_.next(kernel, config.blocks, (config.threads + warp - 1) / warp),
                     stream);
  }

  /// The driver copies `to` before it returns.
  Status set_trace(void* symbol, const TraceBuffer& to, Stream stream) {
    return call(api_.copy_to_device, symbol, &to, sizeof(to), native(stream));
  }

  Status load(const std::string& name) {
    const typename Api::DeviceScope scope(api_, token_);
    if (Status status = scope.status(); !status.ok()) return status;
    const auto home = homes_.find(name);
    if (home == homes_.end()) {
      return unavailable(
          fmt::format("no kernel {} among the {} code objects loaded on {}", name, modules_.size(), name_));
    }
    auto loaded = std::make_unique<Loaded>();
    Status status =
        call(api_.module_function, &loaded->function, home->second.module, home->second.info.symbol.c_str());
    if (status.ok()) status = describe(home->second.info, *loaded);
    if (status.ok()) kernels_[name] = std::move(loaded);
    return status;
  }

  std::vector<typename Api::ModuleHandle> modules_;
  // The module of each kernel. Without it, the driver would be asked for the kernel in one module after the other.
  struct Home {
    typename Api::ModuleHandle module;
    KernelInfo info;
  };
  std::map<std::string, Home, std::less<>> homes_;
  std::mutex mutex_;  // of what follows
  std::map<std::string, std::unique_ptr<Loaded>, std::less<>> kernels_;
  // Traces.
  std::atomic<bool> tracing_ = false;
  std::map<typename Api::ModuleHandle, void*> trace_symbols_;
  TraceRoom trace_room_;
};

}  // namespace farwarp
