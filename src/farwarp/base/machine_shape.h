// The machine as plans see it. Plans never read target constants; they take these by value, so that a plan for any
// machine can be computed and printed anywhere.
#pragma once

#include <cstdint>
#include <string_view>

#include "farwarp/base/fp8.h"

namespace farwarp {

enum class TargetKind : std::uint8_t { kCuda, kHip, kEmuSm90, kEmuGfx942 };

constexpr std::string_view name_of(TargetKind target) {
  switch (target) {
    case TargetKind::kCuda: return "cuda";
    case TargetKind::kHip: return "hip";
    case TargetKind::kEmuSm90: return "emu_sm90";
    case TargetKind::kEmuGfx942: return "emu_gfx942";
  }
  return "?";
}
constexpr bool is_emulated(TargetKind target) {
  return target == TargetKind::kEmuSm90 || target == TargetKind::kEmuGfx942;
}

/// Which instructions multiply matrices: warpgroups on tiles in shared memory (Hopper), or waves on registers (CDNA).
enum class MatrixUnit : std::uint8_t { kWgmma, kMfma };

/// What the code of a target can do; the same on every device of the target.
struct TargetTraits {
  int warp_size = 32;               ///< threads that run in lockstep: 32 (NVIDIA warp) or 64 (AMD wave)
  bool bulk_copy = false;           ///< asynchronous bulk copies between shared and global memory
  std::int64_t shared_bytes = 0;    ///< shared memory one block may use
  int max_threads = 1024;           ///< threads of one block
  Fp8Format fp8 = Fp8Format::kOcp;  ///< the format of its e4m3 conversions
  MatrixUnit matrix_unit = MatrixUnit::kWgmma;
  int most_clustered = 1;  ///< blocks of the largest cluster; 1: no clusters
};

inline constexpr int kMaxXcds = 16;  ///< that xcc() can tell apart

/// One device and its links, as far as plans depend on them.
struct MachineShape {
  TargetKind target = TargetKind::kEmuSm90;
  TargetTraits traits;
  int multiprocessors = 8;  ///< SMs (NVIDIA) or CUs (AMD): so many blocks of any allowed size are resident together
  int xcds = 1;             ///< dies over which consecutive blocks are distributed in turn (AMD MI300X: 8)
};

/// AMD: 64 KB of shared memory minus the 128 bytes that block_any() uses, which include the alignment of the rest.
/// kHip: the traits of gfx942; gfx950 differs in its e4m3, which is OCP's.
constexpr TargetTraits traits_of(TargetKind target) {
  const bool sm90 = target == TargetKind::kCuda || target == TargetKind::kEmuSm90;
  return sm90 ? TargetTraits{32, true, 227 * 1024, 1024, Fp8Format::kOcp, MatrixUnit::kWgmma, 8}
              : TargetTraits{64, false, 64 * 1024 - 128, 1024, Fp8Format::kFnuz, MatrixUnit::kMfma, 1};
}

}  // namespace farwarp
