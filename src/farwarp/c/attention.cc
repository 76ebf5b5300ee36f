// Attention of c.h: prefill and decode.
#include "farwarp/ops/attention/attention.h"

#include "farwarp/base/arguments.h"
#include "farwarp/c/operator.h"
#include "farwarp/ops/flash_decode/flash_decode.h"

struct farwarp_attention : farwarp::c::Operator<farwarp::Attention, farwarp::AttentionDesc> {};
struct farwarp_decode : farwarp::c::Operator<farwarp::FlashDecode, farwarp::FlashDecodeDesc> {};

namespace farwarp::c {
namespace {

// By farwarp_decode_exchange and farwarp_decode_work.
constexpr DecodeExchange kExchanges[] = {DecodeExchange::kBest, DecodeExchange::kOneShot, DecodeExchange::kTwoShot};
constexpr DecodeWork kWorks[] = {DecodeWork::kBest, DecodeWork::kSplit, DecodeWork::kGroup, DecodeWork::kAll};

farwarp_attention_desc attention_defaults() {
  farwarp_attention_desc desc = {};
  desc.bytes = sizeof desc;
  desc.dtype = type_of(DType::kBf16);
  desc.window_left = desc.window_right = -1;
  return desc;
}

farwarp_attention_tensors attention_tensors_defaults() {
  farwarp_attention_tensors tensors = {};
  tensors.bytes = sizeof tensors;
  return tensors;
}

farwarp_decode_desc decode_defaults() {
  farwarp_decode_desc desc = {};
  desc.bytes = sizeof desc;
  desc.dtype = type_of(DType::kBf16);
  desc.query_tokens = 1;
  desc.page_size = 16;
  desc.kv_shards = 1;
  return desc;
}

Result<AttentionDesc> read(const farwarp_attention_desc* given) {
  const auto desc = read_desc(given, attention_defaults);
  if (!desc.ok()) return desc.status();
  const auto dtype = read_dtype("dtype", desc->dtype, {DType::kBf16, DType::kF16});
  const auto causal = read_flag("causal", desc->causal), has_lse = read_flag("has_lse", desc->has_lse);
  const auto sinks = read_flag("has_sinks", desc->has_sinks),
             counts = read_flag("has_key_counts", desc->has_key_counts);
  const auto ragged_queries = read_flag("ragged_queries", desc->ragged_queries);
  const auto ragged_keys = read_flag("ragged_keys", desc->ragged_keys);
  if (const Status status = first_failure({dtype.status(), causal.status(), has_lse.status(), sinks.status(),
                                           counts.status(), ragged_queries.status(), ragged_keys.status()});
      !status.ok())
    return status;
  AttentionDesc result;
  result.batch = desc->batch;
  result.heads = desc->heads;
  result.kv_heads = desc->kv_heads;
  result.head_dim = desc->head_dim;
  result.max_queries = desc->queries;
  result.max_keys = desc->keys;
  result.dtype = *dtype;
  result.causal = *causal;
  result.window_left = desc->window_left;
  result.window_right = desc->window_right;
  result.has_sinks = *sinks;
  result.ragged_queries = *ragged_queries;
  result.total_queries = desc->total_queries;
  result.ragged_keys = *ragged_keys;
  result.total_keys = desc->total_keys;
  result.has_key_counts = *counts || desc->page_size > 0;
  result.page_size = desc->page_size;
  result.pages = desc->pages;
  result.scale = desc->scale;
  result.softcap = desc->softcap;
  result.has_lse = *has_lse;
  result.max_sms = desc->max_sms;
  return result;
}

Result<FlashDecodeDesc> read(const farwarp_decode_desc* given) {
  const auto desc = read_desc(given, decode_defaults);
  if (!desc.ok()) return desc.status();
  const auto dtype = read_dtype("dtype", desc->dtype, {DType::kBf16, DType::kF16});
  const auto fp8 = read_flag("fp8_cache", desc->fp8_cache), heads_first = read_flag("heads_first", desc->heads_first);
  const auto sinks = read_flag("has_sinks", desc->has_sinks);
  if (const Status status = first_failure({dtype.status(), fp8.status(), heads_first.status(), sinks.status(),
                                           check_choice("desc.exchange", desc->exchange, FARWARP_DECODE_TWO_SHOT),
                                           check_choice("desc.work", desc->work, FARWARP_DECODE_WORK_ALL)});
      !status.ok())
    return status;
  FlashDecodeDesc result;
  result.batch = desc->batch;
  result.query_tokens = desc->query_tokens;
  result.query_heads = desc->query_heads;
  result.kv_heads = desc->kv_heads;
  result.head_dim = desc->head_dim;
  result.page_size = desc->page_size;
  result.pages = desc->pages;
  result.max_pages = desc->max_pages;
  result.dtype = *dtype;
  result.kv_dtype = *fp8 ? KvDType::kFp8 : KvDType::kSame;
  result.layout = *heads_first ? KvLayout::kHeadsFirst : KvLayout::kTokensFirst;
  result.window = desc->window;
  result.scale = desc->scale;
  result.kv_shards = desc->kv_shards;
  result.sinks = *sinks;
  result.exchange = kExchanges[desc->exchange];
  result.split_keys = desc->split_keys;
  result.work = kWorks[desc->work];
  result.max_sms = desc->max_sms;
  return result;
}

AttentionTensors read_tensors(const farwarp_attention& attention, Tensors& tensors,
                              const farwarp_attention_tensors& given) {
  const AttentionDesc& desc = attention.desc;
  const DLDataType type = type_of(desc.dtype), floats = type_of(DType::kF32), integers = type_of(DType::kI32);
  const auto query = [&](const char* name, const DLTensor* tensor) {
    return desc.ragged_queries
               ? tensors.read(name, tensor, type, {desc.total_queries, desc.heads, desc.head_dim})
               : tensors.read(name, tensor, type, {desc.batch, desc.max_queries, desc.heads, desc.head_dim});
  };
  const auto key = [&](const char* name, const DLTensor* tensor) {
    if (desc.page_size > 0)
      return tensors.read(name, tensor, type, {desc.pages, desc.page_size, desc.kv_heads, desc.head_dim});
    return desc.ragged_keys
               ? tensors.read(name, tensor, type, {desc.total_keys, desc.kv_heads, desc.head_dim})
               : tensors.read(name, tensor, type, {desc.batch, desc.max_keys, desc.kv_heads, desc.head_dim});
  };
  const auto numbers = [&](bool wanted, const char* name, const DLTensor* tensor, std::int64_t size) {
    return static_cast<const std::int32_t*>(tensors.read_if(wanted, name, tensor, integers, {size}));
  };
  AttentionTensors all;
  all.q = query("q", given.q);
  all.k = key("k", given.k);
  all.v = key("v", given.v);
  all.out = query("out", given.out);
  all.lse = static_cast<float*>(
      desc.ragged_queries
          ? tensors.read_if(desc.has_lse, "lse", given.lse, floats, {desc.heads, desc.total_queries})
          : tensors.read_if(desc.has_lse, "lse", given.lse, floats, {desc.batch, desc.heads, desc.max_queries}));
  all.sinks = static_cast<const float*>(tensors.read_if(desc.has_sinks, "sinks", given.sinks, floats, {desc.heads}));
  all.query_starts = numbers(desc.ragged_queries, "query_starts", given.query_starts, desc.batch + 1);
  all.key_starts = numbers(desc.ragged_keys, "key_starts", given.key_starts, desc.batch + 1);
  all.key_counts = numbers(desc.has_key_counts, "key_counts", given.key_counts, desc.batch);
  all.block_table = static_cast<const std::int32_t*>(tensors.read_if(
      desc.page_size > 0, "block_table", given.block_table, integers, {desc.batch, attention.op.plan().table_pitch()}));
  return all;
}

}  // namespace
}  // namespace farwarp::c

