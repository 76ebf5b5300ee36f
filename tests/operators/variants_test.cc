// The kernels of each target are those in the lists of the operators' variants.h, and no other kernels of these
// operators. The README of each operator names all of its kernels.
#include "farwarp/ops/gemm/variants.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <regex>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "farwarp/ops/all_reduce/variants.h"
#include "farwarp/ops/attention/variants.h"
#include "farwarp/ops/flash_decode/variants.h"
#include "farwarp/ops/grouped_gemm/variants.h"
#include "farwarp/ops/moe_a2a/variants.h"
#include "farwarp/ops/moe_layer/variants.h"
#include "farwarp/ops/parallel_gemm/ag_gemm/variants.h"
#include "farwarp/ops/parallel_gemm/gemm_ar/variants.h"
#include "farwarp/ops/parallel_gemm/gemm_rs/variants.h"
#include "farwarp/runtime/device.h"

namespace farwarp {
namespace {

using Kernels = std::span<const tile::Variant>;

std::set<std::string> names_of(std::initializer_list<Kernels> lists) {
  std::set<std::string> names;
  for (const Kernels& list : lists) {
    for (const tile::Variant& kernel : list) {
      EXPECT_TRUE(names.insert(kernel.name).second) << kernel.name << " is listed twice";
      const std::string name = kernel.name;
      EXPECT_NE(name.find(std::string("_") + name_of(kernel.dtype) + "_"), std::string::npos) << name;
      EXPECT_EQ(name.find("swap_ab") != std::string::npos, kernel.swap_ab) << name;
      const std::string columns = std::to_string(kernel.columns), rows = std::to_string(kernel.rows);
      EXPECT_TRUE(name.ends_with("_" + columns) || name.ends_with("_" + rows + "x" + columns)) << name;
    }
  }
  return names;
}

/// The kernels of these operators, without those of their checks and benches.
std::set<std::string> kernels_there_are(TargetKind target) {
  std::set<std::string> names;
  for (const std::string& name : Device::kernel_names(target)) {
    const bool of_operators = name.starts_with("attention_") || name.starts_with("gemm_") ||
                              name.starts_with("ag_gemm_") || name.starts_with("moe_a2a_") ||
                              name.starts_with("flash_decode_") || name.starts_with("all_reduce_") ||
                              name.starts_with("grouped_gemm_") || name.starts_with("moe_layer_");
    const bool of_case = name == "gemm_partial_sums" || name.starts_with("moe_a2a_bench") ||
                         name.starts_with("moe_a2a_baseline") || name.starts_with("flash_decode_unfused");
    if (of_operators && !of_case) names.insert(name);
  }
  return names;
}

std::set<std::string> with_moe(std::set<std::string> names) {
  for (const moe::Variant& kernel : moe::kVariants) {
    EXPECT_TRUE(names.insert(kernel.name).second) << kernel.name << " is listed twice";
  }
  return names;
}

std::set<std::string> with_all_reduce(std::set<std::string> names) {
  for (const all_reduce::Variant& kernel : all_reduce::kVariants) {
    const std::string name = kernel.name;
    EXPECT_TRUE(names.insert(name).second) << name << " is listed twice";
    EXPECT_EQ(name,
              fmt::format("all_reduce_{}_{}_{}", kernel.form == all_reduce::Form::two_shot ? "two_shot" : "one_shot",
                          name_of(kernel.dtype), kernel.most_ranks));
  }
  return names;
}

std::set<std::string> with_grouped_gemm(std::set<std::string> names) {
  for (const grouped_gemm::Variant& kernel : grouped_gemm::kKernels) {
    const std::string name = kernel.name;
    EXPECT_TRUE(names.insert(name).second) << name << " is listed twice";
    EXPECT_EQ(name, fmt::format("grouped_gemm{}{}_{}_{}x{}", kernel.fp8 ? "_fp8" : "", kernel.gated ? "_gated" : "",
                                name_of(kernel.dtype), kernel.rows, kernel.columns));
  }
  return names;
}

std::set<std::string> with_moe_layer(std::set<std::string> names) {
  for (const moe_layer::Variant& kernel : moe_layer::kKernels) {
    const std::string name = kernel.name;
    EXPECT_TRUE(names.insert(name).second) << name << " is listed twice";
    EXPECT_EQ(name, fmt::format("moe_layer_{}_{}x{}", name_of(kernel.dtype), kernel.rows, kernel.columns));
  }
  return names;
}

std::set<std::string> with_attention(std::set<std::string> names, std::span<const attention::Variant> kernels) {
  for (const attention::Variant& kernel : kernels) {
    const std::string name = kernel.name;
    EXPECT_TRUE(names.insert(name).second) << name << " is listed twice";
    EXPECT_NE(name.find(fmt::format("_{}_{}", name_of(kernel.dtype), kernel.head_dim)), std::string::npos) << name;
  }
  return names;
}

std::set<std::string> with_decode(std::set<std::string> names, std::span<const decode::Variant> kernels) {
  for (const decode::Variant& kernel : kernels) {
    const std::string name = kernel.name;
    EXPECT_TRUE(names.insert(name).second) << name << " is listed twice";
    EXPECT_NE(name.find(std::string("_") + name_of(kernel.dtype) + "_"), std::string::npos) << name;
    EXPECT_EQ(name.find("_fp8_") != std::string::npos, kernel.fp8) << name;
    const bool mfma =
        name.find("_mfma_") != std::string::npos;  // these have one number of rows, which is not in the name
    EXPECT_TRUE(name.ends_with(mfma ? fmt::format("_{}", kernel.dim) : fmt::format("_{}x{}", kernel.dim, kernel.rows)))
        << name;
  }
  return names;
}

/// The names between backticks in the tables of a README that begin with `prefix`, as patterns. TYPE, W and so on stand
/// for what the text before the table says. [...] encloses an optional part.
std::vector<std::regex> patterns_in(const std::string& readme, const std::string& prefix) {
  std::ifstream file(std::string(FARWARP_SOURCE_DIR) + "/src/farwarp/ops/" + readme);
  EXPECT_TRUE(file.good()) << readme;
  std::vector<std::regex> patterns;
  const std::regex name("`(" + prefix + R"(_[\w\[\]]+)`)");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("|")) continue;
    for (std::sregex_iterator hit(line.begin(), line.end(), name), none; hit != none; ++hit) {
      std::string pattern = (*hit)[1];
      for (const auto& [from, to] :
           {std::pair(R"(\[)", "(?:"), std::pair(R"(\])", ")?"), std::pair("TYPE", "(?:bf16|fp16|fp8)"),
            std::pair("WxN$", "(?:\\d+x\\d+)"), std::pair("W$", "(?:\\d+)"), std::pair("MODE", "(?:words|bulk)"),
            std::pair("EXPERT", "(?:rank_scale|table)")}) {
        pattern = std::regex_replace(pattern, std::regex(from), to);
      }
      patterns.emplace_back(pattern);
    }
  }
  return patterns;
}

