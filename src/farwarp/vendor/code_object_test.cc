#include "farwarp/vendor/code_object_test.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <deque>
#include <fstream>
#include <iterator>
#include <map>
#include <utility>

namespace farwarp {

std::string compressed(const std::string& image) {
  uLongf bytes = compressBound(image.size());
  std::string stream(bytes, '\0');
  const int error = compress2(reinterpret_cast<Bytef*>(stream.data()), &bytes,
                              reinterpret_cast<const Bytef*>(image.data()), image.size(), Z_NO_COMPRESSION);
  EXPECT_EQ(error, Z_OK);
  std::string result;
  for (int at = 0; at < 8; ++at) result += static_cast<char>(image.size() >> (8 * at));
  return result + stream.substr(0, bytes);
}

const CodeObject& object_of(const std::string& bytes, TargetKind target) {
  static auto& kept = *new std::deque<std::string>;
  static auto& objects = *new std::deque<CodeObject>;
  const std::string& copy = kept.emplace_back(bytes);
  const auto* begin = reinterpret_cast<const std::byte*>(copy.data());
  return objects.emplace_back("broken", target, "none", begin, begin + copy.size());
}

std::vector<const CodeObject*> built_objects(TargetKind target) {
  std::vector<const CodeObject*> objects = code_objects(target);
  std::erase_if(objects, [](const CodeObject* object) { return object->arch == "none"; });
  return objects;
}

namespace {

// The compilers' output, of which the build leaves the files.
TEST(CodeObject, DecompressesToTheCompiledFile) {
  std::map<std::pair<std::string, std::string>, std::string> files;  // by name and architecture
  std::ifstream list(FARWARP_CODE_OBJECTS);
  ASSERT_TRUE(list.good()) << FARWARP_CODE_OBJECTS;
  for (std::string name, arch, file; list >> name >> arch && std::getline(list >> std::ws, file);)
    files[{name, arch}] = file;
  int compared = 0;
  for (const TargetKind target : {TargetKind::kCuda, TargetKind::kHip}) {
    for (const CodeObject* object : built_objects(target)) {
      const std::string& file = files[{std::string(object->name), std::string(object->arch)}];
      SCOPED_TRACE(std::string(object->name) + " " + file);
      std::ifstream stream(file, std::ios::binary);
      const std::string expected(std::istreambuf_iterator<char>(stream), {});
      const auto image = object->image();
      ASSERT_TRUE(image.ok()) << image.status().to_string();
      EXPECT_LT(object->compressed.size(), expected.size());
      EXPECT_TRUE(expected == std::string(reinterpret_cast<const char*>(image->data()), image->size()));
      EXPECT_EQ(object->image()->data(), image->data()) << "decompressed twice";
      ++compared;
    }
  }
  if (files.empty()) GTEST_SKIP() << "this build has no kernels for GPUs";
  EXPECT_GT(compared, 0);
}

TEST(CodeObject, DamageIsAnErrorWithItsName) {
  const std::string image(1000, 'x');
  const std::string whole = compressed(image);
  ASSERT_TRUE(object_of(whole, TargetKind::kHip).image().ok());
  const auto refused = [](const std::string& bytes) {
    const Status status = object_of(bytes, TargetKind::kHip).image().status();
    return status.code() == StatusCode::kInternal &&
           status.message() == "broken (none) is damaged: it cannot be decompressed";
  };
  for (std::size_t length = 0; length < whole.size(); ++length) EXPECT_TRUE(refused(whole.substr(0, length))) << length;
  for (std::size_t at = 0; at < whole.size(); ++at) {  // the size, the stream, its checksum
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x55);
    EXPECT_TRUE(refused(damaged)) << at;
  }
  EXPECT_TRUE(refused(compressed(image + "y").replace(0, 8, whole, 0, 8))) << "a size that is one too small";
}

}  // namespace
}  // namespace farwarp
