// Runs in CTest with FARWARP_CUBLASLT_LIBRARY naming a file that does not exist.
#include "farwarp/vendor/cublas_lt.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace farwarp::cublas_lt {
namespace {

TEST(CublasLt, SaysWhichFileIsMissingAndWhatToDo) {
  const char* file = std::getenv("FARWARP_CUBLASLT_LIBRARY");
  if (file == nullptr) GTEST_SKIP() << "CTest sets FARWARP_CUBLASLT_LIBRARY";
  const auto library = Library::open();
  ASSERT_FALSE(library.ok());
  EXPECT_EQ(library.status().code(), StatusCode::kUnavailable);
  const std::string message = library.status().message();
  EXPECT_NE(message.find(file), std::string::npos) << message;
  EXPECT_NE(message.find("in FARWARP_CUBLASLT_LIBRARY"), std::string::npos) << message;
}

TEST(CublasLt, NamesItsVersion) {
  Library library;
  library.version = 130100;
  EXPECT_EQ(library.describe(), "cuBLASLt 13.1.0");
  library.version = 120805;
  EXPECT_EQ(library.describe(), "cuBLASLt 12.8.5");
}

TEST(CublasLt, AnErrorNamesTheFunctionAndCublasStatus) {
  Library library;
  library.status_name.address = [](Error error) {
    return error == Error::kInvalidValue ? "CUBLAS_STATUS_INVALID_VALUE" : static_cast<const char*>(nullptr);
  };
  EXPECT_TRUE(library.status("cublasLtMatmul", Error::kSuccess).ok());
  const Status invalid = library.status("cublasLtMatmul", Error::kInvalidValue);
  EXPECT_EQ(invalid.code(), StatusCode::kInternal);
  EXPECT_EQ(invalid.message().find("cublasLtMatmul: CUBLAS_STATUS_INVALID_VALUE"), 0u) << invalid.message();
  const Status unnamed = library.status("cublasLtCreate", Error::kNotInitialized);
  EXPECT_EQ(unnamed.code(), StatusCode::kUnavailable);
  EXPECT_EQ(unnamed.message().find("cublasLtCreate: status 1"), 0u) << unnamed.message();
  EXPECT_EQ(library.status("cublasLtCreate", Error::kAllocFailed).code(), StatusCode::kOutOfMemory);
}

}  // namespace
}  // namespace farwarp::cublas_lt
