#include "farwarp/models/qwen3/files.h"

#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "farwarp/base/arguments.h"
#include "farwarp/models/qwen3/weights.h"

namespace farwarp {
namespace {

using nlohmann::json;

/// Reads fields, and keeps the first error.
class Reader {
 public:
  explicit Reader(const std::string& path) : path_(path) {
    std::ifstream stream(path);
    if (!stream) {
      reject("cannot be read");
      return;
    }
    fields_ = json::parse(stream, nullptr, false);
    if (!fields_.is_object()) reject("is no JSON object");
  }

  const Status& status() const { return status_; }
  json field(const char* name) const { return fields_.is_object() ? fields_.value(name, json()) : json(); }
  void reject(const std::string& what) {
    if (status_.ok()) status_ = invalid_argument(path_ + ": " + what);
  }
  void reject(const char* name, const json& value, const std::string& allowed) {
    reject(fmt::format("{} is {}; allowed: {}", name, value.dump(), allowed));
  }
  int integer(const char* name) {
    const json value = field(name);
    if (value.is_number_integer() && value.get<std::int64_t>() >= 0 && value.get<std::int64_t>() <= (1 << 30))
      return value.get<int>();
    reject(name, value, "a count");
    return 0;
  }
  float number(const char* name, const json& value) {
    if (value.is_number() && value.get<double>() > 0) return value.get<float>();
    reject(name, value, "a number above 0");
    return 1;
  }
  /// Allows `expected`, and no such field.
  void expect(const char* name, const json& expected) {
    const json value = field(name);
    if (!value.is_null() && value != expected) reject(name, value, expected.dump());
  }

 private:
  std::string path_;
  json fields_;
  Status status_;
};

}  // namespace

Result<Qwen3Config> read_qwen3_config(const std::string& folder) {
  Reader reader(folder + "/config.json");
  if (!reader.status().ok()) return reader.status();
  const json architectures = {"Qwen3ForCausalLM"};
  if (reader.field("architectures") != architectures)
    reader.reject("architectures", reader.field("architectures"), architectures.dump());
  reader.expect("hidden_act", "silu");
  reader.expect("attention_bias", false);
  reader.expect("use_sliding_window", false);
  reader.expect("rope_scaling", nullptr);
  reader.expect("torch_dtype", "bfloat16");
  reader.expect("dtype", "bfloat16");
  Qwen3Config config;
  config.hidden = reader.integer("hidden_size");
  config.layers = reader.integer("num_hidden_layers");
  config.query_heads = reader.integer("num_attention_heads");
  config.kv_heads = reader.integer("num_key_value_heads");
  config.head_dim = reader.integer("head_dim");
  config.intermediate = reader.integer("intermediate_size");
  config.vocabulary = reader.integer("vocab_size");
  config.epsilon = reader.number("rms_norm_eps", reader.field("rms_norm_eps"));
  // transformers 5 writes rope_parameters.
  const json parameters = reader.field("rope_parameters");
  if (parameters.is_object()) {
    const json type = parameters.value("rope_type", json("default"));
    if (type != "default") reader.reject("rope_parameters.rope_type", type, "\"default\"");
    config.rope_theta = reader.number("rope_parameters.rope_theta", parameters.value("rope_theta", json()));
  } else {
    config.rope_theta = reader.number("rope_theta", reader.field("rope_theta"));
  }
  config.tied = reader.field("tie_word_embeddings") == true;
  if (!reader.status().ok()) return reader.status();
  if (Status status = config.check(); !status.ok()) return status;
  return config;
}

namespace qwen3 {

std::string tensor_name(int number, int layers) {
  constexpr int kTensors = static_cast<int>(Tensor::kTensors);
  if (number >= layers * kTensors) {
    switch (static_cast<GlobalTensor>(number - layers * kTensors)) {
      case GlobalTensor::kEmbedding: return "model.embed_tokens.weight";
      case GlobalTensor::kFinalNorm: return "model.norm.weight";
      case GlobalTensor::kHead: return "lm_head.weight";
    }
  }
  static constexpr const char* kNames[kTensors] = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                                                   "self_attn.o_proj", "mlp.gate_proj",    "mlp.up_proj",
                                                   "mlp.down_proj",    "input_layernorm",  "post_attention_layernorm",
                                                   "self_attn.q_norm", "self_attn.k_norm"};
  return fmt::format("model.layers.{}.{}.weight", number / kTensors, kNames[number % kTensors]);
}

}  // namespace qwen3
}  // namespace farwarp