using farwarp::DType;
using farwarp::Status;
using namespace farwarp::c;

extern "C" {

farwarp_code farwarp_attention_desc_init_sized(farwarp_attention_desc* desc, std::size_t bytes) {
  return init_sized(desc, bytes, attention_defaults);
}

farwarp_code farwarp_attention_create(farwarp_world* world, const farwarp_attention_desc* desc,
                                      farwarp_attention** attention) {
  return create(
      world, attention, [&] { return read(desc); }, farwarp::Attention::create);
}

farwarp_code farwarp_attention_call(farwarp_attention* attention, const DLTensor* q, const DLTensor* k,
                                    const DLTensor* v, DLTensor* out, DLTensor* lse, void* stream) {
  farwarp_attention_tensors all = attention_tensors_defaults();
  all.q = q;
  all.k = k;
  all.v = v;
  all.out = out;
  all.lse = lse;
  return farwarp_attention_call_tensors(attention, &all, stream);
}

farwarp_code farwarp_attention_tensors_init_sized(farwarp_attention_tensors* tensors, std::size_t bytes) {
  return init_sized(tensors, bytes, attention_tensors_defaults, "tensors");
}

farwarp_code farwarp_attention_call_tensors(farwarp_attention* attention, const farwarp_attention_tensors* tensors,
                                            void* stream) {
  return guarded([&]() -> Status {
    if (attention == nullptr) return null_argument("attention");
    const auto given = read_desc(tensors, attention_tensors_defaults, "tensors");
    if (!given.ok()) return given.status();
    Tensors read(attention->world);
    const farwarp::AttentionTensors all = read_tensors(*attention, read, *given);
    return read.status().ok() ? attention->op(all, {stream}) : read.status();
  });
}

farwarp_code farwarp_attention_close(farwarp_attention* attention) { return close(attention, "attention"); }

farwarp_code farwarp_decode_desc_init_sized(farwarp_decode_desc* desc, std::size_t bytes) {
  return init_sized(desc, bytes, decode_defaults);
}

farwarp_code farwarp_decode_create(farwarp_world* world, const farwarp_decode_desc* desc, farwarp_decode** decode) {
  return create(
      world, decode, [&] { return read(desc); }, farwarp::FlashDecode::create);
}

farwarp_code farwarp_decode_call(farwarp_decode* decode, const DLTensor* q, const DLTensor* k, const DLTensor* v,
                                 const DLTensor* block_table, const DLTensor* lengths, const DLTensor* k_scale,
                                 const DLTensor* v_scale, DLTensor* out, DLTensor* lse, void* stream) {
  return farwarp_decode_call_sinks(decode, q, k, v, block_table, lengths, k_scale, v_scale, nullptr, out, lse, stream);
}

farwarp_code farwarp_decode_call_sinks(farwarp_decode* decode, const DLTensor* q, const DLTensor* k, const DLTensor* v,
                                       const DLTensor* block_table, const DLTensor* lengths, const DLTensor* k_scale,
                                       const DLTensor* v_scale, const DLTensor* sinks, DLTensor* out, DLTensor* lse,
                                       void* stream) {
  return guarded([&]() -> Status {
    if (decode == nullptr) return null_argument("decode");
    const farwarp::FlashDecodeDesc& desc = decode->desc;
    const bool fp8 = desc.kv_dtype == farwarp::KvDType::kFp8;
    const bool heads_first = desc.layout == farwarp::KvLayout::kHeadsFirst;
    const int second = heads_first ? desc.kv_heads : desc.page_size;
    const int third = heads_first ? desc.page_size : desc.kv_heads;
    const DLDataType type = type_of(desc.dtype), of_cache = fp8 ? kFp8 : type;
    const DLDataType floats = type_of(DType::kF32), integers = type_of(DType::kI32);
    Tensors tensors(decode->world);
    farwarp::FlashDecodeTensors all;
    all.q = tensors.read("q", q, type, {desc.batch, desc.query_tokens, desc.query_heads, desc.head_dim});
    all.k = tensors.read("k", k, of_cache, {desc.pages, second, third, desc.head_dim});
    all.v = tensors.read("v", v, of_cache, {desc.pages, second, third, desc.head_dim});
    all.block_table = static_cast<const std::int32_t*>(
        tensors.read("block_table", block_table, integers, {desc.batch, desc.max_pages}));
    all.lengths = static_cast<const std::int32_t*>(tensors.read("lengths", lengths, integers, {desc.batch}));
    all.k_scale = static_cast<const float*>(tensors.read_if(fp8, "k_scale", k_scale, floats, {desc.kv_heads}));
    all.v_scale = static_cast<const float*>(tensors.read_if(fp8, "v_scale", v_scale, floats, {desc.kv_heads}));
    all.sinks = static_cast<const float*>(tensors.read_if(desc.sinks, "sinks", sinks, floats, {desc.query_heads}));
    all.out = tensors.read("out", out, type, {desc.batch, desc.query_tokens, desc.query_heads, desc.head_dim});
    all.lse = static_cast<float*>(
        tensors.read_if(lse != nullptr, "lse", lse, floats, {desc.batch, desc.query_tokens, desc.query_heads}));
    return tensors.status().ok() ? decode->op(all, {stream}) : tensors.status();
  });
}

farwarp_code farwarp_decode_close(farwarp_decode* decode) { return close(decode, "decode"); }
}
