// For tests: a device whose n-th call fails, to test a failure of one rank alone.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "farwarp/runtime/device.h"

namespace farwarp {

class FaultyDevice final : public Device {
 public:
  explicit FaultyDevice(std::shared_ptr<Device> real) : real_(std::move(real)) {
    ordinal_ = real_->ordinal();
    shape_ = real_->shape();
    name_ = real_->name();
    model_ = real_->model();
  }

  /// Lets call `number`, counted from 1 from now on, fail. Only calls that may fail are counted.
  void fail_call(int number) { left_ = number; }
  void never_drain() { drains_ = false; }
  int released() const { return released_; }

  Status while_current(const std::function<Status()>& calls) override { return real_->while_current(calls); }
  Result<void*> allocate(std::size_t bytes) override {
    if (Status fault = next("allocate"); !fault.ok()) return fault;
    return real_->allocate(bytes);
  }
  void release(void* pointer) override { real_->release(pointer); }
  Result<void*> allocate_host(std::size_t bytes, void** device_pointer) override {
    if (Status fault = next("allocate_host"); !fault.ok()) return fault;
    return real_->allocate_host(bytes, device_pointer);
  }
  void release_host(void* host_pointer) override {
    ++released_;
    real_->release_host(host_pointer);
  }
  Status copy_in(void* destination, const void* host_source, std::size_t bytes, Stream stream) override {
    if (Status fault = next("copy_in"); !fault.ok()) return fault;
    return real_->copy_in(destination, host_source, bytes, stream);
  }
  Status copy_out(void* host_destination, const void* source, std::size_t bytes, Stream stream) override {
    if (Status fault = next("copy_out"); !fault.ok()) return fault;
    return real_->copy_out(host_destination, source, bytes, stream);
  }
  Status fill(void* destination, std::uint8_t byte, std::size_t bytes, Stream stream) override {
    if (Status fault = next("fill"); !fault.ok()) return fault;
    return real_->fill(destination, byte, bytes, stream);
  }
  Result<void*> allocate_shareable(std::size_t bytes, MemoryHandle* handle) override {
    if (Status fault = next("allocate_shareable"); !fault.ok()) return fault;
    return real_->allocate_shareable(bytes, handle);
  }
  Result<void*> import(const MemoryHandle& handle, int owner_ordinal) override {
    if (Status fault = next("import"); !fault.ok()) return fault;
    return real_->import(handle, owner_ordinal);
  }
  void release_import(void* pointer, const MemoryHandle& handle) override { real_->release_import(pointer, handle); }
  void release_shareable(void* pointer, const MemoryHandle& handle) override {
    ++released_;
    real_->release_shareable(pointer, handle);
  }
  std::string sharing_path() const override { return real_->sharing_path(); }
  Result<Stream> create_stream() override {
    if (Status fault = next("create_stream"); !fault.ok()) return fault;
    return real_->create_stream();
  }
  void destroy_stream(Stream stream) override { real_->destroy_stream(stream); }
  Status synchronize(Stream stream, std::uint64_t timeout_ns) override {
    if (Status fault = next("synchronize"); !fault.ok()) return fault;
    return real_->synchronize(stream, timeout_ns);
  }
  Status synchronize_all(std::uint64_t timeout_ns) override {
    const Status drained = real_->synchronize_all(timeout_ns);
    return drains_ ? drained : Status(StatusCode::kDeadline, "still busy");
  }
  Status enqueue_delay(Stream stream, std::uint64_t nanoseconds) override {
    return real_->enqueue_delay(stream, nanoseconds);
  }
  Result<std::unique_ptr<Event>> create_event() override { return real_->create_event(); }
  Status record(Event& event, Stream stream) override { return real_->record(event, stream); }
  Result<double> microseconds_between(Event& start, Event& end) override {
    return real_->microseconds_between(start, end);
  }
  Result<Kernel> kernel(std::string_view name) override {
    if (Status fault = next("kernel"); !fault.ok()) return fault;
    return real_->kernel(name);
  }
  Status launch(const Kernel& kernel, const LaunchConfig& config, const void* args, std::size_t args_bytes,
                Stream stream) override {
    return real_->launch(kernel, config, args, args_bytes, stream);
  }
  Result<int> blocks_per_multiprocessor(const Kernel& kernel, int threads, std::size_t shared_bytes) override {
    return real_->blocks_per_multiprocessor(kernel, threads, shared_bytes);
  }
  Status begin_capture(Stream stream) override { return real_->begin_capture(stream); }
  Result<std::unique_ptr<Graph>> end_capture(Stream stream) override { return real_->end_capture(stream); }
  Status launch(Graph& graph, Stream stream) override { return real_->launch(graph, stream); }
  Result<std::unique_ptr<Graph>> unordered(const std::vector<Graph*>& graphs) override {
    return real_->unordered(graphs);
  }

 protected:
  Result<TensorMap> encode_checked(const TensorMapDesc& desc) const override { return real_->encode(desc); }

 private:
  Status next(const char* call) {
    if (left_ == 0 || --left_ > 0) return {};
    return {StatusCode::kOutOfMemory, std::string("a fault of the test in ") + call};
  }

  std::shared_ptr<Device> real_;
  int left_ = 0;
  bool drains_ = true;
  int released_ = 0;
};

}  // namespace farwarp
