// Folders of models for tests.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "farwarp/base/half.h"
#include "farwarp/base/temporary_folder_test.h"
#include "farwarp/models/qwen3/case/oracle.h"
#include "farwarp/models/qwen3/qwen3.h"
#include "farwarp/models/qwen3/weights/files.h"
#include "farwarp/models/safetensors.h"

namespace farwarp::qwen3 {

using nlohmann::json;

constexpr std::uint64_t kSeed = 3;

struct Written {
  std::vector<std::int64_t> shape;
  std::string bytes;
  std::string dtype = "BF16";
};
using Tensors = std::map<std::string, Written>;

/// The tensors that create_random() makes from kSeed, with the shapes that Hugging Face gives them.
inline Tensors tensors_of(const Qwen3Config& config) {
  const OracleWeights weights(config, kSeed);
  Tensors tensors;
  const auto add = [&](std::int32_t number, const std::vector<float>& values, std::vector<std::int64_t> shape) {
    std::string bytes(values.size() * 2, '\0');
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::uint16_t bits = bf16_from(values[i]).bits;
      std::memcpy(bytes.data() + 2 * i, &bits, 2);
    }
    tensors[tensor_name(number, config.layers)] = {std::move(shape), std::move(bytes)};
  };
  const int heads = config.query_heads * config.head_dim, kv = config.kv_heads * config.head_dim;
  const std::pair<Tensor, std::vector<std::int64_t>> of_layer[] = {
      {Tensor::kQ, {heads, config.hidden}},
      {Tensor::kK, {kv, config.hidden}},
      {Tensor::kV, {kv, config.hidden}},
      {Tensor::kOut, {config.hidden, heads}},
      {Tensor::kGate, {config.intermediate, config.hidden}},
      {Tensor::kUp, {config.intermediate, config.hidden}},
      {Tensor::kDown, {config.hidden, config.intermediate}},
      {Tensor::kInputNorm, {config.hidden}},
      {Tensor::kPostNorm, {config.hidden}},
      {Tensor::kQNorm, {config.head_dim}},
      {Tensor::kKNorm, {config.head_dim}}};
  for (int layer = 0; layer < config.layers; ++layer) {
    for (const auto& [tensor, shape] : of_layer) add(tensor_number(tensor, layer), weights.of(tensor, layer), shape);
  }
  const std::pair<GlobalTensor, std::vector<std::int64_t>> of_model[] = {
      {GlobalTensor::kEmbedding, {config.vocabulary, config.hidden}},
      {GlobalTensor::kFinalNorm, {config.hidden}},
      {GlobalTensor::kHead, {config.vocabulary, config.hidden}}};
  for (const auto& [tensor, shape] : of_model) add(tensor_number(tensor, config.layers), weights.of(tensor), shape);
  return tensors;
}

inline json config_json(const Qwen3Config& config) {
  return {{"architectures", {"Qwen3ForCausalLM"}},
          {"hidden_act", "silu"},
          {"attention_bias", false},
          {"torch_dtype", "bfloat16"},
          {"hidden_size", config.hidden},
          {"num_hidden_layers", config.layers},
          {"num_attention_heads", config.query_heads},
          {"num_key_value_heads", config.kv_heads},
          {"head_dim", config.head_dim},
          {"intermediate_size", config.intermediate},
          {"vocab_size", config.vocabulary},
          {"rms_norm_eps", 1e-6},
          {"rope_theta", 1000000},
          {"tie_word_embeddings", false}};
}

inline void write_file(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

inline std::string file_of(const Tensors& tensors) {
  json header = {{"__metadata__", {{"format", "pt"}}}};
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    header[name] = {{"dtype", tensor.dtype},
                    {"shape", tensor.shape},
                    {"data_offsets", {data.size(), data.size() + tensor.bytes.size()}}};
    data += tensor.bytes;
  }
  const std::string text = header.dump();
  std::string bytes(8, '\0');
  const std::uint64_t length = text.size();
  std::memcpy(bytes.data(), &length, 8);
  return bytes + text + data;
}

/// A new folder with a model in `files` files; the process removes it at its end.
inline std::string folder_with(const Tensors& tensors, const json& config, int files = 1) {
  static const TemporaryFolder all;
  static std::atomic<int> number = 0;
  const std::string folder = all / std::to_string(++number);
  std::filesystem::create_directory(folder);
  write_file(folder + "/config.json", config.dump());
  if (files == 1) {
    write_file(folder + "/model.safetensors", file_of(tensors));
    return folder;
  }
  std::vector<Tensors> shards(static_cast<std::size_t>(files));
  json map = json::object();
  std::size_t i = 0;
  for (const auto& [name, tensor] : tensors) {
    const std::size_t shard = i++ % shards.size();
    shards[shard][name] = tensor;
    map[name] = fmt::format("model-{}.safetensors", shard);
  }
  for (std::size_t shard = 0; shard < shards.size(); ++shard)
    write_file(fmt::format("{}/model-{}.safetensors", folder, shard), file_of(shards[shard]));
  write_file(folder + "/model.safetensors.index.json", json{{"weight_map", map}}.dump());
  return folder;
}

}  // namespace farwarp::qwen3
