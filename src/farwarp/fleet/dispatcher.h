// How a token's tasks reach workers.
#pragma once

#include <cstdint>
#include <string_view>

namespace farwarp {

/// How a token's tasks are dispatched. All give the same bits; calls of one decoder may use different ones.
enum class FleetDispatcher : std::uint8_t {
  /// one launch for all tokens; each worker has its list of tasks (kernels: PacketDispatcher, or StreamDispatcher if
  /// vectors stream)
  kStatic,
  kGraph,  ///< one launch for each step of each token: the same tasks, for comparison
  /// one launch for all tokens; each XCD's scheduler hands its workers a step at a time. Where workers have no loading
  /// thread (AMD)
  kGang,
};

constexpr std::string_view name_of(FleetDispatcher dispatcher) {
  return dispatcher == FleetDispatcher::kStatic ? "static" : dispatcher == FleetDispatcher::kGraph ? "graph" : "gang";
}

}  // namespace farwarp
