// What commands write, and what they must not write over.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "program_test_fixture.h"

namespace {

class CommandOutputs : public ProgramTest {};

/// What is printed does not get into the file that got the number of a closed standard output.
TEST_F(CommandOutputs, AClosedStandardOutputIsExitCodeThree) {
  const std::string json = (folder_ / "result.json").string();
  const std::string command = std::string(FARWARP_PROGRAM) + " check lesson-01 --ranks 2 --target emu_sm90 --json " +
                              json + " >&- 2>" + (folder_ / "err").string();
  const int status = std::system(command.c_str());
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 3) << status;
  EXPECT_TRUE(nlohmann::json::accept(text_of(json))) << text_of(json);
}

TEST_F(CommandOutputs, JsonIsWrittenOverNothingThatIsRead) {
  const std::string suite = (folder_ / "small.json").string(), machine = (folder_ / "machine.json").string();
  const std::string link = (folder_ / "link").string();
  const std::string text =
      R"({"name": "small", "ranks": 1, "ops": {"gemm": {"tests": [{"m": 4, "n": 8, "k": 8, "seed": 3}]}}})";
  const std::string small = R"({"like": "mi300x"})";
  std::ofstream(suite) << text;
  std::ofstream(machine) << small;
  for (const auto& [command, file] : {std::pair("check --suite " + suite, suite),
                                      {"check " + suite, suite},
                                      {"cache attention --machine " + machine, machine}}) {
    std::filesystem::create_hard_link(file, link);
    for (const std::string& path : {file, link}) {
      const Output output = run(command + " --json " + path);
      EXPECT_EQ(output.code, 2);
      EXPECT_EQ(output.err, "farwarp: --json is '" + path + "': the command reads it\n");
    }
    std::filesystem::remove(link);
  }
  EXPECT_EQ(text_of(suite), text);
  EXPECT_EQ(text_of(machine), small);
  setenv("XDG_CACHE_HOME", folder_.path().c_str(), 1);
  std::filesystem::create_directory(folder_ / "farwarp");
  const Output kept = run("check lesson-01 --json " + (folder_ / "farwarp" / "ceilings-h200-x8.json").string());
  unsetenv("XDG_CACHE_HOME");
  EXPECT_EQ(kept.code, 2);
  EXPECT_NE(kept.err.find("farwarp keeps what it has measured in that folder"), std::string::npos) << kept.err;
}

/// The model's files, each under names of its own.
TEST_F(CommandOutputs, WritesOverNothingThatItReads) {
  const std::filesystem::path model = folder_ / "model";
  std::filesystem::create_directory(model);
  const std::string config = R"({"architectures": ["Qwen3ForCausalLM"], "hidden_size": 256, "num_hidden_layers": 2,
      "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 64, "intermediate_size": 256, "vocab_size": 40,
      "rms_norm_eps": 1e-6, "rope_theta": 1000000, "eos_token_id": 3})";
  for (const char* name : {"config.json", "generation_config.json", "model.safetensors"}) {
    std::ofstream(model / name) << (name[0] == 'c' ? config : "{}");
    const std::filesystem::path link = folder_ / "link", hard = folder_ / "hard";
    std::filesystem::create_symlink(model / name, link);
    std::filesystem::create_hard_link(model / name, hard);
    for (const std::filesystem::path& path : {model / name, link, hard}) {
      for (const char* option : {"--json", "--logits"}) {
        const Output output =
            run("decode --target emu_sm90 --model " + model.string() + " " + option + " " + path.string());
        EXPECT_EQ(output.code, 2);
        EXPECT_EQ(output.err,
                  std::string("farwarp: ") + option + " is '" + path.string() + "': the command reads it\n");
      }
    }
    std::filesystem::remove(link);
    std::filesystem::remove(hard);
    EXPECT_EQ(text_of(model / name), name[0] == 'c' ? config : "{}");
  }
  std::ofstream(model / "generation_config.json") << R"({"repetition_penalty": 1.1})";
  EXPECT_NE(run("decode --model " + model.string()).err.find("repetition_penalty is 1.1; allowed: 1"),
            std::string::npos);
}

}  // namespace
