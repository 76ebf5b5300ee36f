#include "farwarp/models/qwen3/weights/files.h"

#include <fmt/format.h>

#include <cstring>
#include <filesystem>
#include <limits>
#include <utility>

#include "farwarp/base/arguments.h"
#include "farwarp/base/file.h"
#include "farwarp/base/json.h"
#include "farwarp/models/qwen3/decode/args.h"
#include "farwarp/models/qwen3/weights/tensors.h"
#include "farwarp/models/safetensors.h"

namespace farwarp {
namespace {

using nlohmann::json;

/// Reads fields, and keeps the first error.
class Reader {
 public:
  explicit Reader(const std::string& path) : path_(path) {
    const auto text = read_file(path, kMaxJsonBytes);
    auto fields = text.ok() ? parse_json(*text) : Result<json>(text.status());
    if (fields.ok() && fields->is_object()) {
      fields_ = std::move(*fields);
    } else {
      reject(fields.ok() ? "is no JSON object" : fields.status().message());
    }
  }

  const Status& status() const { return status_; }
  json field(const char* name) const { return fields_.is_object() ? fields_.value(name, json()) : json(); }
  void reject(const std::string& what) {
    if (status_.ok()) status_ = invalid_argument(path_ + ": " + what);
  }
  void reject(const std::string& name, const json& value, const std::string& allowed) {
    reject(fmt::format("{} is {}; allowed: {}", name, shown_json(value), allowed));
  }
  int integer(const char* name) {
    const json value = field(name);
    if (value.is_number_integer() && value.get<std::int64_t>() >= 0 && value.get<std::int64_t>() <= (1 << 30))
      return value.get<int>();
    reject(name, value, "a count");
    return 0;
  }
  float number(const std::string& name, const json& value) {
    const double given = value.is_number() ? value.get<double>() : 0;
    if (given > 0 && given <= std::numeric_limits<float>::max() && static_cast<float>(given) > 0)
      return static_cast<float>(given);
    reject(name, value, "a number above 0 that float has");
    return 1;
  }
  bool flag(const char* name) {
    const json value = field(name);
    if (!value.is_null() && !value.is_boolean()) reject(name, value, "true, false");
    return value == true;
  }
  /// Allows `expected`, null, and no such field.
  void expect(const std::string& name, const json& value, const json& expected) {
    if (!value.is_null() && value != expected)
      reject(name, value, expected.is_null() ? "no such key" : expected.dump());
  }
  void expect(const char* name, const json& expected) { expect(name, field(name), expected); }
  /// Allows an empty list, null, and no such field.
  void expect_none_of(const char* name) {
    const json value = field(name);
    if (!value.is_array() || !value.empty()) expect(name, nullptr);
  }

