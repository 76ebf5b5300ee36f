// The files of a model, without a device: what is read, and what is refused.
#include "farwarp/models/qwen3/model_folder_test.h"

namespace farwarp {
namespace {

using namespace qwen3;

bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

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
  EXPECT_TRUE(message(no_json).starts_with("its header: not valid JSON")) << message(no_json);
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
  EXPECT_TRUE(
      contains(Safetensors::open(folder).status().message(), "model.safetensors: cannot be read: No such file"));
}

/// A file with this header and so many bytes of data.
std::string file_with(const std::string& header, std::size_t data) {
  std::string bytes(8, '\0');
  const std::uint64_t length = header.size();
  std::memcpy(bytes.data(), &length, 8);
  return bytes + header + std::string(data, 'x');
}

/// What the reference implementation (the safetensors crate) refuses: holes, bytes of two tensors, bytes of none.
TEST(Safetensors, TheTensorsFillTheFile) {
  const std::string folder = folder_with({}, json::object());
  const auto message = [&](const std::string& header, std::size_t data) {
    write_file(folder + "/model.safetensors", file_with(header, data));
    const Status status = Safetensors::open(folder).status();
    return status.ok() ? "" : status.message().substr(status.message().find(": ") + 2);
  };
  const auto tensor = [](const char* name, int begin, int end, const char* more = "") {
    return fmt::format(R"("{}": {{"dtype": "BF16", "shape": [{}], "data_offsets": [{}, {}]{}}})", name,
                       (end - begin) / 2, begin, end, more);
  };
  const auto all = [](std::initializer_list<std::string> tensors) {
    return fmt::format("{{{}}}", fmt::join(tensors, ", "));
  };
  EXPECT_EQ(message(all({tensor("b", 0, 4), tensor("a", 4, 10)}), 10), "");  // in any order of names
  EXPECT_EQ(message(all({tensor("a", 0, 4), tensor("b", 4, 4), tensor("c", 4, 4), tensor("d", 4, 6)}), 6), "");
  EXPECT_EQ(message(all({tensor("a", 0, 4, ", \"more\": [1]"), R"("__metadata__": {"format": "pt"})"}), 4), "");
  EXPECT_EQ(message("{}", 0), "");
  EXPECT_EQ(message(all({tensor("a", 0, 4), tensor("b", 6, 10)}), 10),
            "tensor 'b' is at bytes 6 to 10; allowed: from 4, where the one before ends");
  EXPECT_EQ(message(all({tensor("a", 2, 4)}), 4),
            "tensor 'a' is at bytes 2 to 4; allowed: from 0, where the one before ends");
  EXPECT_EQ(message(all({tensor("a", 0, 4), tensor("b", 2, 6)}), 6),
            "tensor 'b' is at bytes 2 to 6; allowed: from 4, where the one before ends");
  EXPECT_EQ(message(all({tensor("a", 0, 4), tensor("b", 0, 4)}), 4),
            "tensors 'a' and 'b' are at the same bytes, 0 to 4");
  EXPECT_EQ(message(all({tensor("a", 0, 8), tensor("b", 2, 2)}), 8),
            "tensor 'b' is at bytes 2 to 2; allowed: from 8, where the one before ends");
  EXPECT_EQ(message(all({tensor("a", 0, 4)}), 5), "has 5 bytes of data; its tensors end at 4");
  EXPECT_EQ(message("{}", 1), "has 1 bytes of data; its tensors end at 0");
  EXPECT_EQ(message(all({tensor("a", 0, 4), tensor("a", 0, 4)}), 4),
            "its header: key \"a\" is given twice in one object");
  EXPECT_EQ(message(R"({"a": {"dtype": "BF16", "shape": [2], "data_offsets": [4, 0]}})", 4),
            "tensor 'a' is at bytes 4 to 0");
  EXPECT_EQ(message(R"({"a": {"dtype": "BF17", "shape": [2], "data_offsets": [0, 4]}})", 4),
            "tensor 'a' has the dtype \"BF17\"; allowed: those of the format");
  EXPECT_EQ(message(R"({"a": {"dtype": "F4", "shape": [3], "data_offsets": [0, 2]}})", 2),
            "tensor 'a' has 12 bits, which are no whole bytes");
  EXPECT_EQ(message(R"({"a": {"dtype": "F4", "shape": [4], "data_offsets": [0, 2]}})", 2), "");
  EXPECT_EQ(
      message(R"({"a": {"dtype": "U8", "shape": [281474976710655, 281474976710655], "data_offsets": [0, 2]}})", 2),
      "tensor 'a' is too large");
  EXPECT_EQ(message(R"({"a": {"dtype": "U8", "shape": [-1], "data_offsets": [0, 2]}})", 2),
            "tensor 'a' has a shape that is no list of counts");
  EXPECT_EQ(message(R"({"__metadata__": {"a": 1}})", 0), "__metadata__ is no object of texts");
  EXPECT_EQ(message(std::string(100'000, '['), 0).substr(0, 12), "its header: ");
}

TEST(Safetensors, WhatTheIndexNamesIsAFileOfTheFolder) {
  const Tensors tensors = {{"a", {{2, 3}, std::string(12, 'x')}}, {"b", {{1}, std::string(2, 'y')}}};
  const std::string folder = folder_with(tensors, json::object(), 2), index = folder + "/model.safetensors.index.json";
  ASSERT_TRUE(Safetensors::open(folder).ok());
  EXPECT_EQ(*Safetensors::files_of(folder), (std::set<std::string>{"model-0.safetensors", "model-1.safetensors"}));
  const auto message = [&](const std::string& text) {
    write_file(index, text);
    const std::string all = Safetensors::open(folder).status().message();
    return all.substr(all.find(": ") + 2);
  };
  for (const char* name : {"../model.safetensors", "/etc/passwd", "", ".", "..", "a\\u0000b"})
    EXPECT_TRUE(contains(message(fmt::format(R"({{"weight_map": {{"a": "{}"}}}})", name)), "weight_map['a'] is \""))
        << name;
  EXPECT_EQ(message("[]"), "has no object 'weight_map'");
  EXPECT_TRUE(message("{").starts_with("not valid JSON"));
  EXPECT_EQ(message(R"({"weight_map": {"a": "x", "a": "y"}})"), "key \"a\" is given twice in one object");
  std::filesystem::remove(index);
  std::filesystem::create_directory(index);
  EXPECT_EQ(Safetensors::open(folder).status().message(), index + ": is a folder; allowed: a regular file");
  write_file(folder + "/model.safetensors", file_of({}));  // of both, as transformers does
  EXPECT_EQ(*Safetensors::files_of(folder), std::set<std::string>{"model.safetensors"});
}

/// transformers does not tie them then.
TEST(Qwen3Config, ATiedModelWithAnotherHeadIsRefused) {
  const Qwen3Config plain = *qwen3_config("nano");
  Qwen3Config config = plain;
  config.tied = true;
  Tensors tensors = tensors_of(plain);
  const auto tie = [&] { return check_qwen3_tie(*Safetensors::open(folder_with(tensors, json::object())), config); };
  EXPECT_TRUE(contains(tie().message(), "tie_word_embeddings is true, and tensor 'lm_head.weight' is another one"));
  tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"];
  EXPECT_TRUE(tie().ok());
  tensors.erase("lm_head.weight");
  EXPECT_TRUE(tie().ok());
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

/// Each key that changes what transformers' Qwen3 computes.
TEST(Qwen3Config, WhatIsNotComputedIsRefusedByName) {
  const json right = config_json(*qwen3_config("nano"));
  const auto message = [&](const json& more) {
    json config = right;
    config.update(more);
    const std::string folder = folder_with({}, config);
    const std::string text = read_qwen3_config(folder).status().message();
    return text.starts_with(folder) ? text.substr(folder.size() + 14) : text;
  };
  const std::pair<json, const char*> refused[] = {
      {{{"rope_parameters", {{"type", "linear"}, {"factor", 4.0}}}},
       "rope_parameters.factor is 4.0; allowed: no such key"},
      {{{"rope_parameters", {{"type", "linear"}}}}, R"(rope_parameters.type is "linear"; allowed: "default")"},
      {{{"rope_scaling", {{"type", "linear"}}}}, R"(rope_scaling.type is "linear"; allowed: "default")"},
      {{{"rope_scaling", {{"rope_type", "yarn"}}}}, R"(rope_scaling.rope_type is "yarn"; allowed: "default")"},
      {{{"rope_scaling", {{"factor", 2}}}}, "rope_scaling.factor is 2; allowed: no such key"},
      {{{"rope_scaling", "yarn"}}, R"(rope_scaling is "yarn"; allowed: an object)"},
      {{{"rope_parameters", {{"full_attention", {{"rope_theta", 1e6}}}}}}, "rope_parameters.full_attention is "},
      {{{"rope_parameters", {{"partial_rotary_factor", 0.5}}}},
       "rope_parameters.partial_rotary_factor is 0.5; allowed: 1"},
      {{{"rope_parameters", {{"rope_theta", 1e4}}}}, "rope_parameters.rope_theta is 10000.0; allowed: 1000000"},
      {{{"partial_rotary_factor", 0.5}}, "partial_rotary_factor is 0.5; allowed: 1"},
      {{{"rope_theta", 1e300}}, "rope_theta is 1e+300; allowed: a number above 0 that float has"},
      {{{"rms_norm_eps", 1e-60}}, "rms_norm_eps is 1e-60; allowed: a number above 0 that float has"},
      {{{"model_type", "qwen2"}}, R"(model_type is "qwen2"; allowed: "qwen3")"},
      {{{"hidden_act", "gelu"}}, R"(hidden_act is "gelu"; allowed: "silu")"},
      {{{"use_sliding_window", true}}, "use_sliding_window is true; allowed: false"},
      {{{"layer_types", {"full_attention", "sliding_attention"}}}, "layer_types is "},
      {{{"layer_types", {"full_attention"}}}, "layer_types is "},
      {{{"quantization_config", {{"bits", 4}}}}, "quantization_config is {\"bits\":4}; allowed: no such key"},
      {{{"tie_word_embeddings", 1}}, "tie_word_embeddings is 1; allowed: true, false"},
      {{{"tie_word_embeddings", "true"}}, "tie_word_embeddings is \"true\"; allowed: true, false"},
      {{{"mlp_bias", true}}, "mlp_bias is true; allowed: false"},
      {{{"head_dim", nullptr}}, "head_dim is null; allowed: a count"},
      {{{"num_key_value_heads", 1.5}}, "num_key_value_heads is 1.5; allowed: a count"}};
  for (const auto& [more, words] : refused) EXPECT_TRUE(message(more).starts_with(words)) << message(more);
  const json taken[] = {{{"rope_scaling", {{"type", "default"}, {"rope_theta", 1e6}}}},
                        {{"rope_scaling", nullptr}, {"sliding_window", 4096}, {"max_window_layers", 1}},
                        {{"rope_parameters", {{"rope_type", "default"}, {"partial_rotary_factor", 1.0}}}},
                        {{"layer_types", {"full_attention", "full_attention"}}, {"use_sliding_window", false}},
                        {{"attention_dropout", 0.5}, {"max_position_embeddings", 3}, {"model_type", "qwen3"}}};
  for (const json& more : taken) EXPECT_EQ(message(more), "");
  const std::string twice = folder_with({}, right);
  write_file(twice + "/config.json", R"({"rope_theta": 1, "rope_theta": 2})");
  EXPECT_TRUE(contains(read_qwen3_config(twice).status().message(), "key \"rope_theta\" is given twice"));
  write_file(twice + "/config.json", std::string(500'000, '['));
  EXPECT_FALSE(read_qwen3_config(twice).ok());
  write_file(twice + "/config.json", R"({"architectures": )" + std::string(500, '[') + std::string(500, ']') + "}");
  EXPECT_TRUE(contains(read_qwen3_config(twice).status().message(), "nested deeper than 16 levels"));
  write_file(twice + "/config.json", std::string((1 << 20) + 1, ' '));
  EXPECT_TRUE(contains(read_qwen3_config(twice).status().message(), "has 1048577 bytes; allowed: up to 1048576"));
}

TEST(Qwen3Generation, IsTheModelsOrRefusedByName) {
  const Qwen3Config config = *qwen3_config("nano");
  const std::string folder = folder_with({}, config_json(config)), file = folder + "/generation_config.json";
  EXPECT_TRUE(read_qwen3_generation(folder, config)->end_tokens.empty());
  json own = config_json(config);
  own["eos_token_id"] = 7;
  write_file(folder + "/config.json", own.dump());
  EXPECT_EQ(read_qwen3_generation(folder, config)->end_tokens, std::vector<std::int32_t>{7});
  const auto read = [&](const json& fields) {
    write_file(file, fields.dump());
    return read_qwen3_generation(folder, config);
  };
  EXPECT_TRUE(read(json::object())->end_tokens.empty());  // of the two files one counts
  EXPECT_EQ(read({{"eos_token_id", {3, 39}}})->end_tokens, (std::vector<std::int32_t>{3, 39}));
  EXPECT_EQ(read({{"temperature", 0.6}})->temperature, 0) << "do_sample is false";
  const auto draws = read({{"do_sample", true}, {"temperature", 0.6}, {"top_k", 20}, {"top_p", 0.95}});
  ASSERT_TRUE(draws.ok()) << draws.status().to_string();
  EXPECT_EQ(draws->temperature, 0.6f);
  EXPECT_EQ(draws->top_k, 20);
  EXPECT_EQ(draws->top_p, 0.95f);
  EXPECT_TRUE(read({{"repetition_penalty", 1.0},
                    {"bad_words_ids", nullptr},
                    {"suppress_tokens", json::array()},
                    {"min_p", 0.3},
                    {"bos_token_id", 1},
                    {"pad_token_id", 2},
                    {"max_length", 5}})
                  .ok());
  const std::pair<json, const char*> refused[] = {
      {{{"eos_token_id", 40}}, "eos_token_id is 40; allowed: up to 8 tokens of 0 to 39"},
      {{{"eos_token_id", {1, -1}}}, "eos_token_id is [1,-1]; allowed"},
      {{{"eos_token_id", "1"}}, "eos_token_id is \"1\"; allowed"},
      {{{"eos_token_id", {1, 2, 3, 4, 5, 6, 7, 8, 9}}}, "eos_token_id is [1,2,3,4,5,6,7,8,9]; allowed: up to 8 tokens"},
      {{{"repetition_penalty", 1.1}}, "repetition_penalty is 1.1; allowed: 1"},
      {{{"no_repeat_ngram_size", 2}}, "no_repeat_ngram_size is 2; allowed: 0"},
      {{{"min_new_tokens", 2}}, "min_new_tokens is 2; allowed: 0"},
      {{{"num_beams", 2}}, "num_beams is 2; allowed: 1"},
      {{{"suppress_tokens", {1}}}, "suppress_tokens is [1]; allowed: no such key"},
      {{{"bad_words_ids", {{1}}}}, "bad_words_ids is [[1]]; allowed: no such key"},
      {{{"forced_eos_token_id", 1}}, "forced_eos_token_id is 1; allowed: no such key"},
      {{{"cache_implementation", "quantized"}}, "cache_implementation is \"quantized\"; allowed"},
      {{{"do_sample", 1}}, "do_sample is 1; allowed: true, false"},
      {{{"do_sample", true}, {"min_p", 0.3}}, "min_p is 0.3; allowed: 0"},
      {{{"do_sample", true}, {"temperature", 0}}, "temperature is 0; allowed: a number above 0"}};
  for (const auto& [fields, words] : refused) {
    const std::string message = read(fields).status().message();
    EXPECT_TRUE(message.starts_with(file + ": " + words)) << message;
  }
  std::filesystem::remove(file);
  std::filesystem::create_directory(file);
  EXPECT_EQ(read_qwen3_generation(folder, config).status().message(), file + ": is a folder; allowed: a regular file");
}

}  // namespace
}  // namespace farwarp
