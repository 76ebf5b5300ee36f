// What a machine can do at most. A kernel's floor is computed from these figures.
#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "farwarp/base/status.h"

namespace farwarp {

/// Measured by the probes (probes/README.md says how). A figure that is 0 is unknown.
struct Ceilings {
  std::string device;  ///< its name, as Device::model() returns it: "NVIDIA H200"
  int ranks = 0;       ///< devices that took part
  std::string source;  ///< "measured 2026-11-20" or "preset: ..."; empty: nothing is known

  double hbm_read_gb_s = 0;
  double hbm_copy_gb_s = 0;  ///< counts the bytes read and the bytes written
  // One direction of one pair while the other devices send nothing.
  double link_pair_store_gb_s = 0;
  double link_pair_load_gb_s = 0;
  double link_pair_bulk_gb_s = 0;
  // Sent by each device while all send to all.
  double link_all_store_gb_s = 0;
  double link_all_bulk_gb_s = 0;
  double packet_us = 0;   ///< one way
  double flag_us = 0;     ///< one way
  double barrier_us = 0;  ///< of all ranks, inside a kernel
  // Of an empty kernel, one after the other.
  double launch_us = 0;
  double graph_launch_us = 0;
  double mma_bf16_tflops_short = 0;      ///< while the clocks are high
  double mma_bf16_tflops_sustained = 0;  ///< after power has reduced the clocks
  // Of a decoder: without dependencies, and if no matrix is used before all blocks have ended the one before.
  double weights_gb_s = 0;
  double weights_with_edges_gb_s = 0;

  bool measured() const { return source.starts_with("measured"); }
};

/// One figure: its name in files, its title in tables, its unit.
struct CeilingField {
  const char* key;
  const char* title;
  const char* unit;
  double Ceilings::*value;
};
/// All of them, in the order of tables.
std::span<const CeilingField> ceiling_fields();

/// The kept measurement of this machine, else the preset of a device of that name (for any number of ranks), else
/// empty. A file that cannot be used is ignored, with a line on stderr.
Ceilings ceilings_of(const std::string& device_name, int ranks);

/// Writes them to ceilings_file(), for ceilings_of(). An error names the path.
Status save_ceilings(const Ceilings& ceilings);

/// farwarp/ceilings-<device>-x<ranks>.json in $XDG_CACHE_HOME, or in $HOME/.cache; kUnavailable if neither is set.
Result<std::filesystem::path> ceilings_file(const std::string& device_name, int ranks);

}  // namespace farwarp
