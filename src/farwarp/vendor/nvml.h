// What NVIDIA's management library (NVML) says about the GPUs, as whether other processes use them. Opened at run time.
#pragma once

#include <string>

#include "farwarp/base/status.h"

namespace farwarp::nvml {

/// Empty if no GPU of this machine is in use, or at the latest after 1.5 seconds no longer: what has just ended counts
/// for a second. Else says which one is, or why that cannot be found out.
std::string busy_gpus();

/// "580.95.05"; empty if NVML does not say.
std::string driver_version();

/// The highest clocks of the first GPU: "SM 1980 MHz, memory 3201 MHz"; empty if NVML does not say.
std::string highest_clocks();

/// The clock of a GPU's multiprocessors.
class SmClock {
 public:
  /// `bus_id`: as the CUDA driver gives it, "0000:19:00.0". kUnavailable says what is missing.
  static Result<SmClock> open(const std::string& bus_id);
  /// At this moment, in MHz; 0 if NVML does not say.
  double mhz() const;

 private:
  explicit SmClock(void* device) : device_(device) {}
  void* device_;
};

}  // namespace farwarp::nvml
