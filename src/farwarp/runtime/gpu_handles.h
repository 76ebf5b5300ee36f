// Events and graphs of GPUs. `Api` as in gpu_device.h.
#pragma once

#include <atomic>

#include "farwarp/runtime/device.h"

namespace farwarp {

template <class Api>
class GpuEvent final : public Event {
 public:
  GpuEvent(const Api& api, typename Api::EventHandle handle) : api_(api), handle_(handle) {}
  ~GpuEvent() override { api_.event_destroy(handle_); }
  typename Api::EventHandle handle() const { return handle_; }

  std::atomic<bool> recorded = false;  ///< the driver calls an event that was never recorded an invalid handle

 private:
  const Api& api_;
  typename Api::EventHandle handle_;
};

template <class Api>
class GpuGraph final : public Graph {
 public:
  GpuGraph(const Api& api, typename Api::GraphExecHandle handle) : api_(api), handle_(handle) {}
  ~GpuGraph() override { api_.graph_exec_destroy(handle_); }
  typename Api::GraphExecHandle handle() const { return handle_; }

 private:
  const Api& api_;
  typename Api::GraphExecHandle handle_;
};

}  // namespace farwarp
