// Desc + machine -> plan of a MoE layer. Pure: no device, no World.
#pragma once

#include <cstdint>
#include <string>

#include "farwarp/base/expert_ranks.h"
#include "farwarp/base/half.h"
#include "farwarp/base/machine_shape.h"
#include "farwarp/base/status.h"
#include "farwarp/tile/activation.h"

namespace farwarp {

/// A MoE layer's routed experts, from tokens and their top-k experts to weighted sums (moe_layer.h).
struct MoeLayerDesc {
  int num_experts = 0;  ///< of all ranks, at most 384 of one. Expert e lives on rank floor(e * ranks / num_experts)
  int experts_per_token = 0;                    ///< 1 to 32
  int hidden = 0;                               ///< a multiple of 8
  int intermediate = 0;                         ///< a multiple of 8
  int max_tokens = 0;                           ///< per rank and call, 1 to 65535
  DType dtype = DType::kBf16;                   ///< kBf16 or kF16
  DType index_type = DType::kI32;               ///< kI32 or kI64
  Activation activation = Activation::kSwiGlu;  ///< kSwiGlu or kClampedSwiGlu
  bool has_bias = false;                        ///< of both products
  /// Most top-k entries that this rank's experts may get in a call. If more arrive, the call ends in kCapacity. 0: the
  /// worst case, ranks * max_tokens * experts_per_token. The plan's memory grows with it.
  int max_rows = 0;
  int max_sms = 0;       ///< most blocks of a launch; 0: all multiprocessors
  int tile_rows = 0;     ///< rows of an expert in a tile: 64 or 128; 0: the plan's choice
  int tile_columns = 0;  ///< rows of w1 and of w2 in a tile: 128, and with 128 rows 256; 0: the plan's choice
};

/// Offsets of the parts of the workspace, in bytes: of a buffer that begins as zeros, and of one that begins as all
/// ones, which World::recover() restores.
struct MoeLayerWorkspace {
  // What peers write; each part twice, by the parity of the epoch.
  std::int64_t headers = 0;    ///< packets [2][ranks]: the number of a source's tokens
  std::int64_t entries = 0;    ///< packets [2][ranks][max_tokens * k]: a source's experts and weights
  std::int64_t row_flags = 0;  ///< cells [2][ranks][max_tokens]
  std::int64_t rows = 0;       ///< [2][ranks][max_tokens][hidden]: rows of x
  // This rank's own.
  std::int64_t counts = 0;     ///< u32 [max_slices][local experts]: a slice's entries for each expert
  std::int64_t row_ids = 0;    ///< i32 [tiles * tile rows]: of each row of an expert, source * max_tokens + token
  std::int64_t positions = 0;  ///< i32 [ranks * max_tokens * k]: of each entry for this rank, its row of h and y
  std::int64_t h = 0;          ///< [tiles * tile rows][intermediate]: activated products with w1
  std::int64_t y = 0;          ///< [tiles * tile rows][hidden]: rows of x, then in their place products with w2
  std::int64_t bytes = 0;      ///< of all parts above
  // The second buffer.
  std::int64_t returns = 0;   ///< [2][max_tokens][ranks][hidden]: sums that owners return, as words
  std::int64_t counters = 0;  ///< u32 [2][moe_layer::counters_of()]
  std::int64_t ones_bytes = 0;
};

struct MoeLayerPlan {
  MoeLayerDesc desc;
  int ranks = 0;
  std::string kernel;
  int rows = 0, columns = 0;  ///< of a tile: of an expert's rows, and of w1 or w2
  int max_local_experts = 0;
  std::int64_t max_rows = 0;                    ///< top-k entries for one rank
  std::int64_t row_tiles = 0;                   ///< most tiles that hold them
  int steps_of_hidden = 0, steps_of_inter = 0;  ///< of K
  int h_columns = 0, y_columns = 0;             ///< tiles of columns of h and of y
  int max_slices = 0;                           ///< most blocks that count entries
  int max_parts = 0;                            ///< most parts of a row, which different warps add up
  int blocks = 0, threads = 0;
  std::int64_t shared_bytes = 0;
  MoeLayerWorkspace workspace;

  std::int64_t memory_bytes() const { return workspace.bytes + workspace.ones_bytes; }
  std::string to_string() const;
};

/// kInvalidArgument names the field, its value and what is allowed.
Result<MoeLayerPlan> plan_moe_layer(const MoeLayerDesc& desc, const MachineShape& shape, int ranks);

}  // namespace farwarp
