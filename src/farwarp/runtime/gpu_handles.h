// Events and graphs of GPUs. `Api` as in gpu_device.h.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

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
  /// Takes both.
  GpuGraph(const Api& api, typename Api::GraphHandle graph, typename Api::GraphExecHandle handle)
      : api_(api), graph_(graph), handle_(handle) {}
  ~GpuGraph() override {
    api_.graph_exec_destroy(handle_);
    api_.graph_destroy(graph_);
  }
  Result<std::size_t> launches() const override {
    std::size_t count = 0;
    const Status status = api_.call(api_.graph_nodes, graph_, nullptr, &count);
    if (!status.ok()) return status;
    return count;
  }
  typename Api::GraphExecHandle handle() const { return handle_; }
  typename Api::GraphHandle graph() const { return graph_; }

 private:
  const Api& api_;
  typename Api::GraphHandle graph_;
  typename Api::GraphExecHandle handle_;
};

/// Takes `graph`.
template <class Api>
Result<std::unique_ptr<Graph>> instantiate(const Api& api, typename Api::GraphHandle graph) {
  typename Api::GraphExecHandle executable{};
  if (Status status = api.call(api.graph_instantiate, &executable, graph, 0ull); !status.ok()) {
    api.graph_destroy(graph);
    return status;
  }
  return std::unique_ptr<Graph>(std::make_unique<GpuGraph<Api>>(api, graph, executable));
}

/// See Device::unordered().
template <class Api>
Result<std::unique_ptr<Graph>> unordered_graph(const Api& api, const std::vector<Graph*>& graphs) {
  typename Api::GraphHandle whole{};
  if (Status status = api.call(api.graph_create, &whole, 0u); !status.ok()) return status;
  for (Graph* graph : graphs) {
    typename Api::GraphNodeHandle node{};
    const Status added = api.call(api.graph_add_child, &node, whole, nullptr, std::size_t{0},
                                  static_cast<GpuGraph<Api>&>(*graph).graph());
    if (added.ok()) continue;
    api.graph_destroy(whole);
    return added;
  }
  return instantiate(api, whole);
}

}  // namespace farwarp