 private:
  std::string path_;
  json fields_ = json::object();
  Status status_;
};

/// Rotary embeddings are plain ones: of all the other kinds (linear, dynamic, yarn, longrope, llama3) none is computed.
/// Older files write rope_theta and rope_scaling, whose kind is `type`; transformers 5 writes rope_parameters.
float rope_theta_of(Reader& reader) {
  std::vector<std::pair<std::string, json>> thetas = {{"rope_theta", reader.field("rope_theta")}};
  for (const char* name : {"rope_parameters", "rope_scaling"}) {
    const json parameters = reader.field(name);
    if (!parameters.is_null() && !parameters.is_object()) reader.reject(name, parameters, "an object");
    if (!parameters.is_object()) continue;
    for (const auto& [key, value] : parameters.items()) {
      const std::string full = fmt::format("{}.{}", name, key);
      if (key == "rope_theta") {
        thetas.emplace_back(full, value);
      } else if (key == "rope_type" || key == "type") {
        reader.expect(full, value, "default");
      } else {
        reader.expect(full, value, key == "partial_rotary_factor" ? json(1) : json());
      }
    }
  }
  std::erase_if(thetas, [](const auto& theta) { return theta.second.is_null(); });
  if (thetas.empty()) thetas.emplace_back("rope_theta", json());
  for (const auto& [name, theta] : thetas)
    reader.expect(name, theta, thetas.front().second);  // where two are given, they are one
  return reader.number(thetas.front().first, thetas.front().second);
}

/// What transformers' Qwen3 reads beside the sizes, and keys of relatives that compute something else.
void expect_a_plain_qwen3(Reader& reader) {
  const std::pair<const char*, json> only[] = {{"model_type", "qwen3"},
                                               {"hidden_act", "silu"},
                                               {"attention_bias", false},
                                               {"mlp_bias", false},
                                               {"use_sliding_window", false},
                                               {"partial_rotary_factor", 1},
                                               {"torch_dtype", "bfloat16"},
                                               {"dtype", "bfloat16"},
                                               {"quantization_config", nullptr},
                                               {"compression_config", nullptr},
                                               {"is_encoder_decoder", false},
                                               {"add_cross_attention", false},
                                               {"logit_scale", 1},
                                               {"logits_scaling", 1},
                                               {"embedding_multiplier", 1},
                                               {"residual_multiplier", 1},
                                               {"attention_multiplier", nullptr},
                                               {"attn_logit_softcapping", nullptr},
                                               {"final_logit_softcapping", nullptr}};
  for (const auto& [name, value] : only) reader.expect(name, value);
  const json layers = reader.field("layer_types");
  if (layers.is_null()) return;
  bool full = layers.is_array() && layers.size() == static_cast<std::size_t>(reader.integer("num_hidden_layers"));
  for (const json& layer : layers) full = full && layer == "full_attention";
  if (!full) reader.reject("layer_types", layers, "\"full_attention\" for each of num_hidden_layers");
}

/// Those that end an answer: one, a list, or none.
std::vector<std::int32_t> end_tokens_of(Reader& reader, int vocabulary) {
  const json given = reader.field("eos_token_id");
  if (given.is_null()) return {};
  const std::string allowed = fmt::format("up to {} tokens of 0 to {}", qwen3::kMaxEndTokens, vocabulary - 1);
  const json list = given.is_array() ? given : json::array({given});
  bool right = list.size() <= static_cast<std::size_t>(qwen3::kMaxEndTokens);
  std::vector<std::int32_t> tokens;
  for (const json& token : list) {
    right = right && token.is_number_integer() && token >= 0 && token < vocabulary;
    if (right) tokens.push_back(token.get<std::int32_t>());
  }
  if (!right) reader.reject("eos_token_id", given, allowed);
  return tokens;
}

/// What generate() of transformers would do beside taking the best token, or drawing.
void expect_plain_generation(Reader& reader, bool draws) {
  const std::pair<const char*, json> only[] = {{"repetition_penalty", 1},
                                               {"encoder_repetition_penalty", 1},
                                               {"no_repeat_ngram_size", 0},
                                               {"encoder_no_repeat_ngram_size", 0},
                                               {"min_length", 0},
                                               {"min_new_tokens", 0},
                                               {"num_beams", 1},
                                               {"num_beam_groups", 1},
                                               {"num_return_sequences", 1},
                                               {"diversity_penalty", 0},
                                               {"penalty_alpha", 0},
                                               {"guidance_scale", 1},
                                               {"token_healing", false},
                                               {"max_time", nullptr},
                                               {"forced_bos_token_id", nullptr},
                                               {"forced_eos_token_id", nullptr},
                                               {"exponential_decay_length_penalty", nullptr},
                                               {"watermarking_config", nullptr},
                                               {"dola_layers", nullptr}};
  for (const auto& [name, value] : only) reader.expect(name, value);
  for (const char* name : {"bad_words_ids", "force_words_ids", "suppress_tokens", "begin_suppress_tokens",
                           "forced_decoder_ids", "sequence_bias", "stop_strings", "constraints"})
    reader.expect_none_of(name);
  if (reader.field("cache_implementation") == "quantized")
    reader.reject("cache_implementation", "quantized", "those that keep bf16");
  if (!draws) return;
  const std::pair<const char*, json> drawn[] = {
      {"min_p", 0}, {"typical_p", 1}, {"epsilon_cutoff", 0}, {"eta_cutoff", 0}, {"top_h", nullptr}};
  for (const auto& [name, value] : drawn) reader.expect(name, value);
}

}  // namespace

Result<Qwen3Config> read_qwen3_config(const std::string& folder) {
  Reader reader(folder + "/config.json");
  if (!reader.status().ok()) return reader.status();
  const json architectures = {"Qwen3ForCausalLM"};
  if (reader.field("architectures") != architectures)
    reader.reject("architectures", reader.field("architectures"), architectures.dump());
  expect_a_plain_qwen3(reader);
  Qwen3Config config;
  config.hidden = reader.integer("hidden_size");
  config.layers = reader.integer("num_hidden_layers");
  config.query_heads = reader.integer("num_attention_heads");
  config.kv_heads = reader.integer("num_key_value_heads");
  config.head_dim = reader.integer("head_dim");
  config.intermediate = reader.integer("intermediate_size");
  config.vocabulary = reader.integer("vocab_size");
  config.epsilon = reader.number("rms_norm_eps", reader.field("rms_norm_eps"));
  config.rope_theta = rope_theta_of(reader);
  config.tied = reader.flag("tie_word_embeddings");
  if (!reader.status().ok()) return reader.status();
  if (Status status = config.check(); !status.ok()) return status;
  return config;
}

Result<Qwen3Generation> read_qwen3_generation(const std::string& folder, const Qwen3Config& config) {
  const std::string own = folder + "/generation_config.json";
  std::error_code error;
  const bool there = exists(std::filesystem::symlink_status(own, error));
  Reader reader(there ? own : folder + "/config.json");  // as transformers does
  if (!reader.status().ok()) return reader.status();
  Qwen3Generation generation;
  generation.end_tokens = end_tokens_of(reader, config.vocabulary);
  const bool draws = reader.flag("do_sample");
  expect_plain_generation(reader, draws);
  if (draws) {
    const auto number = [&](const char* name, const json& otherwise) {
      const json value = reader.field(name);
      return reader.number(name, value.is_null() ? otherwise : value);
    };
    generation.temperature = number("temperature", 1);
    generation.top_p = number("top_p", 1);
    generation.top_k = reader.field("top_k").is_null() ? 50 : reader.integer("top_k");  // transformers' default
  }
  if (!reader.status().ok()) return reader.status();
  return generation;
}

Status check_qwen3_tie(const Safetensors& files, const Qwen3Config& config) {
  const std::int32_t head = tensor_number(qwen3::GlobalTensor::kHead, config.layers);
  const std::string name = qwen3::tensor_name(head, config.layers);
  if (!config.tied || !files.has(name)) return {};
  const std::vector<std::int64_t> shape = {config.vocabulary, config.hidden};
  const auto embedding = files.find(
      qwen3::tensor_name(tensor_number(qwen3::GlobalTensor::kEmbedding, config.layers), config.layers), "BF16", shape);
  const auto own = files.find(name, "BF16", shape);
  if (Status status = first_failure({embedding.status(), own.status()}); !status.ok()) return status;
  if (std::memcmp(embedding->data.data(), own->data.data(), own->data.size()) == 0) return {};
  return invalid_argument(
      fmt::format("tie_word_embeddings is true, and tensor '{}' is another one than the embedding; allowed: false, or "
                  "the embedding again",
                  name));
}

namespace qwen3 {

std::string tensor_name(int tensor, int layers) {
  constexpr int kTensors = static_cast<int>(Tensor::kTensors);
  if (tensor >= layers * kTensors) {
    switch (static_cast<GlobalTensor>(tensor - layers * kTensors)) {
      case GlobalTensor::kEmbedding: return "model.embed_tokens.weight";
      case GlobalTensor::kFinalNorm: return "model.norm.weight";
      case GlobalTensor::kHead: return "lm_head.weight";
    }
  }
  static constexpr const char* kNames[kTensors] = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                                                   "self_attn.o_proj", "mlp.gate_proj",    "mlp.up_proj",
                                                   "mlp.down_proj",    "input_layernorm",  "post_attention_layernorm",
                                                   "self_attn.q_norm", "self_attn.k_norm"};
  return fmt::format("model.layers.{}.{}.weight", tensor / kTensors, kNames[tensor % kTensors]);
}

}  // namespace qwen3
}  // namespace farwarp
