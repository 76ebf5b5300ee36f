// The ABI of libfarwarp.so against c.h: symbols, sizes of descriptors, version.
#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "farwarp/c/c_test.h"

namespace farwarp_c_test {
namespace {

std::string header_text() {
  std::ifstream file(FARWARP_HEADER);
  std::stringstream text;
  text << file.rdbuf();
  return std::regex_replace(text.str(), std::regex(R"(/\*[^*]*\*+([^/*][^*]*\*+)*/)"), "");
}

std::set<std::string> found(const std::string& text, const char* pattern) {
  const std::regex regex(pattern);
  std::set<std::string> names;
  for (std::sregex_iterator at(text.begin(), text.end(), regex), end; at != end; ++at) names.insert((*at)[1]);
  return names;
}

std::set<std::string> exported() {
  std::set<std::string> names;
  FILE* const symbols = popen("nm -D --defined-only " FARWARP_LIBRARY, "r");
  if (symbols == nullptr) return names;
  char name[4096];
  while (std::fscanf(symbols, "%*s %*s %4095s", name) == 1) names.insert(name);
  EXPECT_EQ(pclose(symbols), 0);
  return names;
}

TEST(CHeader, DeclaresWhatTheLibraryExports) {
  std::set<std::string> declared = found(header_text(), R"(FARWARP_EXPORT[^;(]*?(farwarp_\w+)\()");
  EXPECT_GT(declared.size(), 50u);
  declared.insert("farwarp_submission_rank");  // for the Python package alone: judge/rank_main.h
  EXPECT_EQ(declared, exported());
}

/// A struct that begins with its size. `offset` is where `last`, the last field of version 2, is on machines with
/// 64-bit pointers, `expected` where it must stay: later fields follow it.
struct Sized {
  const char* name;
  std::size_t bytes, offset, expected;
  farwarp_code (*init)(void* of, std::size_t bytes);
};
#define SIZED(name, last, expected)                                                                  \
  Sized {                                                                                            \
#name, sizeof(name), offsetof(name, last), expected,                                             \
        [](void* of, std::size_t bytes) { return name##_init_sized(static_cast<name*>(of), bytes); } \
  }
const Sized kSized[] = {
    SIZED(farwarp_world_desc, heap_bytes, 24),
    SIZED(farwarp_gemm_desc, x_scale_by_column, 36),
    SIZED(farwarp_grouped_gemm_desc, max_sms, 48),
    SIZED(farwarp_product_desc, max_sms, 40),
    SIZED(farwarp_all_reduce_desc, max_sms, 24),
    SIZED(farwarp_moe_desc, send_only_blocks, 68),
    SIZED(farwarp_moe_layer_desc, tile_columns, 56),
    SIZED(farwarp_attention_desc, pages, 88),
    SIZED(farwarp_attention_tensors, block_table, 80),
    SIZED(farwarp_decode_desc, work, 80),
    SIZED(farwarp_qwen3_desc, vectors, 52),
    SIZED(farwarp_sampling, seed, 24),
};
#undef SIZED

TEST(CHeader, NoStructWithASizeIsMissingHere) {
  std::set<std::string> here;
  for (const Sized& sized : kSized) here.insert(sized.name);
  EXPECT_EQ(found(header_text(), R"(typedef struct (\w+) \{\s*size_t bytes;)"), here);
}

constexpr std::byte kUntouched{0x5a};

/// Memory for init_sized(), what it has stored there, and bytes after it that it must not store.
std::vector<std::byte> initialized(const Sized& sized, std::size_t bytes) {
  std::vector<std::byte> memory(sized.bytes + 64, kUntouched);
  EXPECT_EQ(sized.init(memory.data(), bytes), FARWARP_OK) << sized.name << ": " << farwarp_message();
  return memory;
}

/// A program whose header has fewer fields gets those that it has, its size, and no byte more.
TEST(CHeader, StructsOfOlderProgramsAreNotOverrun) {
  for (const Sized& sized : kSized) {
    const std::vector<std::byte> all = initialized(sized, sized.bytes);
    for (std::size_t bytes = sizeof(std::size_t) + 1; bytes <= sized.bytes; ++bytes) {
      const std::vector<std::byte> memory = initialized(sized, bytes);
      std::size_t said = 0;
      std::memcpy(&said, memory.data(), sizeof said);
      ASSERT_EQ(said, bytes) << sized.name;
      ASSERT_TRUE(std::equal(memory.begin() + sizeof said, memory.begin() + bytes, all.begin() + sizeof said))
          << sized.name << " of " << bytes << " bytes";
      for (std::size_t i = bytes; i < memory.size(); ++i)
        ASSERT_EQ(memory[i], kUntouched) << sized.name << " of " << bytes << " bytes, byte " << i;
    }
  }
}

TEST(CHeader, OtherSizesAreRefused) {
  for (const Sized& sized : kSized) {
    std::vector<std::byte> memory(sized.bytes + 64, kUntouched);
    const std::string allowed = "; allowed: the size of the struct, " + std::to_string(sizeof(std::size_t) + 1) +
                                " to " + std::to_string(sized.bytes) + " in this library";
    for (const std::size_t bytes : {std::size_t{0}, sizeof(std::size_t), sized.bytes + 1, ~std::size_t{0}}) {
      EXPECT_EQ(sized.init(memory.data(), bytes), FARWARP_INVALID_ARGUMENT) << sized.name;
      EXPECT_EQ(farwarp_message(), "bytes is " + std::to_string(bytes) + allowed) << sized.name;
    }
    EXPECT_EQ(memory, std::vector<std::byte>(sized.bytes + 64, kUntouched)) << sized.name;
    EXPECT_EQ(sized.init(nullptr, sized.bytes), FARWARP_INVALID_ARGUMENT) << sized.name;
    EXPECT_TRUE(std::string(farwarp_message()).ends_with(" is NULL; allowed: a pointer")) << farwarp_message();
  }
}

TEST(CHeader, FieldsAreOnlyAppended) {
  if (sizeof(void*) != 8) GTEST_SKIP() << "the offsets are those of 64-bit machines";
  for (const Sized& sized : kSized) EXPECT_EQ(sized.offset, sized.expected) << sized.name;
}

TEST(CHeader, OtherVersionsAreRefused) {
  EXPECT_EQ(farwarp_c_version(), FARWARP_C_VERSION);
  const std::string allowed = "; allowed: " + std::to_string(FARWARP_C_OLDEST) + " to " +
                              std::to_string(FARWARP_C_VERSION) + ", that of this library";
  for (std::int32_t version = 0; version <= FARWARP_C_VERSION + 1; ++version) {
    const bool known = version >= FARWARP_C_OLDEST && version <= FARWARP_C_VERSION;
    const farwarp_code refused = version < 1 ? FARWARP_INVALID_ARGUMENT : FARWARP_UNAVAILABLE;
    EXPECT_EQ(farwarp_require_version(version), known ? FARWARP_OK : refused) << version;
    if (!known) {
      EXPECT_EQ(farwarp_message(), "version is " + std::to_string(version) + allowed);
    }
  }
}

}  // namespace
}  // namespace farwarp_c_test
