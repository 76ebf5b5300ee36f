// What create() and close() of every parallel product do alike.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "farwarp/ops/parallel_gemm/desc.h"
#include "farwarp/world/host/world.h"

namespace farwarp::parallel_gemm {

/// An operator's holdings in a World.
struct Opening {
  int slot = -1;
  SymmetricBuffer workspace;
  SymmetricBuffer words;  ///< world/device/words.dev.h
  Kernel kernel;

  bool is_open() const { return slot >= 0; }
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

/// Collective; kMismatch on all ranks where their Descs differ. A rank that cannot go on takes part in the agreement, so that the others
/// are told and do not wait for it later.
Result<Opening> open(World& world, Kind kind, const ParallelGemmDesc& desc, const OpeningDesc& what);

/// Collective; the streams that used it are idle. kMisuse if it is not open.
Status close(World& world, Opening& opening);

}  // namespace farwarp::parallel_gemm
