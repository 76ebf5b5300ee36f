// The ABI of libfarwarp.so against c.h: symbols, sizes of descriptors, version.
#include <cstddef>
#include <cstdio>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

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
  const std::set<std::string> declared = found(header_text(), R"(FARWARP_EXPORT[^;(]*?(farwarp_\w+)\()");
  EXPECT_GT(declared.size(), 50u);
  EXPECT_EQ(declared, exported());
}

/// A struct that begins with its size. `offset` is where `last`, the last field of version 2, is on machines with 64-bit pointers, `expected` where it
/// must stay: later fields follow it.
struct Sized {
  const char* name;
  std::size_t bytes, offset, expected;
  void (*init)(void*);
};
template <class Desc, void (*kInit)(Desc*)>
void init_desc(void* desc) {
  kInit(static_cast<Desc*>(desc));
}
#define SIZED(name, init, last, expected) \
  Sized { #name, sizeof(name), offsetof(name, last), expected, &init_desc < name, init> }
const Sized kSized[] = {
    SIZED(farwarp_world_desc, farwarp_world_desc_init, heap_bytes, 24),
    SIZED(farwarp_gemm_desc, farwarp_gemm_desc_init, max_sms, 28),
    SIZED(farwarp_product_desc, farwarp_product_desc_init, max_sms, 40),
    SIZED(farwarp_all_reduce_desc, farwarp_all_reduce_desc_init, max_sms, 24),
    SIZED(farwarp_moe_desc, farwarp_moe_desc_init, send_only_blocks, 68),
    SIZED(farwarp_attention_desc, farwarp_attention_desc_init, pages, 88),
    SIZED(farwarp_attention_tensors, farwarp_attention_tensors_init, block_table, 80),
    SIZED(farwarp_decode_desc, farwarp_decode_desc_init, work, 80),
    SIZED(farwarp_qwen3_desc, farwarp_qwen3_desc_init, max_sms, 40),
    SIZED(farwarp_sampling, farwarp_sampling_init, seed, 24),
};
#undef SIZED

TEST(CHeader, NoStructWithASizeIsMissingHere) {
  std::set<std::string> here;
  for (const Sized& sized : kSized) here.insert(sized.name);
  EXPECT_EQ(found(header_text(), R"(typedef struct (\w+) \{\s*size_t bytes;)"), here);
}

/// The library's structs are as long as the header's: init writes no byte after them, and says their size.
TEST(CHeader, SizesAreThoseOfTheLibrary) {
  for (const Sized& sized : kSized) {
    std::vector<std::size_t> memory(sized.bytes / sizeof(std::size_t) + 16, 0x5a5a5a5a);
    sized.init(memory.data());
    EXPECT_EQ(memory[0], sized.bytes) << sized.name;
    for (std::size_t i = sized.bytes / sizeof(std::size_t); i < memory.size(); ++i)
      ASSERT_EQ(memory[i], 0x5a5a5a5au) << sized.name;
  }
}

TEST(CHeader, FieldsAreOnlyAppended) {
  if (sizeof(void*) != 8) GTEST_SKIP() << "the offsets are those of 64-bit machines";
  for (const Sized& sized : kSized) EXPECT_EQ(sized.offset, sized.expected) << sized.name;
}

TEST(CHeader, AnOlderLibraryIsRefused) {
  EXPECT_EQ(farwarp_c_version(), FARWARP_C_VERSION);
  for (std::int32_t version = 1; version <= FARWARP_C_VERSION; ++version)
    EXPECT_EQ(farwarp_require_version(version), FARWARP_OK) << version;
  const std::string allowed = "; allowed: 1 to " + std::to_string(FARWARP_C_VERSION) + ", that of this library";
  EXPECT_EQ(farwarp_require_version(FARWARP_C_VERSION + 1), FARWARP_UNAVAILABLE);
  EXPECT_EQ(farwarp_message(), "version is " + std::to_string(FARWARP_C_VERSION + 1) + allowed);
  EXPECT_EQ(farwarp_require_version(0), FARWARP_INVALID_ARGUMENT);
  EXPECT_EQ(farwarp_message(), "version is 0" + allowed);
}

}  // namespace
}  // namespace farwarp_c_test
