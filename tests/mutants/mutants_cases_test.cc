// The mutants name operators, parameters and kernels that exist. No mutant is compiled for this test.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "farwarp/substrate/emu/registry.h"
#include "mutants_test.h"

namespace farwarp {
namespace {

/// One line for each name or value that is wrong.
std::vector<std::string> mistakes_of(const nlohmann::json& mutant) {
  std::vector<std::string> mistakes;
  if (const harness::OperatorInfo* op = operator_of(mutant); op == nullptr) {
    std::string allowed;
    for (const harness::OperatorInfo& known : harness::registered_ops()) allowed += " " + known.name;
    mistakes.push_back(fmt::format("field 'op' is '{}'; allowed:{}", mutant["op"].get<std::string>(), allowed));
  } else if (const auto made = op->make(params_of(mutant)); !made.ok()) {
    mistakes.push_back("field 'set': " + made.status().message());
  }
  for (const nlohmann::json& kernel : mutant["kernels"]) {
    const std::string name = kernel.get<std::string>();
    for (const TargetKind target : targets_of(mutant)) {
      if (emu::find_kernel(name, target) == nullptr)
        mistakes.push_back(fmt::format("field 'kernels': {} has no kernel '{}'", name_of(target), name));
    }
  }
  return mistakes;
}

TEST(MutantsCases, NameOperatorsParametersAndKernelsThatExist) {
  const nlohmann::json table = mutants();
  EXPECT_FALSE(table.empty());
  for (const auto& [name, mutant] : table.items()) {
    for (const std::string& mistake : mistakes_of(mutant)) ADD_FAILURE() << mutant["at"] << ": " << mistake;
  }
}

TEST(MutantsCases, EachMistakeIsNamed) {
  const nlohmann::json right = {{"op", "lesson-02"}, {"kernels", {"lesson_02_all_gather"}}, {"set", {{"words", "64"}}}};
  EXPECT_TRUE(mistakes_of(right).empty());
  const auto expect = [&](const char* field, const nlohmann::json& value, const std::vector<std::string>& words) {
    nlohmann::json wrong = right;
    wrong[field] = value;
    const std::vector<std::string> mistakes = mistakes_of(wrong);
    ASSERT_FALSE(mistakes.empty()) << value;
    for (const std::string& word : words) EXPECT_NE(mistakes[0].find(word), std::string::npos) << mistakes[0];
  };
  expect("op", "lesson-99", {"'op' is 'lesson-99'", "lesson-02"});
  expect("kernels", {"lesson_02"}, {"'kernels'", "emu_sm90", "'lesson_02'"});
  expect("set", {{"word", "64"}}, {"'set'", "word", "unknown", "words"});
  expect("set", {{"ranks", "4"}}, {"'set'", "ranks", "unknown"});
  expect("set", {{"words", "65"}}, {"'set'", "words", "a multiple of 4"});
}

}  // namespace
}  // namespace farwarp
