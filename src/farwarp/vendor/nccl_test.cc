// Runs in CTest with FARWARP_NCCL_LIBRARY naming a file that does not exist, and NCCL_NVLS_ENABLE=1.
#include "farwarp/vendor/nccl.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace farwarp::nccl {
namespace {

TEST(Nccl, SaysWhichFileIsMissingAndWhatToDo) {
  const char* file = std::getenv("FARWARP_NCCL_LIBRARY");
  if (file == nullptr) GTEST_SKIP() << "CTest sets FARWARP_NCCL_LIBRARY";
  const auto library = Library::open();
  ASSERT_FALSE(library.ok());
  EXPECT_EQ(library.status().code(), StatusCode::kUnavailable);
  const std::string message = library.status().message();
  EXPECT_NE(message.find(file), std::string::npos) << message;
  EXPECT_NE(message.find("name its file in FARWARP_NCCL_LIBRARY"), std::string::npos) << message;
}

TEST(Nccl, SwitchesMulticastOffBeforeItOpensTheLibrary) {
  (void)Library::open();
  ASSERT_NE(std::getenv("NCCL_NVLS_ENABLE"), nullptr);
  EXPECT_STREQ(std::getenv("NCCL_NVLS_ENABLE"), "0");
}

TEST(Nccl, NamesItsVersion) {
  Library library;
  library.version = 22809;
  EXPECT_EQ(library.describe(), "NCCL 2.28.9");
  library.version = 2708;
  EXPECT_EQ(library.describe(), "NCCL 2.7.8");
}

}  // namespace
}  // namespace farwarp::nccl
