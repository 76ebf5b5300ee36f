// farwarp decode and farwarp graph as their user runs them.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <vector>

#include "program_test_fixture.h"

namespace {

using nlohmann::json;
using Tokens = std::vector<int>;

class DecodeCommand : public ProgramTest {
 protected:
  /// The results of `arguments`, on the emulator, of a model of two layers and 40 tokens.
  json decode(const std::string& arguments, const std::string& target = "emu_sm90") const {
    const Output output = run("decode --model random:nano --target " + target + " --json - " + arguments);
    EXPECT_EQ(output.code, 0) << arguments << "\n" << output.err;
    return json::parse(output.out, nullptr, false);
  }
  static Tokens tokens(const json& result, std::size_t sequence = 0) {
    return result.at("sequences").at(sequence).at("tokens").get<Tokens>();
  }
  std::string file(const std::string& text) const {
    std::string path = (folder_ / "prompts.txt").string();
    std::ofstream(path) << text;
    return path;
  }
  /// The numbers of a float32 .npy file; its shape must be `shape`.
  std::vector<float> numbers(const std::filesystem::path& path, const std::string& shape) const {
    const std::string bytes = text_of(path);
    EXPECT_GT(bytes.size(), 128u);
    EXPECT_EQ(bytes.substr(0, 10), std::string("\x93NUMPY\x01\x00\x76\x00", 10));
    const std::string header = bytes.substr(10, 118);
    EXPECT_EQ(header.rfind("{'descr': '<f4', 'fortran_order': False, 'shape': " + shape + ", }", 0), 0u) << header;
    EXPECT_EQ(header.back(), '\n');
    std::vector<float> values((bytes.size() - 128) / 4);
    std::memcpy(values.data(), bytes.data() + 128, values.size() * 4);
    return values;
  }
};

TEST_F(DecodeCommand, BothDispatchersAndAnyBatchGiveTheSameTokens) {
  const json alone = decode("--prompt 3,1 --tokens 3");
  ASSERT_EQ(tokens(alone).size(), 3u);
  EXPECT_EQ(alone.at("steps"), 4);
  EXPECT_EQ(alone.at("launches"), 1);
  EXPECT_EQ(alone.at("model"), "random:nano");
  EXPECT_EQ(alone.at("target"), "emu_sm90");
  EXPECT_GT(alone.at("seconds").get<double>(), 0);
  EXPECT_GT(alone.at("load_seconds").get<double>(), 0);
  EXPECT_NEAR(alone.at("tokens_per_second").get<double>() * alone.at("seconds").get<double>(), 4, 1e-6);
  const json graph = decode("--prompt '3 1' --tokens 2 --dispatcher graph");
  EXPECT_EQ(graph.at("dispatcher"), "graph");
  EXPECT_EQ(tokens(graph), Tokens({tokens(alone)[0], tokens(alone)[1]}));
  const json batch = decode("--prompt 3,1 --tokens 3 --batch 3 --positions 100");
  ASSERT_EQ(batch.at("sequences").size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(tokens(batch, i), tokens(alone)) << i;
  EXPECT_NE(tokens(decode("--prompt 3,1 --tokens 3 --seed 2")), tokens(alone));
}

TEST_F(DecodeCommand, GangGivesTheTokensOfStatic) {
  setenv("FARWARP_EMU_XCDS", "2", 1);
  const std::string arguments = "--prompt " + file("3 1\n5\n") + " --tokens 4 ";
  const json lists = decode(arguments, "emu_gfx942");
  const int second = tokens(lists, 1)[1];  // sequence 1 ends there
  const json gang = decode(arguments + "--dispatcher gang --end-token " + std::to_string(second), "emu_gfx942");
  unsetenv("FARWARP_EMU_XCDS");
  EXPECT_EQ(gang.at("dispatcher"), "gang");
  for (std::size_t sequence = 0; sequence < 2; ++sequence) {
    Tokens expected = tokens(lists, sequence);
    const auto end = std::find(expected.begin(), expected.end(), second);
    if (end != expected.end()) expected.erase(end + 1, expected.end());
    EXPECT_EQ(tokens(gang, sequence), expected) << sequence;
  }
}

TEST_F(DecodeCommand, PromptsOfDifferentLengthsGiveWhatEachGivesAlone) {
  const json together = decode("--tokens 4 --prompt " + file("3, 1,4\n\n7 8\n"));
  ASSERT_EQ(together.at("sequences").size(), 2u);
  EXPECT_EQ(together.at("steps"), 6);
  EXPECT_EQ(tokens(together, 0), tokens(decode("--tokens 4 --prompt 3,1,4")));
  EXPECT_EQ(tokens(together, 1), tokens(decode("--tokens 4 --prompt 7,8")));
  // A prompt that has the first choices, too, gets those that followed.
  const Tokens first = tokens(together);
  ASSERT_EQ(first.size(), 4u);
  const std::string longer = "3,1,4," + std::to_string(first[0]) + "," + std::to_string(first[1]);
  EXPECT_EQ(tokens(decode("--tokens 2 --prompt " + longer)), Tokens(first.begin() + 2, first.end()));
}

TEST_F(DecodeCommand, PrefilledPromptsGiveTheSameTokens) {
  std::string longest = "3";
  for (int i = 0; i < 17; ++i) longest += " " + std::to_string((7 * i + 5) % 40);
  const std::string arguments = "--tokens 3 --prompt " + file(longest + "\n7 8 9\n5\n");
  const json decoded = decode(arguments);
  const Output output = run("decode --model random:nano --target emu_sm90 --json - --prefill 16 " + arguments);
  ASSERT_EQ(output.code, 0) << output.err;
  const json prefilled = json::parse(output.out, nullptr, false);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(tokens(prefilled, i), tokens(decoded, i)) << i;
  EXPECT_EQ(decoded.at("steps"), 20);
  EXPECT_EQ(decoded.at("prefilled"), 0);
  EXPECT_EQ(decoded.at("prefill_tokens"), 0);
  EXPECT_EQ(prefilled.at("steps"), 3);
  EXPECT_EQ(prefilled.at("launches"), 1);
  EXPECT_EQ(prefilled.at("prefilled"), 17 + 2);
  EXPECT_EQ(prefilled.at("prefill_tokens"), 16);
  EXPECT_GT(prefilled.at("prefill_seconds").get<double>(), 0);
  EXPECT_EQ(prefilled.at("sequences").at(1).at("positions"), 3 + 2);
  EXPECT_NEAR(prefilled.at("tokens_per_second").get<double>() * prefilled.at("seconds").get<double>(), 9, 1e-6);
  EXPECT_NE(output.err.find("\nprefill of 19 tokens of prompts, 16 at a time: "), std::string::npos) << output.err;
  EXPECT_NE(output.err.find("sequences 3, positions 3 (without those prefilled), launches 1: "), std::string::npos)
      << output.err;
}

TEST_F(DecodeCommand, ALongPromptIsPrefilledAtOnce) {
  std::string prompt = "3";
  for (int i = 0; i < 64; ++i) prompt += "," + std::to_string(i % 40);
  const json result = decode("--tokens 1 --prompt " + prompt);
  EXPECT_EQ(result.at("prefill_tokens"), 64);
  EXPECT_EQ(result.at("prefilled"), 64);
  EXPECT_EQ(result.at("steps"), 1);
}

TEST_F(DecodeCommand, AnEndTokenEndsItsSequenceAlone) {
  const std::string prompts = file("3 1 4\n7\n");
  const json whole = decode("--tokens 6 --prompt " + prompts);
  const Tokens first = tokens(whole, 0), second = tokens(whole, 1);
  ASSERT_EQ(first.size(), 6u);
  const int end = first[3];
  const json ended = decode("--tokens 6 --prompt " + prompts + " --end-token " + std::to_string(end));
  const auto until_end = [&](const Tokens& all) {
    const auto at = std::find(all.begin(), all.end(), end);
    return Tokens(all.begin(), at == all.end() ? at : at + 1);
  };
  EXPECT_EQ(tokens(ended, 0), until_end(first));
  EXPECT_EQ(tokens(ended, 1), until_end(second));
  EXPECT_EQ(ended.at("sequences").at(0).at("ended"), true);
  EXPECT_EQ(ended.at("sequences").at(0).at("positions"), 2 + until_end(first).size());
  EXPECT_EQ(ended.at("sequences").at(1).at("ended"), until_end(second) != second);
  // A prompt's own tokens end nothing.
  EXPECT_EQ(tokens(decode("--prompt 3,1,4 --tokens 1 --end-token 3")), Tokens({first[0]}));
}

TEST_F(DecodeCommand, TextHasTheTokensOfEachSequence) {
  const json expected = decode("--prompt 3,1 --tokens 2");
  const Output output = run("decode --model random:nano --target emu_sm90 --prompt 3,1 --tokens 2 --batch 2");
  EXPECT_EQ(output.code, 0) << output.err;
  EXPECT_EQ(output.err, "");
  std::string line;
  for (const int token : tokens(expected)) line += " " + std::to_string(token);
  EXPECT_EQ(output.out.rfind("0:" + line + "\n1:" + line + "\nrandom:nano on ", 0), 0u) << output.out;
  EXPECT_NE(output.out.find(": sequences 2, positions 3 (prompts included), launches 1: "), std::string::npos)
      << output.out;
  EXPECT_NE(output.out.find(" tokens/s"), std::string::npos) << output.out;
}

TEST_F(DecodeCommand, LogitsOfEveryPositionAreWritten) {
  const std::string path = (folder_ / "logits.npy").string();
  const json result = decode("--tokens 15 --prompt " + file("3 1 4\n7\n") + " --logits " + path);
  EXPECT_EQ(result.at("launches"), 2);
  constexpr std::size_t kPositions = 17, kSequences = 2, kVocabulary = 40;
  const std::vector<float> logits = numbers(path, "(17, 2, 40)");
  ASSERT_EQ(logits.size(), kPositions * kSequences * kVocabulary);
  for (std::size_t sequence = 0; sequence < kSequences; ++sequence) {
    const std::size_t prompt = sequence == 0 ? 3 : 1, steps = prompt + 14;
    for (std::size_t position = 0; position < kPositions; ++position) {
      const float* const row = logits.data() + (position * kSequences + sequence) * kVocabulary;
      const bool decoded = position < steps;
      EXPECT_EQ(std::count_if(row, row + kVocabulary, [](float x) { return std::isnan(x); }), decoded ? 0 : 40);
      if (!decoded || position + 1 < prompt) continue;
      EXPECT_EQ(std::max_element(row, row + kVocabulary) - row, tokens(result, sequence)[position + 1 - prompt]);
    }
  }
  EXPECT_EQ(tokens(decode("--tokens 0 --prompt 3,1,4 --logits " + path)), Tokens());
  const std::vector<float> of_prompt = numbers(path, "(3, 1, 40)");
  ASSERT_EQ(of_prompt.size(), 3 * kVocabulary);
  for (std::size_t i = 0; i < of_prompt.size(); ++i)
    EXPECT_EQ(of_prompt[i], logits[i / kVocabulary * kSequences * kVocabulary + i % kVocabulary]) << i;
}

TEST_F(DecodeCommand, TokensAreDrawnFromASeed) {
  const std::string sampling = "--prompt 3,1 --tokens 4 --temperature 1.5 --top-k 20 --top-p 0.95 ";
  const json drawn = decode(sampling + "--batch 2");
  EXPECT_EQ(drawn.at("temperature"), 1.5);
  EXPECT_EQ(drawn.at("top_k"), 20);
  EXPECT_NE(tokens(drawn, 0), tokens(drawn, 1));  // each sequence has a seed of its own
  EXPECT_EQ(tokens(decode(sampling + "--sampling-seed 1")), tokens(drawn, 1));
  EXPECT_EQ(tokens(decode("--prompt 3,1 --tokens 2 --temperature 1 --top-k 1")),
            tokens(decode("--prompt 3,1 --tokens 2 --temperature 0")));
  const std::string streamed = "--prompt 3,1 --tokens 2 --batch 9 ";
  EXPECT_EQ(tokens(decode(streamed + "--temperature 1 --top-k 1"), 8), tokens(decode(streamed), 8));
  EXPECT_NE(tokens(decode(streamed + "--temperature 100 --top-k 40"), 8), tokens(decode(streamed), 8));
}

TEST_F(DecodeCommand, RanksDecodeTogether) {
  const std::string path = (folder_ / "logits.npy").string(), prompts = file("3 1\n7\n");
  const auto of_ranks = [&](const std::string& arguments) {
    const Output output = run("decode --model random:nano4 --target emu_sm90 --tokens 1 --json - --prompt " + prompts +
                              " --logits " + path + " " + arguments);
    EXPECT_EQ(output.code, 0) << output.err;
    EXPECT_EQ(std::count(output.err.begin(), output.err.end(), '\n'), 5) << output.err;  // one rank prints
    return std::pair(json::parse(output.out, nullptr, false), numbers(path, "(2, 2, 100)"));
  };
  const auto [one, logits] = of_ranks("");
  const auto [two, of_both] = of_ranks("--ranks 2");
  EXPECT_EQ(two.at("ranks"), 2);
  ASSERT_EQ(of_both.size(), logits.size());
  for (std::size_t sequence = 0; sequence < 2; ++sequence) EXPECT_EQ(tokens(two, sequence), tokens(one, sequence));
  for (std::size_t i = 0; i < logits.size(); ++i) {  // ranks add their sums in another order
    if (std::isnan(logits[i])) {
      EXPECT_TRUE(std::isnan(of_both[i])) << i;
    } else {
      EXPECT_NEAR(of_both[i], logits[i], 0.05) << i;
    }
  }
}

TEST_F(DecodeCommand, BadInputIsOneLineAndExitCodeTwo) {
  const std::string model = "decode --model random:nano --target emu_sm90 ";
  const std::string prompts = file("1 2\n3\n"), folder = folder_.string();
  const std::pair<std::string, std::string> wrong[] = {
      {"decode", "--model is required"},
      {"decode --model ''", "--model: the value is empty"},
      {"decode --model random:huge", "--model is 'random:huge': model is huge; allowed: nano, tiny, "},
      {"decode --model " + folder,
       "config.json: cannot be read: No such file or directory; random weights: random:NAME"},
      {"decode --model " + folder + " --seed 3", "config.json: cannot be read"},
      {model + "--prompt 1,40", "--prompt is '1,40': token 1 is '40': allowed is an integer in 0..39"},
      {model + "--prompt 1,,2", "token 1 is ''"},
      {model + "--prompt 1,", "token 1 is ''"},
      {model + "--prompt=-1", "token 0 is '-1'"},
      {model + "--prompt ' '", "--prompt is ' ': allowed is at least one token"},
      {model + "--prompt /no/such/file",
       "--prompt is '/no/such/file': allowed is a file that can be read, or token ids"},
      {model + "--prompt " + folder, "allowed is a file that can be read"},
      {model + "--tokens -1", "--tokens is '-1': allowed is an integer in 0..1048576"},
      {model + "--batch 65", "--batch is '65': allowed is an integer in 1..64"},
      {model + "--batch 3 --prompt " + prompts, "--batch is '3': allowed with 2 prompts is 2"},
      {model + "--positions 0", "--positions is '0'"},
      {model + "--positions 4 --prompt 1,2,3,4,5 --tokens 0",
       "--positions is '4': prompt 0 of 5 tokens and --tokens 0 need more: allowed is an integer in 5..1048576"},
      {model + "--positions 4 --tokens 5", "allowed is an integer in 5..1048576"},
      {model + "--end-token 40", "--end-token is '40': token 0 is '40': allowed is an integer in 0..39"},
      {model + "--end-token 1,2,3,4,5,6,7,8,9", "allowed is none, or 1 to 8 tokens with commas between them"},
      {model + "--end-token 1,x", "--end-token is '1,x': token 1 is 'x': allowed is an integer in 0..39"},
      {model + "--prompt " + prompts + " --json " + prompts, "--json is '" + prompts + "': the command reads it"},
      {model + "--prompt " + prompts + " --logits " + prompts, "--logits is '" + prompts + "': the command reads it"},
      {model + "--logits " + folder + "/x --json " + folder + "/./x", "--json is the same file"},
      {model + "--dispatcher both", "--dispatcher is 'both': allowed is static|graph|gang"},
      {model + "--dispatcher gang", "--dispatcher is 'gang': allowed on emu_sm90 is static|graph"},
      {model + "--prefill 8193", "--prefill is '8193': allowed is an integer in 0..8192"},
      {model + "--prefill 15", "--prefill is '15': allowed is 0, or an integer in 16..8192"},
      {model + "--prefill 16 --logits " + folder + "/x.npy",
       "--prefill is '16': allowed with --logits is 0, because a prefill has no logits"},
      {model + "--ranks 3", "--ranks is '3': allowed is 1|2|4|8"},
      {model + "--ranks 2", "Qwen3Config.kv_heads is 1 for 2 ranks; allowed: a multiple of the ranks"},
      {model + "--temperature -1", "--temperature is '-1': allowed is a number in 0..1000"},
      {model + "--temperature 0.0001 --top-k 2", "--temperature is '0.0001': allowed is 0 (greedy), or 0.001..1000"},
      {model + "--temperature 1", "--temperature is '1': allowed with --top-k 1..64, or 0"},
      {model + "--temperature 1 --top-p 0.9", "--temperature is '1': allowed with --top-k 1..64, or 0"},
      {model + "--temperature 1 --top-k 65", "--top-k is '65': allowed is an integer in 1..64"},
      {model + "--temperature 1 --top-k 5 --top-p 0", "--top-p is '0': allowed is a number that is more than 0"},
      {model + "--temperature 1 --top-k 5 --top-p nan", "--top-p is 'nan': allowed is a number in 0..1"},
      {model + "--top-k 5", "--top-k is '5': allowed with --temperature 0.001..1000"},
      {model + "--sampling-seed 5", "--sampling-seed is '5': allowed with --temperature 0.001..1000"},
      {model + "--ranks 9", "--ranks is '9'"},
      {model + "--seed x", "--seed is 'x'"},
      {model + "--logits /no/such/folder/x.npy", "--logits: cannot write /no/such/folder/x.npy"},
      {model + "--logits /dev/null", "--logits: /dev/null is no regular file"},
      {model + "--json /no/such/folder/x.json", "--json is '/no/such/folder/x.json': cannot be written"},
      {"decode --model random:nano --target tpu", "--target is 'tpu': allowed is auto|cuda|hip|emu_sm90|emu_gfx942"},
      {model + "extra", "extra"},
      {"graph", "what is required"},
      {"graph gemm", "graph is of 'gemm': allowed is qwen3"},
      {"graph qwen3 --model random:huge", "--model is 'random:huge'"},
      {"graph qwen3 --batch 65", "--batch is '65': allowed is an integer in 1..64"},
      {"graph qwen3 --workers 0", "--workers is '0': allowed is an integer in 1..256"},
      {"graph qwen3 --format png", "--format is 'png': allowed is text|dot"}};
  for (const auto& [arguments, message] : wrong) {
    const Output output = run(arguments);
    EXPECT_EQ(output.code, 2) << arguments << "\n" << output.err;
    EXPECT_EQ(output.out, "") << arguments;
    EXPECT_EQ(std::count(output.err.begin(), output.err.end(), '\n'), 1) << arguments << "\n" << output.err;
    EXPECT_EQ(output.err.rfind("farwarp: ", 0), 0u) << output.err;
    EXPECT_NE(output.err.find(message), std::string::npos) << arguments << "\n" << output.err;
  }
  const auto message = [&](const std::string& text) { return run(model + "--prompt " + file(text)).err; };
  EXPECT_NE(message("1 2\n3 x\n").find("line 2: token 1 is 'x': allowed is an integer in 0..39"), std::string::npos);
  EXPECT_NE(message("\n \n").find("the file has 0 sequences; allowed is 1 to 64"), std::string::npos);
  std::string many;
  for (int i = 0; i < 65; ++i) many += "1\n";
  EXPECT_NE(message(many).find("the file has 65 sequences"), std::string::npos);
  std::ofstream(folder_ / "config.json") << R"({"architectures": ["LlamaForCausalLM"]})";
  EXPECT_NE(run("decode --model " + folder).err.find(R"(allowed: ["Qwen3ForCausalLM"])"), std::string::npos);
}

TEST_F(DecodeCommand, EachEndTokenEndsASequence) {
  const Tokens all = tokens(decode("--prompt 3,1 --tokens 8"));
  const int first = all[1], other = all[3];
  std::size_t end = 0;
  while (all[end] != first && all[end] != other) ++end;
  const Tokens expected(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(end) + 1);
  for (const std::string& ends :
       {std::to_string(first) + "," + std::to_string(other), std::to_string(other) + "," + std::to_string(first)})
    EXPECT_EQ(tokens(decode("--prompt 3,1 --tokens 8 --end-token " + ends)), expected) << ends;
  EXPECT_EQ(tokens(decode("--prompt 3,1 --tokens 8 --end-token none")), all);
}

/// Processes decode what threads do, to the bit; the first one prints and writes.
TEST_F(DecodeCommand, ALaunchedGroupDecodesTogether) {
  const std::string decode = "decode --model random:nano4 --target emu_sm90 --tokens 2 --prompt " + file("3 1\n7\n");
  const auto written = [&](const std::string& launcher, const std::string& ranks, const std::string& name) {
    const std::string logits = (folder_ / (name + ".npy")).string(), sums = (folder_ / (name + ".json")).string();
    const Output output = run(launcher + decode + ranks + " --logits " + logits + " --json " + sums);
    EXPECT_EQ(output.code, 0) << output.err;
    std::ifstream in(sums);
    const json result = json::parse(in, nullptr, false);
    EXPECT_EQ(result.at("ranks"), 2) << output.err;
    std::vector<std::uint32_t> bits;
    for (const float number : numbers(logits, "(3, 2, 100)")) bits.push_back(std::bit_cast<std::uint32_t>(number));
    return std::pair(std::pair(tokens(result, 0), tokens(result, 1)), bits);
  };
  EXPECT_EQ(written("launch -n 2 -- " FARWARP_PROGRAM " ", "", "processes"), written("", " --ranks 2", "threads"));
}

TEST_F(DecodeCommand, AGroupThatCannotDecodeIsRefused) {
  const std::string decode = "-- " FARWARP_PROGRAM " decode --model random:nano4 --target emu_sm90";
  const Output three = run("launch -n 3 " + decode);
  EXPECT_EQ(three.code, 2) << three.out;
  EXPECT_NE(three.err.find("the launched group has 3 ranks; allowed: 1, 2, 4, 8"), std::string::npos) << three.err;
  const Output other = run("launch -n 2 " + decode + " --ranks 4");
  EXPECT_EQ(other.code, 2) << other.out;
  EXPECT_NE(other.err.find("--ranks is '4': allowed in a launched group is its size, 2"), std::string::npos)
      << other.err;
}

TEST_F(DecodeCommand, WhatCannotBeWrittenIsExitCodeThree) {
  const std::string decode = FARWARP_PROGRAM " decode --model random:nano --target emu_sm90 --tokens 1 ";
  for (const std::string& rest :
       {std::string(">/dev/full"), std::string("--json - >/dev/full"), std::string("--json /dev/full >/dev/null")}) {
    const int status = std::system((decode + rest + " 2>/dev/null").c_str());
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 3) << rest << " " << status;
  }
}

TEST_F(DecodeCommand, HelpNamesBothCommands) {
  const std::string help = run("--help").out;
  for (const char* name : {"\n  decode ", "\n  graph "}) EXPECT_NE(help.find(name), std::string::npos) << help;
  for (const char* arguments : {"decode --help", "graph --help"}) EXPECT_EQ(run(arguments).code, 0) << arguments;
}

TEST_F(DecodeCommand, TheGraphHasALayerOrAll) {
  const Output layer = run("graph qwen3");
  EXPECT_EQ(layer.code, 0) << layer.err;
  EXPECT_EQ(layer.out.rfind("random:qwen3-8b, 1 of 36 layers, 132 workers, 1 sequence", 0), 0u) << layer.out;
  EXPECT_EQ(std::count(layer.out.begin(), layer.out.end(), '\n'), 10) << layer.out;
  for (const char* text : {"embed ", "qkv 0 ", "attend 0 ", "merge 0 ", "out 0 ", "gate up 0 ", "down 0 ", "head ",
                           "next inputs ", "100.7 MB", "reads attended residual (a part), writes middle residual",
                           "reads qkv (a part) cache 0 (a part), writes partials cache 0"})
    EXPECT_NE(layer.out.find(text), std::string::npos) << text << "\n" << layer.out;
  const Output all = run("graph qwen3 --model random:tiny --all --batch 3 --workers 8");
  EXPECT_EQ(all.out.rfind("random:tiny, 3 of 3 layers, 8 workers, 3 sequences", 0), 0u) << all.out;
  EXPECT_EQ(std::count(all.out.begin(), all.out.end(), '\n'), 22) << all.out;
  const Output dot = run("graph qwen3 --format dot");
  EXPECT_EQ(dot.out.rfind("digraph token {\n", 0), 0u) << dot.out;
  EXPECT_NE(dot.out.find("s8 -> s0 [label=\"choice\", style=dashed, constraint=false]\n"), std::string::npos)
      << dot.out;
}

}  // namespace
