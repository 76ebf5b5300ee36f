// The lists of kernels in the products' variants.h, and the kernels that there are: each target has all that the lists name for its matrix
// unit, and no other kernel of these operators.
#include <gtest/gtest.h>

#include <set>
#include <span>
#include <string>

#include "farwarp/ops/gemm/variants.h"
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
      EXPECT_TRUE(name.ends_with(std::to_string(kernel.columns))) << name;
    }
  }
  return names;
}

/// Of the products, without what judges them.
std::set<std::string> kernels_there_are(TargetKind target) {
  std::set<std::string> names;
  for (const std::string& name : Device::kernel_names(target)) {
    const bool of_products = name.starts_with("gemm_") || name.starts_with("ag_gemm_");
    if (of_products && name != "gemm_partial_sums") names.insert(name);
  }
  return names;
}

TEST(Variants, AreTheKernelsThatThereAre) {
  EXPECT_EQ(kernels_there_are(TargetKind::kEmuSm90),
            names_of({gemm::kWgmmaKernels, ag_gemm::kBoxesKernels, ag_gemm::kWordsKernels, gemm_rs::kBoxesKernels,
                      gemm_rs::kWordsKernels, gemm_ar::kBoxesKernels, gemm_ar::kWordsKernels,
                      gemm_ar::kOneShotKernels}));
  EXPECT_EQ(kernels_there_are(TargetKind::kEmuGfx942),
            names_of({gemm::kMfmaKernels, ag_gemm::kMfmaKernels, gemm_rs::kMfmaKernels, gemm_ar::kMfmaKernels}));
}

TEST(Variants, ArePresentOnDevicesToo) {
  for (const auto& [target, emulated] : {std::pair(TargetKind::kCuda, TargetKind::kEmuSm90),
                                         std::pair(TargetKind::kHip, TargetKind::kEmuGfx942)}) {
    const auto compiled = kernels_there_are(target);
    if (!compiled.empty()) {  // a build may have no compiler for it
      EXPECT_EQ(compiled, kernels_there_are(emulated));
    }
  }
}

}  // namespace
}  // namespace farwarp
