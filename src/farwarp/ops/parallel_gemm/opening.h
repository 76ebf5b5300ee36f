// What create() of every parallel product does alike.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "farwarp/ops/parallel_gemm/desc.h"
#include "farwarp/world/host/opened_operator.h"

namespace farwarp::parallel_gemm {

/// An operator's holdings in a World.
struct Opening : OpenedOperator {
  Kernel kernel;

  const SymmetricBuffer& workspace() const { return buffer(0); }
  const SymmetricBuffer& words() const { return buffer(1); }  ///< world/device/words.dev.h
};

/// What to open. `plan` is this rank's success in planning; without it, `kernel` and the bytes are not looked at.
struct OpeningDesc {
  const char* name;
  std::span<const char* const> site_names;
  Status plan;
  std::string kernel;
  std::int64_t workspace_bytes;
  std::int64_t word_bytes = 0;  ///< of a memory that begins as all ones, and does so again behind recover()
};

/// Collective; kMismatch on all ranks where their Descs differ. A rank that cannot go on takes part, and all fail for its reason.
Result<Opening> open(World& world, Kind kind, const ParallelGemmDesc& desc, const OpeningDesc& what);

}  // namespace farwarp::parallel_gemm
