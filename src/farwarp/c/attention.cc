// Attention of c.h: prefill and decode.
#include "farwarp/ops/attention/attention.h"

#include "farwarp/base/arguments.h"
#include "farwarp/c/operator.h"
#include "farwarp/ops/flash_decode/flash_decode.h"

struct farwarp_attention : farwarp::c::Operator<farwarp::Attention, farwarp::AttentionDesc> {};
struct farwarp_decode : farwarp::c::Operator<farwarp::FlashDecode, farwarp::FlashDecodeDesc> {};

namespace farwarp::c {
namespace {

Result<AttentionDesc> read(const farwarp_attention_desc* given) {
  const auto desc = read_desc(given, farwarp_attention_desc_init);
  if (!desc.ok()) return desc.status();
  const auto dtype = read_dtype("dtype", desc->dtype, {DType::kBf16, DType::kF16});
  const auto causal = read_flag("causal", desc->causal), has_lse = read_flag("has_lse", desc->has_lse);
  if (const Status status = first_failure({dtype.status(), causal.status(), has_lse.status()}); !status.ok())
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
  result.scale = desc->scale;
  result.has_lse = *has_lse;
  result.max_sms = desc->max_sms;
  return result;
}

Result<FlashDecodeDesc> read(const farwarp_decode_desc* given) {
  const auto desc = read_desc(given, farwarp_decode_desc_init);
  if (!desc.ok()) return desc.status();
  const auto dtype = read_dtype("dtype", desc->dtype, {DType::kBf16, DType::kF16});
  const auto fp8 = read_flag("fp8_cache", desc->fp8_cache), heads_first = read_flag("heads_first", desc->heads_first);
  if (const Status status = first_failure({dtype.status(), fp8.status(), heads_first.status()}); !status.ok())
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
  result.max_sms = desc->max_sms;
  return result;
}

}  // namespace
}  // namespace farwarp::c

using farwarp::DType;
using farwarp::Status;
using namespace farwarp::c;

extern "C" {

void farwarp_attention_desc_init(farwarp_attention_desc* desc) {
  *desc = {};
  desc->bytes = sizeof *desc;
  desc->dtype = type_of(DType::kBf16);
  desc->window_left = -1;
}

farwarp_code farwarp_attention_create(farwarp_world* world, const farwarp_attention_desc* desc,
                                      farwarp_attention** attention) {
  return create(
      world, attention, [&] { return read(desc); }, farwarp::Attention::create);
}

farwarp_code farwarp_attention_call(farwarp_attention* attention, const DLTensor* q, const DLTensor* k,
                                    const DLTensor* v, DLTensor* out, DLTensor* lse, void* stream) {
  return guarded([&]() -> Status {
    if (attention == nullptr) return null_argument("attention");
    const farwarp::AttentionDesc& desc = attention->desc;
    const DLDataType type = type_of(desc.dtype);
    Tensors tensors(attention->world);
    farwarp::AttentionTensors all;
    all.q = tensors.read("q", q, type, {desc.batch, desc.max_queries, desc.heads, desc.head_dim});
    all.k = tensors.read("k", k, type, {desc.batch, desc.max_keys, desc.kv_heads, desc.head_dim});
    all.v = tensors.read("v", v, type, {desc.batch, desc.max_keys, desc.kv_heads, desc.head_dim});
    all.out = tensors.read("out", out, type, {desc.batch, desc.max_queries, desc.heads, desc.head_dim});
    all.lse = static_cast<float*>(
        tensors.read_if(desc.has_lse, "lse", lse, type_of(DType::kF32), {desc.batch, desc.heads, desc.max_queries}));
    return tensors.status().ok() ? attention->op(all, {stream}) : tensors.status();
  });
}

farwarp_code farwarp_attention_close(farwarp_attention* attention) { return close(attention, "attention"); }

void farwarp_decode_desc_init(farwarp_decode_desc* desc) {
  *desc = {};
  desc->bytes = sizeof *desc;
  desc->dtype = type_of(DType::kBf16);
  desc->query_tokens = 1;
  desc->page_size = 16;
  desc->kv_shards = 1;
}

farwarp_code farwarp_decode_create(farwarp_world* world, const farwarp_decode_desc* desc, farwarp_decode** decode) {
  return create(
      world, decode, [&] { return read(desc); }, farwarp::FlashDecode::create);
}

farwarp_code farwarp_decode_call(farwarp_decode* decode, const DLTensor* q, const DLTensor* k, const DLTensor* v,
                                 const DLTensor* block_table, const DLTensor* lengths, const DLTensor* k_scale,
                                 const DLTensor* v_scale, DLTensor* out, DLTensor* lse, void* stream) {
  return guarded([&]() -> Status {
    if (decode == nullptr) return null_argument("decode");
    const farwarp::FlashDecodeDesc& desc = decode->desc;
    const bool fp8 = desc.kv_dtype == farwarp::KvDType::kFp8;
    const bool heads_first = desc.layout == farwarp::KvLayout::kHeadsFirst;
    const int second = heads_first ? desc.kv_heads : desc.page_size;
    const int third = heads_first ? desc.page_size : desc.kv_heads;
    const DLDataType type = type_of(desc.dtype), of_cache = fp8 ? kFp8Bytes : type;
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
    all.out = tensors.read("out", out, type, {desc.batch, desc.query_tokens, desc.query_heads, desc.head_dim});
    all.lse = static_cast<float*>(
        tensors.read_if(lse != nullptr, "lse", lse, floats, {desc.batch, desc.query_tokens, desc.query_heads}));
    return tensors.status().ok() ? decode->op(all, {stream}) : tensors.status();
  });
}

farwarp_code farwarp_decode_close(farwarp_decode* decode) { return close(decode, "decode"); }
}
