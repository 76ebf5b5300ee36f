// Names of the memory model, shared by host and device. substrate/contract.md says what they mean.
#pragma once

#include <cstdint>

namespace farwarp {

enum class Order : std::uint8_t { relaxed, acquire, release, acq_rel };
enum class Scope : std::uint8_t { block, device, system };

/// How long the caller expects to need a cache line. Only a hint: it does not affect coherence.
enum class Cache : std::uint8_t {
  normal,
  streaming,  ///< read or written once: should not displace other lines
  keep,       ///< will be read again soon: should stay
};

}  // namespace farwarp
