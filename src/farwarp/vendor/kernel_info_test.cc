#include "farwarp/vendor/kernel_info.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>

#include "farwarp/substrate/emu/registry.h"
#include "farwarp/vendor/code_object_test.h"

namespace farwarp {
namespace {

// Up to four compilers compiled each kernel that is linked into this program; two did for a kernel of one matrix unit.
// They must agree on its argument block.
TEST(KernelInfo, CompilersAgreeOnKernelsAndTheirArguments) {
  bool built = false;
  for (const auto& [target, emulated] :
       {std::pair{TargetKind::kCuda, TargetKind::kEmuSm90}, std::pair{TargetKind::kHip, TargetKind::kEmuGfx942}}) {
    std::set<std::string> names;
    for (const CodeObject* object : built_objects(target)) {
      const auto kernels = kernels_of(*object);
      ASSERT_TRUE(kernels.ok()) << kernels.status().to_string();
      for (const KernelInfo& kernel : *kernels) {
        names.insert(kernel.name);
        const emu::KernelRecord* record = emu::find_kernel(kernel.name, emulated);
        ASSERT_NE(record, nullptr) << kernel.name;
        if (target != TargetKind::kHip) continue;  // the driver reports a cubin's
        EXPECT_EQ(kernel.args_bytes, record->args_bytes) << kernel.name << " for " << object->arch;
        EXPECT_EQ(kernel.max_threads, record->max_threads) << kernel.name << " for " << object->arch;
      }
    }
    if (names.empty()) continue;
    built = true;
    EXPECT_EQ(names.size(), emu::list_kernels(emulated).size()) << name_of(target);
  }
  if (!built) GTEST_SKIP() << "this build has no kernels for GPUs";
}

TEST(KernelInfo, NamesOfSymbols) {
  EXPECT_EQ(kernel_name_of("gemm_wgmma_bf16"), "gemm_wgmma_bf16");
  EXPECT_EQ(kernel_name_of("_ZN7farwarp7moe_a2a14dispatch_wordsENS_3moe4ArgsE"), "moe_a2a_dispatch_words");
  for (const char* other : {"_ZN7farwarp", "_ZN7farwarp7moe_a2a99dispatchE", "_ZN7farwarpC1Ev", "_ZN7farwarp0E",
                            "_ZN7farwarp3abc", "_ZN5other8dispatchEv", ""})
    EXPECT_EQ(kernel_name_of(other), other);
}

TEST(KernelInfo, RefusesWhatIsNoCodeObject) {
  for (const TargetKind target : {TargetKind::kCuda, TargetKind::kHip}) {
    for (const std::string& bytes : {std::string(), std::string("\177ELF"), std::string(4096, '\0')}) {
      const Status status = kernels_of(object_of(compressed(bytes), target)).status();
      EXPECT_EQ(status.code(), StatusCode::kInternal);
      EXPECT_EQ(status.message(), "broken (none) is no ELF image");
    }
    const Status damaged = kernels_of(object_of("no size, no stream", target)).status();
    EXPECT_EQ(damaged.message(), "broken (none) is damaged: it cannot be decompressed");
  }
}

TEST(KernelInfo, SurvivesDamage) {
  constexpr std::size_t kHeadersAndMetadata = 4096;
  std::string whole;  // the smallest code object with as much, because a thousand copies stay
  for (const CodeObject* object : built_objects(TargetKind::kHip)) {
    const auto image = object->image();
    ASSERT_TRUE(image.ok()) << image.status().to_string();
    if (image->size() > kHeadersAndMetadata && (whole.empty() || image->size() < whole.size()))
      whole.assign(reinterpret_cast<const char*>(image->data()), image->size());
  }
  if (whole.empty()) GTEST_SKIP() << "no kernels for hip in this build";
  for (std::size_t length = 0; length < whole.size(); length += 1 + whole.size() / 50) {
    EXPECT_FALSE(kernels_of(object_of(compressed(whole.substr(0, length)), TargetKind::kHip)).ok()) << length;
  }
  for (std::size_t at = 0; at < kHeadersAndMetadata; at += 5) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x55);
    // Whether it fails or not, it reads only within the image.
    (void)kernels_of(object_of(compressed(damaged), TargetKind::kHip));
  }
}

}  // namespace
}  // namespace farwarp
