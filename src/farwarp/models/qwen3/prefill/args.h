// The arguments of the kernels of a prefill that are neither gemm's nor attention's.
#pragma once

#include <cstdint>

#include "farwarp/models/qwen3/decode/args.h"

namespace farwarp::qwen3 {

inline constexpr int kPrefillThreads = 256;

/// Of a chunk: consecutive tokens of a prompt, a row each. All matrices are bf16, by rows; a kernel reads what it
/// needs.
struct PrefillArgs {
  Args model;  ///< the decoder's
  std::int32_t layer;
  std::int32_t column;           ///< of the sequence
  std::int32_t first;            ///< position of row 0
  std::int32_t rows;             ///< of the chunk; the matrices may have more, whose numbers mean nothing
  std::int32_t prompt;           ///< tokens of the prompt: the last one is of no chunk
  fleet::MatrixShape matrix;     ///< to be unpacked
  std::int64_t weights;          ///< this matrix, in bytes from the model's weights
  std::int64_t norm;             ///< bf16 [hidden], in bytes from the model's weights
  std::uint16_t* unpacked;       ///< [16 * matrix.tiles][256 * matrix.slices]
  std::uint16_t* x;              ///< [rows][hidden]: x or middle, the later one
  std::uint16_t* normed;         ///< [rows][hidden]
  std::uint16_t* qkv;            ///< [rows][query_heads + 2 * kv_heads][head_dim]
  const std::uint16_t* product;  ///< [rows][hidden]: of out or down; null: x becomes the tokens' embeddings
  std::uint16_t* gate_up;        ///< [rows][2 * intermediate]: 8 of gate, the same 8 of up, and so on
  std::uint16_t* activated;      ///< [rows][intermediate]
  std::uint16_t* keys;           ///< [16 * max_pages][kv_heads][head_dim]: of the sequence, from position 0 on
  std::uint16_t* values;         ///< the same
  std::int32_t* counts;          ///< 0 and `rows`, the chunk's first and last row in q, and the sequence's keys
};

}  // namespace farwarp::qwen3
