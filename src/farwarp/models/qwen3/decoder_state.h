// What a Qwen3Decoder holds, and how its kernels are launched.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "farwarp/models/qwen3/args.h"
#include "farwarp/models/qwen3/prefill.h"
#include "farwarp/models/qwen3/qwen3.h"
#include "farwarp/runtime/device_memory.h"
#include "farwarp/world/host/opened_operator.h"

namespace farwarp {

namespace qwen3 {
inline constexpr std::uint8_t kNoTag = 0xff;  ///< bytes of a tag that no token has
inline constexpr double kLog2OfE = 1.4426950408889634;
inline std::size_t size(std::int64_t value) { return static_cast<std::size_t>(value); }
}  // namespace qwen3

struct Qwen3Decoder::State {
  World* world = nullptr;
  Qwen3Plan plan;
  OpenedOperator opened;  ///< kernels as kernel_names() has them; one buffer
  DeviceMemory weights, embedding, residual, cache, rotations, tasks, lists, page_table, prompts, state;
  DeviceMemory gang_tasks, gang_cells;  ///< of gang
  DeviceMemory phase_cells;             ///< of vectors that stream
  DeviceMemory plain;                   ///< the plain buffers of the graph, or of gang's
  qwen3::Args args{};
  std::optional<qwen3::Prefill> prefill;
  int tasks_of_worker = 0;
  std::vector<std::int64_t> positions;  ///< of each column, at most; -1: no sequence
  std::uint32_t recoveries = 0;         ///< of the World, that this decoder knows of
  std::vector<int> prompt_tokens;       ///< of each column

  /// In the order of `opened`: decode, pack, those of a prefill, gang; the last two only if the plan has them.
  static std::vector<std::string> kernel_names(const Qwen3Plan& plan);
  Status allocate();
  Status set_tables(Stream stream);
  /// Plans a graph's tasks, and copies them to `to`.
  Status set_tasks(const fleet::Graph& graph, const DeviceMemory& to, Stream stream);
  void set_args();
  /// No column has a sequence any more.
  Status end_all(Stream stream);
  /// Before a call: if the World has been recovered since the last one, all sequences have ended.
  Status follow_recovery(Stream stream);
  Status create_prefill(Stream stream);
  Status launch(const qwen3::Args& call, Stream stream) const;
  Status launch_gang(const qwen3::Args& call, Stream stream) const;
};

}  // namespace farwarp
