// A model from files: the same bits as the same weights from a seed, and what is refused.
#include "farwarp/models/qwen3/weights/files.h"

#include "farwarp/harness/device_buffer_test_values.h"
#include "farwarp/models/qwen3/model_folder_test.h"
#include "farwarp/world/host/world_test_fixture.h"

namespace farwarp {
namespace {

using namespace qwen3;

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

/// The embedding of one token is no number; two ranks sample. A sequence that has it ends the call; then the same
/// decoder is right again.
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

}  // namespace
}  // namespace farwarp
