// Names of the memory model, shared by host and device. substrate/contract.md says what they mean.
#pragma once

#include <cstdint>

namespace farwarp {

enum class Order : std::uint8_t { relaxed, acquire, release, acq_rel };
/// From narrow to wide. chiplet: the blocks of one XCD, which share its L2 (AMD); the device on targets with one L2.
enum class Scope : std::uint8_t { block, chiplet, device, system };

/// How long the caller expects to need a cache line. Only a hint: it does not affect coherence.
enum class Cache : std::uint8_t {
  normal,
  streaming,  ///< read or written once: should not displace other lines
  keep,       ///< will be read again soon: should stay
};

}  // namespace farwarp
