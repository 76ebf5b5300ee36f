// What an operator holds in a World from open() until close(): its slot, its kernels and its buffers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "farwarp/base/status.h"
#include "farwarp/world/host/world.h"

namespace farwarp {

class OpenedOperator {
 public:
  struct Buffer {
    std::int64_t bytes = 0;  ///< 0: none
    std::uint8_t fill = 0;
  };
  struct Desc {
    std::string name;
    std::span<const char* const> site_names;  ///< of its waits, as errors name them
    Status plan{};                            ///< not ok if this rank has no plan; the rest is then ignored
    std::uint64_t configuration = 0;          ///< the same on all ranks, or all fail with kMismatch
    std::vector<std::string> kernels;
    std::vector<Buffer> buffers;
  };

  OpenedOperator() = default;  ///< not open
  OpenedOperator(OpenedOperator&& other) noexcept { *this = std::move(other); }
  OpenedOperator& operator=(OpenedOperator&& other) noexcept;
  /// Local: does not close.
  ~OpenedOperator() = default;

  /// Collective, also for a rank that has no plan or lacks a kernel. If one rank fails, all fail: a failed rank returns
  /// its own failure, the others return that of the first failed rank. What was taken until then is released.
  static Result<OpenedOperator> open(World& world, const Desc& desc);
  /// Collective; the streams that used it must be idle. If it is not open, returns kMisuse and does nothing.
  Status close();

  bool is_open() const { return slot_ >= 0; }
  std::uint32_t slot() const { return static_cast<std::uint32_t>(slot_); }
  /// In the order of Desc::kernels.
  const Kernel& kernel(std::size_t index) const { return kernels_[index]; }
  /// In the order of Desc::buffers; one of no bytes has offset 0.
  const SymmetricBuffer& buffer(std::size_t index) const { return buffers_[index]; }

 private:
  World* world_ = nullptr;
  int slot_ = -1;
  std::vector<Kernel> kernels_;
  std::vector<SymmetricBuffer> buffers_;
};

/// Every call of an operator begins with it. kMisuse if the object was moved from (`state` is null) or closed. `State`
/// has a member `OpenedOperator opened`.
template <class State>
Status check_open(std::string_view name, const std::unique_ptr<State>& state) {
  if (state == nullptr)
    return {StatusCode::kMisuse, std::string(name) + " was moved from: call the object it was moved to"};
  if (!state->opened.is_open()) return {StatusCode::kMisuse, std::string(name) + " was called after close()"};
  return {};
}

/// create() of an operator. Collective, also for a rank whose plan failed: `desc` is then that of a default plan.
/// `State` has also the members `World* world` and `plan`.
template <class State, class Plan>
Result<std::unique_ptr<State>> open_state(World& world, const Result<Plan>& plan, OpenedOperator::Desc desc) {
  desc.plan = plan.status();
  auto opened = OpenedOperator::open(world, desc);
  if (!opened.ok()) return opened.status();
  auto state = std::make_unique<State>();
  state->world = &world;
  state->plan = *plan;
  state->opened = std::move(*opened);
  return state;
}

/// close() of an operator.
template <class State>
Status close_opened(std::string_view name, const std::unique_ptr<State>& state) {
  if (Status open = check_open(name, state); !open.ok()) return open;
  return state->opened.close();
}

}  // namespace farwarp
