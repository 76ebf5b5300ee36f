// Caches and memory of a device, as cache_model.h simulates them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "farwarp/base/status.h"

namespace farwarp {

/// bytes 0: the device has no such cache.
struct CacheLevel {
  std::int64_t bytes = 0;
  int ways = 16;
  int line = 128;  ///< bytes
};

/// An XCD stands for any part of a device that has an L2 of its own.
struct CacheMachine {
  std::string name;
  std::string source;  ///< of the figures
  int xcds = 1;
  int cus_per_xcd = 1;
  int resident = 1;             ///< workgroups that a CU executes at once
  int first_xcd = 0;            ///< workgroup w runs on XCD (first_xcd + w) % xcds
  CacheLevel l2;                ///< of each XCD
  CacheLevel memory_side;       ///< of all XCDs together
  bool reads_peer_l2 = false;   ///< a miss of one XCD's L2 is served by another's that has the line, before memory
  double l2_gb_s = 0;           ///< of each XCD
  double memory_side_gb_s = 0;  ///< of all XCDs together; also of reads from a peer's L2
  double hbm_gb_s = 0;
  // From the load to the data, without contention.
  double l2_ns = 0;
  double memory_side_ns = 0;  ///< also of reads from a peer's L2
  double hbm_ns = 0;
  double cu_tflops = 1;  ///< of a CU while its workgroups wait for no data
};

/// mi300x, mi350x, h200.
std::span<const CacheMachine> cache_machine_presets();

/// A preset's name, or the path of a JSON file (a name with '/' or that ends with ".json"). The file has the fields of
/// CacheMachine; l2 and memory_side are objects. Fields that are not given keep the values of the preset that "like"
/// names, or else of CacheMachine. An error names the field, its value and what is allowed.
Result<CacheMachine> find_cache_machine(std::string_view name);
Result<CacheMachine> parse_cache_machine(std::string_view text, std::string_view file);

/// kInvalidArgument names the field, its value and what is allowed.
Status check(const CacheMachine& machine);

}  // namespace farwarp
