// A model from files: the same bits as the same weights from a seed, and what is refused.
#include "farwarp/models/qwen3/files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "farwarp/base/half.h"
#include "farwarp/harness/device_buffer_test_values.h"
#include "farwarp/models/qwen3/case/oracle.h"
#include "farwarp/models/qwen3/qwen3.h"
#include "farwarp/models/safetensors.h"
#include "farwarp/world/host/world_test_fixture.h"

namespace farwarp {
namespace {

using nlohmann::json;
using qwen3::GlobalTensor;
using qwen3::Tensor;

constexpr std::uint64_t kSeed = 3;

struct Written {
  std::vector<std::int64_t> shape;
  std::string bytes;
  std::string dtype = "BF16";
};
using Tensors = std::map<std::string, Written>;

/// The tensors that create_random() makes from kSeed, with the shapes that Hugging Face gives them.
Tensors tensors_of(const Qwen3Config& config) {
  const qwen3::OracleWeights weights(config, kSeed);
  Tensors tensors;
  const auto add = [&](std::int32_t number, const std::vector<float>& values, std::vector<std::int64_t> shape) {
    std::string bytes(values.size() * 2, '\0');
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::uint16_t bits = bf16_from(values[i]).bits;
      std::memcpy(bytes.data() + 2 * i, &bits, 2);
    }
    tensors[qwen3::tensor_name(number, config.layers)] = {std::move(shape), std::move(bytes)};
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

json config_json(const Qwen3Config& config) {
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

void write_file(const std::string& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

std::string file_of(const Tensors& tensors) {
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

/// A new folder with a model in `files` files.
std::string folder_with(const Tensors& tensors, const json& config, int files = 1) {
  static int number = 0;
  const std::string folder = fmt::format("{}/qwen3_files_{}", testing::TempDir(), ++number);
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
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

class Qwen3Files : public WorldTestOf<TargetKind> {
 protected:
  /// The bits of the logits of two tokens; those of other ranks' tokens are zeros.
  static std::vector<std::byte> logits_of(Result<Qwen3Decoder> decoder, World& world, Stream stream) {
    EXPECT_TRUE(decoder.ok()) << decoder.status().to_string();
    if (!decoder.ok()) return {};
    constexpr int kTokens = 2;
    const auto vocabulary = static_cast<std::size_t>(decoder->plan().config.vocabulary);
    std::vector<std::byte> bytes(kTokens * vocabulary * 4);
    const harness::DeviceBuffer logits = harness::buffer_of(world.device(), bytes.size()),
                                sampled = harness::buffer_of(world.device(), kTokens * 4);
    const std::int32_t prompt[] = {5, 7};
    Status status = world.device().fill(logits.get(), 0, bytes.size(), stream);
    if (status.ok()) status = decoder->start(0, prompt, stream);
    if (status.ok())
      status = decoder->decode({.tokens = kTokens, .sampled = sampled.as<std::int32_t>(), .logits = logits.as<float>()},
                               stream);
    if (status.ok()) status = world.device().synchronize(stream, 60'000'000'000);
    if (status.ok()) status = logits.download(bytes.data(), bytes.size(), stream);
    EXPECT_TRUE(status.ok()) << status.to_string();
    EXPECT_TRUE(decoder->close().ok());
    return bytes;
  }
};
INSTANTIATE_TEST_SUITE_P(Targets, Qwen3Files, testing::Values(TargetKind::kEmuSm90, TargetKind::kEmuGfx942),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST_P(Qwen3Files, GiveTheSameBitsAsTheSameWeightsFromASeed) {
  on_streams(1, options(), [](World& world, Stream stream) {
    const Qwen3Config config = *qwen3_config("nano");
    const Qwen3Limits limits{.positions = 16, .max_sms = 3};
    const auto expected = logits_of(Qwen3Decoder::create_random(world, config, limits, kSeed), world, stream);
    for (const int files : {1, 3}) {
      const std::string folder = folder_with(tensors_of(config), config_json(config), files);
      EXPECT_EQ(logits_of(Qwen3Decoder::create(world, folder, limits), world, stream), expected) << files;
    }
  });
}

/// Each rank takes its part of the files.
TEST_P(Qwen3Files, GiveTheSameBitsOnTwoRanks) {
  const Qwen3Config config = *qwen3_config("nano4");
  const std::string folder = folder_with(tensors_of(config), config_json(config));
  on_streams(2, options(), [&](World& world, Stream stream) {
    const Qwen3Limits limits{.positions = 16, .max_sms = 2};
    const auto expected = logits_of(Qwen3Decoder::create_random(world, config, limits, kSeed), world, stream);
    EXPECT_EQ(logits_of(Qwen3Decoder::create(world, folder, limits), world, stream), expected);
  });
}

TEST_P(Qwen3Files, ATensorThatIsMissingOrWrongIsNamed) {
  on_streams(1, options(), [](World& world, Stream) {
    const Qwen3Config config = *qwen3_config("nano");
    const auto message = [&](const std::string& folder) {
      const std::string text = Qwen3Decoder::create(world, folder, {.positions = 16, .max_sms = 3}).status().message();
      return text.substr(text.find(": ") + 2);
    };
    const Tensors right = tensors_of(config);
    Tensors tensors = right;
    tensors.erase("model.layers.1.mlp.up_proj.weight");
    EXPECT_EQ(message(folder_with(tensors, config_json(config))),
              "tensor 'model.layers.1.mlp.up_proj.weight' is missing");
    tensors = right;
    tensors["model.norm.weight"].shape = {2, config.hidden / 2};
    EXPECT_EQ(message(folder_with(tensors, config_json(config))),
              "tensor 'model.norm.weight' is BF16 [2, 128]; allowed: BF16 [256]");
    tensors = right;
    tensors["lm_head.weight"].dtype = "F16";
    EXPECT_EQ(message(folder_with(tensors, config_json(config))),
              "tensor 'lm_head.weight' is F16 [40, 256]; allowed: BF16 [40, 256]");
  });
}

/// The other rank has all of its tensors.
TEST_P(Qwen3Files, ARankThatCannotLoadFailsAll) {
  const Qwen3Config config = *qwen3_config("nano4");
  Tensors tensors = tensors_of(config);
  const std::string whole = folder_with(tensors, config_json(config));
  tensors.erase("model.norm.weight");
  const std::string without = folder_with(tensors, config_json(config));
  on_streams(2, options(), [&](World& world, Stream stream) {
    const Qwen3Limits limits{.positions = 16, .max_sms = 2, .prefill_tokens = 16};
    const Status status = Qwen3Decoder::create(world, world.rank() == 0 ? whole : without, limits).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);  // rank 0 has the reason of rank 1
    EXPECT_EQ(contains(status.to_string(), "rank 1: "), world.rank() == 0) << status.to_string();
    EXPECT_TRUE(contains(status.to_string(), "model.norm.weight")) << status.to_string();
    auto decoder = Qwen3Decoder::create(world, whole, limits);
    EXPECT_FALSE(logits_of(std::move(decoder), world, stream).empty());
  });
}

TEST_P(Qwen3Files, WeightsThatAreNoNumbersEndTheCall) {
  on_streams(1, options(), [](World& world, Stream stream) {
    const Qwen3Config config = *qwen3_config("nano");
    const Qwen3Limits limits{.positions = 16, .max_sms = 3};
    Tensors tensors = tensors_of(config);
    tensors["model.layers.0.mlp.down_proj.weight"].bytes.replace(100, 2, "\xff\x7f");
    auto decoder = Qwen3Decoder::create(world, folder_with(tensors, config_json(config)), limits);
    ASSERT_TRUE(decoder.ok()) << decoder.status().to_string();
    const harness::DeviceBuffer sampled = harness::buffer_of(world.device(), 16);
    const std::int32_t prompt[] = {5};
    ASSERT_TRUE(decoder->start(0, prompt, stream).ok());
    ASSERT_TRUE(decoder->decode({.tokens = 2, .sampled = sampled.as<std::int32_t>()}, stream).ok());
    EXPECT_TRUE(world.device().synchronize(stream, 60'000'000'000).ok());
    EXPECT_EQ(world.status().code(), StatusCode::kBadInput);
    EXPECT_NE(world.status().message().find("'logits': column 0 has no numbers at position 0"), std::string::npos)
        << world.status().message();
    EXPECT_TRUE(decoder->close().ok());
    ASSERT_TRUE(world.recover({stream}).ok());
    const std::string right = folder_with(tensors_of(config), config_json(config));
    EXPECT_EQ(logits_of(Qwen3Decoder::create(world, right, limits), world, stream),
              logits_of(Qwen3Decoder::create_random(world, config, limits, kSeed), world, stream));
  });
}

/// The embedding of one token is no number; two ranks sample. A sequence that has it ends the call; then the same decoder is right again.
TEST_P(Qwen3Files, AfterANumberThatIsNoneTheSameDecoderGoesOn) {
  for (const int ranks : {1, 2}) {
    const Qwen3Config config = *qwen3_config(ranks == 1 ? "nano" : "nano4");
    Tensors tensors = tensors_of(config);
    constexpr std::size_t kToken = 9;
    tensors["model.embed_tokens.weight"].bytes.replace(kToken * static_cast<std::size_t>(config.hidden) * 2, 2,
                                                       "\xff\x7f");
    const std::string folder = folder_with(tensors, config_json(config));
    on_streams(ranks, options(), [&](World& world, Stream stream) {
      const Qwen3Limits limits{.positions = 16, .max_sms = 2, .most_top_k = ranks == 1 ? 0 : 4};
      auto decoder = Qwen3Decoder::create(world, folder, limits);
      ASSERT_TRUE(decoder.ok()) << decoder.status().to_string();
      const harness::DeviceBuffer sampled = harness::buffer_of(world.device(), 16);
      const Qwen3Call call{.tokens = 3, .sampled = sampled.as<std::int32_t>()};
      const std::int32_t prompt[] = {5, kToken, 7};
      const Qwen3Sampling sampling{.temperature = ranks == 1 ? 0.0f : 1.0f, .top_k = 4};
      ASSERT_TRUE(decoder->start(0, prompt, stream, sampling).ok());
      ASSERT_TRUE(decoder->decode(call, stream).ok());
      EXPECT_TRUE(world.device().synchronize(stream, 60'000'000'000).ok());
      const StatusCode code = world.status().code();
      EXPECT_TRUE(code == StatusCode::kBadInput || (ranks > 1 && code == StatusCode::kAborted));
      EXPECT_EQ(decoder->decode(call, stream).code(), code);
      ASSERT_TRUE(world.recover({stream}).ok());
      EXPECT_EQ(decoder->decode(call, stream).code(), StatusCode::kMisuse);  // no sequence is left
      const auto again = logits_of(std::move(*decoder), world, stream);
      EXPECT_EQ(again, logits_of(Qwen3Decoder::create_random(world, config, limits, kSeed), world, stream));
    });
  }
}

TEST(Safetensors, DamageIsNamed) {
  const Tensors tensors = {{"a", {{2, 3}, std::string(12, 'x')}}};
  const std::string bytes = file_of(tensors), folder = folder_with(tensors, json::object());
  const auto message = [&](const std::string& damaged) {
    write_file(folder + "/model.safetensors", damaged);
    const std::string text = Safetensors::open(folder).status().message();
    return text.substr(text.find(": ") + 2);
  };
  EXPECT_EQ(message(bytes.substr(0, bytes.size() - 1)),
            "tensor 'a' is at bytes 0 to 12; the file has 11: it is truncated");
  EXPECT_EQ(message("short"), "has 5 bytes; allowed: at least 8");
  std::string long_header = bytes;
  long_header[2] = 1;
  EXPECT_EQ(message(long_header), fmt::format("its header has {} bytes; allowed: up to {}",
                                              65536 + static_cast<unsigned char>(bytes[0]), bytes.size() - 8));
  std::string no_json = bytes;
  no_json[8] = '[';
  EXPECT_EQ(message(no_json), "its header is no JSON object");
  Tensors short_one = tensors;
  short_one["a"].shape = {2, 2};
  EXPECT_EQ(message(file_of(short_one)), "tensor 'a' has 12 bytes; its dtype and shape need 8");
  for (std::size_t length = 0; length < bytes.size();
       ++length) {  // no prefix of a file crashes, or is taken for the file
    write_file(folder + "/model.safetensors", bytes.substr(0, length));
    EXPECT_FALSE(Safetensors::open(folder).ok()) << length;
  }
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    std::string damaged = bytes;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x55);
    write_file(folder + "/model.safetensors", damaged);
    (void)Safetensors::open(folder);  // may succeed or fail, but reads only within the file
  }
  std::filesystem::remove(folder + "/model.safetensors");
  EXPECT_NE(Safetensors::open(folder).status().message().find("model.safetensors: cannot be read"), std::string::npos);
}

TEST(Qwen3Config, AnotherModelIsRefused) {
  const json right = config_json(*qwen3_config("nano"));
  const auto message = [&](const char* field, const json& value) {
    json wrong = right;
    wrong[field] = value;
    const std::string folder = folder_with({}, wrong);
    const std::string text = read_qwen3_config(folder).status().message();
    const std::string path = folder + "/config.json: ";
    return text.starts_with(path) ? text.substr(path.size()) : text;
  };
  EXPECT_EQ(message("hidden_act", "silu"), "");
  EXPECT_EQ(message("architectures", {"LlamaForCausalLM"}),
            R"(architectures is ["LlamaForCausalLM"]; allowed: ["Qwen3ForCausalLM"])");
  EXPECT_EQ(message("attention_bias", true), "attention_bias is true; allowed: false");
  EXPECT_EQ(message("torch_dtype", "float16"), R"(torch_dtype is "float16"; allowed: "bfloat16")");
  EXPECT_EQ(message("vocab_size", -1), "vocab_size is -1; allowed: a count");
  EXPECT_EQ(message("hidden_size", 100), "Qwen3Config.hidden is 100; allowed: a multiple of 256 up to 5120");
  json newer = right;
  newer.erase("rope_theta");
  newer["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 5e5}};
  const auto config = read_qwen3_config(folder_with({}, newer));
  ASSERT_TRUE(config.ok()) << config.status().to_string();
  EXPECT_EQ(config->rope_theta, 5e5f);
  EXPECT_EQ(message("rope_parameters", {{"rope_type", 3}}), "rope_parameters.rope_type is 3; allowed: \"default\"");
}

}  // namespace
}  // namespace farwarp
