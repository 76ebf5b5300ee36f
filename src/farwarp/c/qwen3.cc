// Qwen3 of c.h.
#include "farwarp/models/qwen3/qwen3.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "farwarp/c/operator.h"
#include "farwarp/models/qwen3/decode/args.h"
#include "farwarp/models/qwen3/weights/files.h"

namespace farwarp::c {
namespace {

/// What a decoder is created from.
struct Qwen3Desc {
  std::string folder;  ///< empty: random weights
  Qwen3Config config;
  Qwen3Limits limits;
  std::uint64_t seed = 0;
  Qwen3Generation generation;
  bool prefills() const { return limits.prefill_tokens > 0; }
};

farwarp_qwen3_desc qwen3_defaults() {
  farwarp_qwen3_desc desc = {};
  desc.bytes = sizeof desc;
  const Qwen3Limits defaults;
  desc.sequences = defaults.sequences;
  desc.positions = defaults.positions;
  return desc;
}

farwarp_sampling sampling_defaults() {
  farwarp_sampling sampling = {};
  sampling.bytes = sizeof sampling;
  sampling.top_p = 1;
  return sampling;
}

Result<Qwen3Desc> read(const farwarp_qwen3_desc* given) {
  constexpr std::string_view kRandom = "random:";
  const auto desc = read_desc(given, qwen3_defaults);
  if (!desc.ok()) return desc.status();
  if (desc->model == nullptr) return null_argument("desc.model");
  Qwen3Desc result;
  result.seed = desc->seed;
  result.limits.sequences = desc->sequences;
  result.limits.positions = desc->positions;
  result.limits.most_top_k = desc->most_top_k;
  result.limits.prefill_tokens = desc->prefill_tokens;
  result.limits.max_sms = desc->max_sms;
  result.limits.splits = desc->splits;
  if (desc->vectors < FARWARP_QWEN3_FASTER || desc->vectors > FARWARP_QWEN3_STREAMED)
    return invalid_argument(fmt::format("desc.vectors is {}; allowed: 0 to 2, farwarp_qwen3_vectors", desc->vectors));
  result.limits.vectors = static_cast<Qwen3Vectors>(desc->vectors);
  const std::string_view model = desc->model;
  const bool random = model.substr(0, kRandom.size()) == kRandom;
  if (!random) result.folder = model;
  const auto config = random ? qwen3_config(model.substr(kRandom.size())) : read_qwen3_config(result.folder);
  if (!config.ok()) return config.status();
  result.config = *config;
  if (random) return result;
  auto generation = read_qwen3_generation(result.folder, result.config);
  if (!generation.ok()) return generation.status();
  result.generation = std::move(*generation);
  return result;
}

Result<Qwen3Decoder> make(World& world, const Qwen3Desc& desc) {
  return desc.folder.empty() ? Qwen3Decoder::create_random(world, desc.config, desc.limits, desc.seed)
                             : Qwen3Decoder::create(world, desc.folder, desc.limits);
}

Result<Qwen3Sampling> read(const farwarp_sampling* given) {
  if (given == nullptr) return Qwen3Sampling{};
  const auto sampling = read_desc(given, sampling_defaults);
  if (!sampling.ok()) return sampling.status();
  return Qwen3Sampling{sampling->temperature, sampling->top_k, sampling->top_p, sampling->seed};
}

}  // namespace
}  // namespace farwarp::c

struct farwarp_qwen3 : farwarp::c::Operator<farwarp::Qwen3Decoder, farwarp::c::Qwen3Desc> {};

using farwarp::Status;
using namespace farwarp::c;

namespace {

static_assert(FARWARP_MOST_END_TOKENS == farwarp::qwen3::kMaxEndTokens);

Status decode(farwarp_qwen3* qwen3, std::int32_t tokens, std::span<const std::int32_t> end_tokens, DLTensor* sampled,
              DLTensor* logits, void* stream) {
  if (qwen3 == nullptr) return null_argument("qwen3");
  if (tokens < 1) return farwarp::invalid_argument(fmt::format("tokens is {}; allowed: 1 or more", tokens));
  const int columns = qwen3->op.plan().columns;
  Tensors tensors(qwen3->world);
  farwarp::Qwen3Call call;
  call.tokens = tokens;
  call.end_tokens = end_tokens;
  call.sampled =
      static_cast<std::int32_t*>(tensors.read("sampled", sampled, type_of(farwarp::DType::kI32), {columns, tokens}));
  call.logits = static_cast<float*>(tensors.read_if(logits != nullptr, "logits", logits, type_of(farwarp::DType::kF32),
                                                    {tokens, columns, qwen3->desc.config.vocabulary}));
  return tensors.status().ok() ? qwen3->op.decode(call, {stream}) : tensors.status();
}

}  // namespace

