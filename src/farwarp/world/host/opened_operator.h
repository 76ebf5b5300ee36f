// What an operator holds in a World: its slot, its kernels and its buffers, from create() until close(), once.
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
    Status plan{};                            ///< whether this rank has a plan; if not, the rest is not looked at
    std::uint64_t configuration = 0;          ///< the same on all ranks, or all fail with kMismatch
    std::vector<std::string> kernels;
    std::vector<Buffer> buffers;
  };

  OpenedOperator() = default;  ///< not open
  OpenedOperator(OpenedOperator&& other) noexcept { *this = std::move(other); }
  OpenedOperator& operator=(OpenedOperator&& other) noexcept;
  /// Local: gives nothing back.
  ~OpenedOperator() = default;

  /// Collective, also for a rank that has no plan or lacks a kernel. Fails on all ranks alike, in the words of the first rank that failed;
  /// a rank's own failure is returned as it is. What was taken until then is given back.
  static Result<OpenedOperator> open(World& world, const Desc& desc);
  /// Collective; the streams that used it must be idle. kMisuse, and nothing else happens, if it is not open.
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

/// For every call of an operator: kMisuse if the object was moved from (it has no state) or closed. `State` has an OpenedOperator
/// `opened`.
template <class State>
Status check_open(std::string_view name, const std::unique_ptr<State>& state) {
  if (state == nullptr)
    return {StatusCode::kMisuse, std::string(name) + " was moved from: call the object it was moved to"};
  if (!state->opened.is_open()) return {StatusCode::kMisuse, std::string(name) + " was called after close()"};
  return {};
}

/// close() of an operator.
template <class State>
Status close_opened(std::string_view name, const std::unique_ptr<State>& state) {
  if (Status open = check_open(name, state); !open.ok()) return open;
  return state->opened.close();
}

}  // namespace farwarp