TEST(Variants, AreTheKernelsThatThereAre) {
  const auto on_sm90 = with_all_reduce(
      with_moe(names_of({gemm::kWgmmaKernels, gemm::kFp8Kernels, ag_gemm::kBoxesKernels, ag_gemm::kWordsKernels,
                         gemm_rs::kBoxesKernels, gemm_rs::kWordsKernels, gemm_rs::kFetchKernels, gemm_ar::kBoxesKernels,
                         gemm_ar::kWordsKernels, gemm_ar::kOneShotKernels})));
  EXPECT_EQ(kernels_there_are(TargetKind::kEmuSm90),
            with_attention(with_decode(with_moe_layer(with_grouped_gemm(on_sm90)), decode::kWgmmaKernels),
                           attention::kWgmmaKernels));
  const auto on_gfx942 = with_all_reduce(
      with_moe(names_of({gemm::kMfmaKernels, ag_gemm::kMfmaKernels, gemm_rs::kMfmaKernels, gemm_ar::kMfmaKernels})));
  EXPECT_EQ(kernels_there_are(TargetKind::kEmuGfx942),
            with_attention(with_decode(on_gfx942, decode::kMfmaKernels), attention::kMfmaKernels));
}

TEST(Variants, ArePresentOnDevicesToo) {
  for (const auto& [target, emulated] :
       {std::pair(TargetKind::kCuda, TargetKind::kEmuSm90), std::pair(TargetKind::kHip, TargetKind::kEmuGfx942)}) {
    const auto compiled = kernels_there_are(target);
    if (!compiled.empty()) {  // else this build had no compiler for it
      EXPECT_EQ(compiled, kernels_there_are(emulated));
    }
  }
}

TEST(Variants, AreInTheTablesOfTheReadmes) {
  std::set<std::string> all = kernels_there_are(TargetKind::kEmuSm90);
  all.merge(kernels_there_are(TargetKind::kEmuGfx942));
  for (const auto& [prefix, readme] :
       {std::pair("attention", "attention/README.md"), std::pair("moe_a2a", "moe_a2a/README.md"),
        std::pair("gemm", "gemm/README.md"), std::pair("ag_gemm", "parallel_gemm/ag_gemm/README.md"),
        std::pair("gemm_rs", "parallel_gemm/gemm_rs/README.md"),
        std::pair("gemm_ar", "parallel_gemm/gemm_ar/README.md"), std::pair("flash_decode", "flash_decode/README.md"),
        std::pair("all_reduce", "all_reduce/README.md"), std::pair("grouped_gemm", "grouped_gemm/README.md"),
        std::pair("moe_layer", "moe_layer/README.md")}) {
    const auto patterns = patterns_in(readme, prefix);
    EXPECT_FALSE(patterns.empty()) << readme;
    const auto matches = [](const std::regex& pattern, const std::string& name) {
      return std::regex_match(name, pattern);
    };
    for (std::size_t i = 0; i < patterns.size(); ++i) {
      EXPECT_TRUE(std::ranges::any_of(all, [&](const auto& name) { return matches(patterns[i], name); }))
          << readme << ": no kernel has the name in backticks number " << i + 1;
    }
    for (const std::string& name : all) {
      const bool other =
          std::string(prefix) == "gemm" && (name.starts_with("gemm_rs_") || name.starts_with("gemm_ar_"));
      if (!name.starts_with(std::string(prefix) + "_") || other) continue;
      EXPECT_TRUE(std::ranges::any_of(patterns, [&](const auto& pattern) { return matches(pattern, name); }))
          << readme << " does not name " << name;
    }
  }
}

}  // namespace
}  // namespace farwarp