extern "C" {

farwarp_code farwarp_qwen3_desc_init_sized(farwarp_qwen3_desc* desc, std::size_t bytes) {
  return init_sized(desc, bytes, qwen3_defaults);
}

farwarp_code farwarp_qwen3_heap_bytes(const farwarp_qwen3_desc* desc, std::int32_t target, std::int32_t device,
                                      std::int32_t ranks, std::int64_t* bytes) {
  return guarded([&]() -> Status {
    if (bytes == nullptr) return null_argument("bytes");
    if (target < FARWARP_CUDA || target > FARWARP_EMU_GFX942)
      return farwarp::invalid_argument(fmt::format("target is {}; allowed: 0 to 3, farwarp_target", target));
    const auto wanted = read(desc);
    if (!wanted.ok()) return wanted.status();
    const auto opened = farwarp::Device::open(static_cast<farwarp::TargetKind>(target), device);
    if (!opened.ok()) return opened.status();
    const auto plan = farwarp::plan_qwen3(wanted->config, wanted->limits, (*opened)->shape(), ranks);
    if (plan.ok()) *bytes = farwarp::Qwen3Decoder::heap_bytes(*plan);
    return plan.status();
  });
}

farwarp_code farwarp_qwen3_create(farwarp_world* world, const farwarp_qwen3_desc* desc, farwarp_qwen3** qwen3) {
  return create(
      world, qwen3, [&] { return read(desc); }, make);
}

std::int32_t farwarp_qwen3_vocabulary(const farwarp_qwen3* qwen3) {
  return qwen3 == nullptr ? 0 : qwen3->desc.config.vocabulary;
}
std::int32_t farwarp_qwen3_columns(const farwarp_qwen3* qwen3) {
  return qwen3 == nullptr ? 0 : qwen3->op.plan().columns;
}

farwarp_code farwarp_sampling_init_sized(farwarp_sampling* sampling, std::size_t bytes) {
  return init_sized(sampling, bytes, sampling_defaults, "sampling");
}

farwarp_code farwarp_qwen3_start(farwarp_qwen3* qwen3, std::int32_t column, const std::int32_t* prompt,
                                 std::int32_t tokens, const farwarp_sampling* sampling, void* stream) {
  return guarded([&]() -> Status {
    if (qwen3 == nullptr || prompt == nullptr) return null_argument(qwen3 == nullptr ? "qwen3" : "prompt");
    if (tokens < 1) return farwarp::invalid_argument(fmt::format("tokens is {}; allowed: 1 or more", tokens));
    const auto how = read(sampling);
    if (!how.ok()) return how.status();
    const std::span<const std::int32_t> all(prompt, static_cast<std::size_t>(tokens));
    const Status status = qwen3->op.start(column, all, {stream}, *how);
    return status.ok() && qwen3->desc.prefills() ? qwen3->op.prefill(column, {stream}) : status;
  });
}

farwarp_code farwarp_qwen3_stop(farwarp_qwen3* qwen3, std::int32_t column, void* stream) {
  return guarded([&] { return qwen3 == nullptr ? null_argument("qwen3") : qwen3->op.stop(column, {stream}); });
}

farwarp_code farwarp_qwen3_decode(farwarp_qwen3* qwen3, std::int32_t tokens, std::int32_t end_token, DLTensor* sampled,
                                  DLTensor* logits, void* stream) {
  return guarded([&]() -> Status {
    if (end_token < -1)
      return farwarp::invalid_argument(fmt::format("end_token is {}; allowed: -1 (none), a token", end_token));
    return decode(qwen3, tokens, {&end_token, end_token < 0 ? 0u : 1u}, sampled, logits, stream);
  });
}

farwarp_code farwarp_qwen3_decode_until(farwarp_qwen3* qwen3, std::int32_t tokens, const std::int32_t* end_tokens,
                                        std::int32_t end_token_count, DLTensor* sampled, DLTensor* logits,
                                        void* stream) {
  return guarded([&]() -> Status {
    if (end_token_count < 0 || end_token_count > FARWARP_MOST_END_TOKENS)
      return farwarp::invalid_argument(
          fmt::format("end_token_count is {}; allowed: 0 to {}", end_token_count, FARWARP_MOST_END_TOKENS));
    if (end_tokens == nullptr && end_token_count > 0) return null_argument("end_tokens");
    return decode(qwen3, tokens, {end_tokens, static_cast<std::size_t>(end_token_count)}, sampled, logits, stream);
  });
}

farwarp_code farwarp_qwen3_generation(const farwarp_qwen3* qwen3, std::int32_t* end_tokens,
                                      std::int32_t* end_token_count, farwarp_sampling* sampling) {
  return guarded([&]() -> Status {
    if (qwen3 == nullptr) return null_argument("qwen3");
    if (end_tokens == nullptr || end_token_count == nullptr)
      return null_argument(end_tokens == nullptr ? "end_tokens" : "end_token_count");
    if (sampling == nullptr) return null_argument("sampling");
    auto filled = read_desc(sampling, sampling_defaults, "sampling");
    if (!filled.ok()) return filled.status();
    const farwarp::Qwen3Generation& asked = qwen3->desc.generation;
    std::copy(asked.end_tokens.begin(), asked.end_tokens.end(), end_tokens);
    *end_token_count = static_cast<std::int32_t>(asked.end_tokens.size());
    filled->temperature = asked.temperature;
    filled->top_k = asked.top_k;
    filled->top_p = asked.top_p;
    std::memcpy(sampling, &*filled, sampling->bytes);
    return {};
  });
}

farwarp_code farwarp_qwen3_close(farwarp_qwen3* qwen3) { return close(qwen3, "qwen3"); }
}
