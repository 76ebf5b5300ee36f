#include "farwarp/machine/data_sheets.h"

#include <fmt/format.h>

namespace farwarp {
namespace {

// Links are stated in both directions together, and halved here. AMD's nodes of eight connect each pair of devices.
constexpr DataSheet kSheets[] = {
    {"MI300X", "AMD Instinct MI300X data sheet: 5.3 TB/s; 1307.4 TFLOP/s of bf16; seven links of 128 GB/s", 5300,
     1307.4, 64, false},
    {"MI350X",
     "AMD Instinct MI350X data sheet: 8 TB/s; 256 CUs at 2.2 GHz, 4096 FLOP of bf16 per cycle; seven links of 153.6 "
     "GB/s",
     8000, 2306.9, 76.8, false},
    {"H100", "NVIDIA H100 SXM data sheet: 3.35 TB/s; 989.4 TFLOP/s of bf16; NVLink 900 GB/s", 3350, 989.4, 450, true},
    {"B200", "NVIDIA HGX B200 data sheet: 8 TB/s; 2250 TFLOP/s of bf16; NVLink 1.8 TB/s", 8000, 2250, 900, true},
};

}  // namespace

std::span<const DataSheet> data_sheets() { return kSheets; }

Ceilings ceilings_of(const DataSheet& sheet, int ranks) {
  Ceilings ceilings;
  ceilings.device = sheet.name;
  ceilings.ranks = ranks;
  ceilings.source = fmt::format("model: {}", sheet.source);
  ceilings.hbm_read_gb_s = ceilings.hbm_copy_gb_s = sheet.hbm_gb_s;
  ceilings.link_pair_store_gb_s = ceilings.link_pair_load_gb_s = ceilings.link_pair_bulk_gb_s = sheet.link_gb_s;
  ceilings.link_all_store_gb_s = ceilings.link_all_bulk_gb_s =
      sheet.switched ? sheet.link_gb_s : (ranks - 1) * sheet.link_gb_s;
  ceilings.mma_bf16_tflops_short = ceilings.mma_bf16_tflops_sustained = sheet.bf16_tflops;
  return ceilings;
}

}  // namespace farwarp
