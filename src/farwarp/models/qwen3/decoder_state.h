// What a Qwen3Decoder holds, and how its kernels are launched.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "farwarp/base/sizes.h"
#include "farwarp/fleet/runtime.h"
#include "farwarp/models/qwen3/decode/args.h"
#include "farwarp/models/qwen3/prefill/prefill.h"
#include "farwarp/models/qwen3/qwen3.h"
#include "farwarp/runtime/device_memory.h"
#include "farwarp/world/host/opened_operator.h"

namespace farwarp {

namespace qwen3 {
inline constexpr double kLog2OfE = 1.4426950408889634;
}  // namespace qwen3

struct Qwen3Decoder::State {
  World* world = nullptr;
  Qwen3Plan plan;
  OpenedOperator opened;  ///< kernels as kernel_names() has them; one buffer
  DeviceMemory weights, embedding, cache, rotations, page_table, prompts, state;
  fleet::Runtime runtime;
  qwen3::Args args{};
  std::optional<qwen3::Prefill> prefill;
  std::vector<std::int64_t> positions;  ///< of each column, at most; -1: no sequence
  std::uint32_t recoveries = 0;         ///< of the World, that this decoder knows of
  std::vector<int> prompt_tokens;       ///< of each column

  /// In the order of `opened`: decode, pack, those of a prefill, gang; the last two only if the plan has them.
  static std::vector<std::string> kernel_names(const Qwen3Plan& plan);
  Status allocate(Stream stream);
  Status set_tables(Stream stream);
  void set_args();
  /// No column has a sequence any more.
  Status end_all(Stream stream);
  /// Before a call: if the World has been recovered since the last one, all sequences have ended.
  Status follow_recovery(Stream stream);
  Status create_prefill(Stream stream);
};

}  // namespace farwarp
