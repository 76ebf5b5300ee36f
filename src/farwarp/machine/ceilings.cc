#include "farwarp/machine/ceilings.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "farwarp/base/json.h"
#include "farwarp/machine/kept_file.h"

namespace farwarp {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr int kSchemaVersion = 1;

constexpr CeilingField kFields[] = {
    {"hbm_read_gb_s", "memory, read", "GB/s", &Ceilings::hbm_read_gb_s},
    {"hbm_copy_gb_s", "memory, copy (read + write)", "GB/s", &Ceilings::hbm_copy_gb_s},
    {"link_pair_store_gb_s", "link, one pair, stores", "GB/s", &Ceilings::link_pair_store_gb_s},
    {"link_pair_load_gb_s", "link, one pair, loads", "GB/s", &Ceilings::link_pair_load_gb_s},
    {"link_pair_bulk_gb_s", "link, one pair, bulk copies", "GB/s", &Ceilings::link_pair_bulk_gb_s},
    {"link_all_store_gb_s", "links, all to all, stores, sent per device", "GB/s", &Ceilings::link_all_store_gb_s},
    {"link_all_bulk_gb_s", "links, all to all, bulk copies, sent per device", "GB/s", &Ceilings::link_all_bulk_gb_s},
    {"packet_us", "packet, one way", "us", &Ceilings::packet_us},
    {"flag_us", "flag, one way", "us", &Ceilings::flag_us},
    {"barrier_us", "barrier of all ranks, in a kernel", "us", &Ceilings::barrier_us},
    {"launch_us", "launch of an empty kernel", "us", &Ceilings::launch_us},
    {"graph_launch_us", "launch of a graph of one empty kernel", "us", &Ceilings::graph_launch_us},
    {"mma_bf16_tflops_short", "bf16 matrix rate, short", "TFLOP/s", &Ceilings::mma_bf16_tflops_short},
    {"mma_bf16_tflops_sustained", "bf16 matrix rate, sustained", "TFLOP/s", &Ceilings::mma_bf16_tflops_sustained},
    {"weights_gb_s", "a decoder's weights", "GB/s", &Ceilings::weights_gb_s},
    {"weights_with_edges_gb_s", "a decoder's weights, with its dependencies", "GB/s",
     &Ceilings::weights_with_edges_gb_s},
};

// Measured in 2026-11 on 8x H200, driver 580, CUDA 13.0, by kernels written for this before the probes existed. Where a
// range was seen, the figure is its upper end, because these are ceilings.
Ceilings h200() {
  Ceilings preset;
  preset.device = "NVIDIA H200";
  preset.ranks = 8;
  preset.source = "preset: 8x H200, 2026-11";
  preset.hbm_read_gb_s = 4760;  // 4655 to 4760
  preset.hbm_copy_gb_s = 3920;
  preset.link_pair_store_gb_s = 368;  // 16 bytes per thread, 132 blocks of 1024
  preset.link_pair_load_gb_s = 372;   // the same
  preset.link_all_store_gb_s = 343;   // 1 GB; 308 with 16 MB, 93 with 1 MB
  preset.link_all_bulk_gb_s = 339;    // 16 KB pieces, 132 blocks
  preset.packet_us = 0.75;
  preset.flag_us = 1.23;  // st.release.sys, ld.acquire.sys
  preset.barrier_us = 1.76;
  preset.launch_us = 4.1;
  preset.mma_bf16_tflops_short = 800;      // cuBLAS, 8192^3, random data: 770 to 800
  preset.mma_bf16_tflops_sustained = 730;  // cuBLAS in a graph, rotating inputs, large shapes: 640 to 730
  return preset;                           // bulk copies of one pair, launches of graphs: not measured then
}

Ceilings preset_of(const std::string& device_name) {
  const Ceilings preset = h200();
  return device_name == preset.device ? preset : Ceilings{};
}

Result<Ceilings> parse(const std::string& text, const std::string& device_name, int ranks) {
  const auto damaged = [](const std::string& what) { return invalid_argument(what); };
  const auto parsed = parse_json(text);
  if (!parsed.ok()) return parsed.status();
  const json& root = *parsed;
  if (!root.is_object()) return damaged("it is no JSON object");
  Ceilings ceilings;
  try {
    const json &version = root.at("schema_version"), &of_ranks = root.at("ranks");
    if (!version.is_number_integer() || version != kSchemaVersion) return damaged("it is of another schema version");
    if (!of_ranks.is_number_integer() || of_ranks != of_ranks.get<int>())
      return damaged(fmt::format("ranks is {}", of_ranks.dump()));
    root.at("device").get_to(ceilings.device);
    ceilings.ranks = root.at("ranks") == json(ranks) ? ranks : 0;
    root.at("source").get_to(ceilings.source);
    for (const CeilingField& field : ceiling_fields()) {
      if (!root.at(field.key).is_number()) return damaged(fmt::format("{} is no number", field.key));
      root.at(field.key).get_to(ceilings.*field.value);
    }
  } catch (const json::exception& error) {
    return damaged(error.what());
  }
  // Two names can share a file name.
  if (ceilings.device != device_name || ceilings.ranks != ranks)
    return damaged(fmt::format("it is of {} x {}", ceilings.ranks, ceilings.device));
  if (!ceilings.measured()) return damaged(fmt::format("source is '{}', not a measurement", ceilings.source));
  for (const CeilingField& field : ceiling_fields()) {
    const double value = ceilings.*field.value;
    if (!std::isfinite(value) || value < 0) return damaged(fmt::format("{} is {}", field.key, value));
  }
  return ceilings;
}

json to_json(const Ceilings& ceilings) {
  json root = {{"schema_version", kSchemaVersion},
               {"device", ceilings.device},
               {"ranks", ceilings.ranks},
               {"source", ceilings.source}};
  for (const CeilingField& field : ceiling_fields()) root[field.key] = ceilings.*field.value;
  return root;
}

}  // namespace

std::span<const CeilingField> ceiling_fields() { return kFields; }

Result<fs::path> ceilings_file(const std::string& device_name, int ranks) {
  return kept_file("ceilings", device_name, ranks);
}

Ceilings ceilings_of(const std::string& device_name, int ranks) {
  const auto path = ceilings_file(device_name, ranks);
  std::error_code error;
  if (!path.ok() || !exists(std::filesystem::symlink_status(*path, error))) return preset_of(device_name);
  const auto text = read_text(*path);
  const auto kept = text.ok() ? parse(*text, device_name, ranks) : Result<Ceilings>(text.status());
  if (kept.ok()) return *kept;
  std::fprintf(stderr, "farwarp: ignoring %s: %s\n", path->c_str(), kept.status().message().c_str());
  return preset_of(device_name);
}

Status save_ceilings(const Ceilings& ceilings) {
  const auto path = ceilings_file(ceilings.device, ceilings.ranks);
  if (!path.ok()) return path.status();
  return replace_text(*path, to_json(ceilings).dump(2, ' ', false, json::error_handler_t::replace) + '\n');
}

}  // namespace farwarp
