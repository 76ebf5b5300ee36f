// The inputs of the check and the bench of flash-decode. Every number is a function of the seed and of its place, so a
// rank can compute what other ranks hold.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "farwarp/base/fp8.h"
#include "farwarp/harness/inputs.h"
#include "farwarp/ops/flash_decode/plan.h"

namespace farwarp::decode {

enum class Lengths : std::uint8_t {
  kFull,    ///< as many keys as pages hold
  kRagged,  ///< uniform from 0 to that, with 0, 1, and the most among them; one is three quarters of it or more,
            ///< one is query_tokens
  kShort,   ///< 0 to query_tokens + 1
  kEmpty,   ///< 0
  kGiven,   ///< Problem::given_lengths
};
enum class Logits : std::uint8_t {
  kNormal,  ///< N(0, 1), before the softmax
  kLarge,   ///< N(0, 5000)
};
/// What is wrong with the inputs of a check, in its first call.
enum class Wrong : std::uint8_t { kNothing, kPage, kNegativePage, kLength };

struct Problem {
  FlashDecodeDesc desc;
  int ranks = 1;  ///< that share keys, or have sequences of their own
  std::uint64_t seed = 0;
  Lengths lengths = Lengths::kRagged;
  Logits logits = Logits::kNormal;
  Fp8Format fp8_format = Fp8Format::kOcp;  ///< the device's
  std::vector<int> given_lengths = {};     ///< of each sequence, on each rank

  bool shared_keys() const { return desc.kv_shards > 1; }
  int most_keys() const { return desc.max_pages * desc.page_size; }
  int group() const { return desc.query_heads / desc.kv_heads; }
  bool fp8() const { return desc.kv_dtype == KvDType::kFp8; }
};

/// The numbers of one call.
class Inputs {
 public:
  enum class Operand : std::uint8_t { kQ, kK, kV };

  Inputs(const Problem& problem, int call);

  int length(int rank, int sequence) const;
  /// Row of K or V. A row is a piece of a pool of random numbers; which piece is random.
  std::span<const std::uint16_t> kv_row(Operand operand, int rank, int sequence, int key, int kv_head) const;
  std::span<const std::uint8_t> kv_row_fp8(Operand operand, int rank, int sequence, int key, int kv_head) const;
  /// The same row as numbers, without scale.
  void kv_values(Operand operand, int rank, int sequence, int key, int kv_head, std::span<double> values) const;
  float kv_scale(Operand operand, int rank, int kv_head) const;
  std::vector<std::uint16_t> q(int rank) const;
  std::vector<float> sinks() const;
  /// [batch, max_pages]: pages in random order. Entries that no token needs are out of bounds.
  std::vector<std::int32_t> block_table(int rank) const;

 private:
  std::size_t place(Operand operand, int rank, int sequence, int key, int kv_head) const;

  const Problem& problem_;
  std::uint64_t call_;
  std::vector<std::uint16_t> pool_;
  std::vector<std::uint8_t> pool_fp8_;
};

/// How many pages of the cache a check gives: all that sequences can hold, and some that nobody uses.
int pages_for(const FlashDecodeDesc& desc);

}  // namespace farwarp::decode
