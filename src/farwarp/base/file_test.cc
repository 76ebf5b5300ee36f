// Files that are read, and things that are no files.
#include "farwarp/base/file.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <fstream>

#include "farwarp/base/json.h"
#include "farwarp/base/temporary_folder_test.h"

namespace farwarp {
namespace {

namespace fs = std::filesystem;

class FileTest : public testing::Test {
 protected:
  /// Both readers say the same.
  static void refuses(const fs::path& path, const std::string& why) {
    for (const Status& status : {read_file(path, 100).status(), MappedFile::open(path).status()}) {
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
      EXPECT_EQ(status.message(), why) << path;
    }
  }
  TemporaryFolder folder_;
};

TEST_F(FileTest, IsReadWhole) {
  std::string text(100'000, 'x');
  text[7] = '\0';
  std::ofstream(folder_ / "text", std::ios::binary) << text;
  EXPECT_EQ(*read_file(folder_ / "text", text.size()), text);
  fs::create_symlink("text", folder_ / "link");
  const auto mapped = MappedFile::open(folder_ / "link");
  ASSERT_TRUE(mapped.ok());
  ASSERT_EQ(mapped->bytes().size(), text.size());
  EXPECT_EQ(std::memcmp(mapped->bytes().data(), text.data(), text.size()), 0);
  EXPECT_EQ(read_file(folder_ / "text", text.size() - 1).status().message(), "has 100000 bytes; allowed: up to 99999");
  std::ofstream(folder_ / "empty") << "";
  EXPECT_EQ(*read_file(folder_ / "empty", 0), "");
  EXPECT_TRUE(MappedFile::open(folder_ / "empty")->bytes().empty());
  EXPECT_EQ(read_file("/proc/self/status", 5).status().message(), "has more bytes; allowed: up to 5");  // says 0 bytes
}

TEST_F(FileTest, WhatIsNoneIsNamedAndNotWaitedFor) {
  refuses(folder_.path(), "is a folder; allowed: a regular file");
  ASSERT_EQ(mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  refuses(folder_ / "pipe", "is a pipe; allowed: a regular file");
  refuses("/dev/zero", "is a device; allowed: a regular file");
  refuses(folder_ / "none", "cannot be read: No such file or directory");
  fs::create_symlink("loop", folder_ / "loop");
  refuses(folder_ / "loop", "cannot be read: Too many levels of symbolic links");
  refuses(folder_ / std::string(300, 'n'), "cannot be read: File name too long");
  const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, (folder_ / "socket").c_str(), sizeof address.sun_path - 1);
  ASSERT_EQ(bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  refuses(folder_ / "socket", "is a socket; allowed: a regular file");
  close(socket);
  EXPECT_EQ(check_regular(folder_.path()).message(), "is a folder; allowed: a regular file");
  EXPECT_TRUE(check_regular(folder_ / "none").ok());
}

TEST_F(FileTest, OneFileHasManyNames) {
  std::ofstream(folder_ / "text") << "text";
  fs::create_symlink("text", folder_ / "link");
  fs::create_hard_link(folder_ / "text", folder_ / "hard");
  std::ofstream(folder_ / "other") << "text";
  EXPECT_TRUE(same_file(folder_ / "text", folder_ / "." / "text"));
  EXPECT_TRUE(same_file(folder_ / "text", folder_ / "link"));
  EXPECT_TRUE(same_file(folder_ / "text", folder_ / "hard"));
  EXPECT_FALSE(same_file(folder_ / "text", folder_ / "other"));
  EXPECT_FALSE(same_file(folder_ / "none", folder_ / "none"));
}

TEST(Json, WhatIsAmbiguousOrTooDeepIsRefused) {
  const auto error = [](const std::string& text) { return parse_json(text).status().message(); };
  EXPECT_EQ(*parse_json("{\"a\": [1, 2]}"), nlohmann::json({{"a", {1, 2}}}));
  EXPECT_EQ(error("{\"a\": 1,\n"), "not valid JSON at line 2 (byte 9 of 9)");
  EXPECT_EQ(error("{\"a\": 1, \"a\": 1}"), "key \"a\" is given twice in one object");
  EXPECT_EQ(error("1e999"), "not valid JSON: a number is out of range");
  EXPECT_EQ(error("\"\xff\""), "not valid JSON at line 1 (byte 2 of 3)");
  for (const std::size_t levels : {20, 1'000'000}) {
    EXPECT_EQ(error(std::string(levels, '[') + std::string(levels, ']')), "nested deeper than 16 levels");
    EXPECT_NE(error(std::string(levels, '[')), "");
  }
  EXPECT_LT(shown_json(std::string(1000, 'x')).size(), 70u);
}

}  // namespace
}  // namespace farwarp
