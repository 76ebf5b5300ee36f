// Desc + machine -> plan of flash-decode. Pure: no device, no World.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "farwarp/base/half.h"
#include "farwarp/base/machine_shape.h"
#include "farwarp/base/status.h"

namespace farwarp {

enum class KvDType : std::uint8_t {
  kSame,  ///< as q
  kFp8,   ///< e4m3, with a scale for each KV head
};
enum class KvLayout : std::uint8_t {
  kTokensFirst,  ///< [pages, page_size, kv_heads, head_dim] (NHD)
  kHeadsFirst,   ///< [pages, kv_heads, page_size, head_dim] (HND)
};
enum class DecodeExchange : std::uint8_t {
  kBest,     ///< the plan's choice
  kOneShot,  ///< partial outputs go to all ranks, and each merges all
  kTwoShot,  ///< partial outputs go to owners, which merge them and send the result to all
};

/// What a block does at a time. The bits of the result are the same.
enum class DecodeWork : std::uint8_t {
  kBest,   ///< for each sequence, by a block's share of the call's keys
  kSplit,  ///< one split of an item
  kGroup,  ///< up to four; Hopper, at most 16 rows of an item
  kAll,    ///< all, so that nothing is merged in memory; Hopper, at most 16 rows of an item
};

constexpr std::string_view name_of(KvDType type) {
  return type == KvDType::kSame ? "same" : type == KvDType::kFp8 ? "fp8" : "?";
}
constexpr std::string_view name_of(KvLayout layout) {
  return layout == KvLayout::kTokensFirst ? "nhd" : layout == KvLayout::kHeadsFirst ? "hnd" : "?";
}
constexpr std::string_view name_of(DecodeExchange exchange) {
  return exchange == DecodeExchange::kBest      ? "best"
         : exchange == DecodeExchange::kOneShot ? "one-shot"
         : exchange == DecodeExchange::kTwoShot ? "two-shot"
                                                : "?";
}

constexpr std::string_view name_of(DecodeWork work) {
  return work == DecodeWork::kBest    ? "best"
         : work == DecodeWork::kSplit ? "split"
         : work == DecodeWork::kGroup ? "group"
         : work == DecodeWork::kAll   ? "all"
                                      : "?";
}

/// Attention of a few query tokens of each sequence over its keys in a paged cache. Token t of a sequence of length L
/// sees the keys 0 to L - query_tokens + t: the lengths include the query tokens' own keys. Right as long as scores,
/// logits and sums of probability * |v|, relative to the largest logit so far, are finite in fp32; else infinity or
/// NaN.
struct FlashDecodeDesc {
  int batch = 0;               ///< sequences, 1 to 4096; those that a call does not need get the length 0
  int query_tokens = 1;        ///< of each sequence, 1 to 8
  int query_heads = 0;         ///< a multiple of kv_heads
  int kv_heads = 0;            ///< 1 to 256
  int head_dim = 0;            ///< a multiple of 8 up to 128; of 16 with fp8
  int page_size = 16;          ///< keys of a page: 1, 16, 64 or 128
  int pages = 0;               ///< of the cache
  int max_pages = 0;           ///< columns of the block table: most pages of a sequence
  DType dtype = DType::kBf16;  ///< of q and out: kBf16 or kF16
  KvDType kv_dtype = KvDType::kSame;
  KvLayout layout = KvLayout::kTokensFirst;
  int window = 0;      ///< keys that a token sees, itself included; 0: all
  bool sinks = false;  ///< a logit of each query head that only the denominator has
  float scale = 0;     ///< of q * k, up to 2e38; 0: head_dim^-0.5
  /// 1: each rank has its own sequences. Else the World's size: the keys of every sequence are spread over the ranks, q
  /// is the same on all, and all get the whole output. Then query_tokens is 1 and window is 0.
  int kv_shards = 1;
  DecodeExchange exchange = DecodeExchange::kBest;  ///< if kv_shards is more than 1
  int split_keys = 0;                               ///< keys of a split, a multiple of 64; 0: by the sequence's length
  DecodeWork work = DecodeWork::kBest;
  int max_sms = 0;  ///< most blocks of a launch; 0: all multiprocessors
};

struct FlashDecodePlan {
  FlashDecodeDesc desc;  ///< with scale and exchange filled in; work is kSplit if the kernel has no other
  std::string kernel;
  int blocks = 0;
  int threads = 0;
  int shared_bytes = 0;
  int dim = 0;                       ///< head_dim, padded
  int rows = 0;                      ///< of a (sequence, KV head): query tokens times query heads of a KV head
  int block_rows = 0;                ///< most rows that a block computes at a time
  int item_rows = 0;                 ///< rows, at most block_rows
  int row_blocks = 0;                ///< blocks of rows of a (sequence, KV head)
  int items = 0;                     ///< (sequence, KV head, block of rows)
  int target_splits = 0;             ///< of a long sequence
  int most_splits = 0;               ///< of any sequence
  float share_factor = 0;            ///< from keys of all sequences to the most stages of a work of several splits
  std::int64_t workspace_bytes = 0;  ///< of this rank's heap: partial outputs of splits
  std::int64_t counter_bytes = 0;    ///< of this rank's heap: counters of arrivals
  std::int64_t inbox_bytes = 0;      ///< of this rank's heap, for peers' words
  // Offsets: of statistics in the workspace, of finished rows in the inbox.
  std::int64_t statistics = 0, finished = 0;
  std::string to_string() const;
};

/// kInvalidArgument names the field, its value and what is allowed.
Result<FlashDecodePlan> plan_flash_decode(const FlashDecodeDesc& desc, const MachineShape& shape, int ranks);

}  // namespace farwarp
