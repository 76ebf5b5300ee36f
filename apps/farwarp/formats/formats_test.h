// For tests of suites of others: a folder to write them to, and what an error says.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "any_suite.h"
#include "farwarp/base/temporary_folder_test.h"
#include "farwarp/harness/mutated_text_test.h"

namespace farwarp::cli {

namespace fs = std::filesystem;
using harness::mutated;
using harness::Params;
using harness::SuiteEntry;
using nlohmann::json;

class Formats : public testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& text) const {
    const fs::path path = folder_ / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << text;
    return path.string();
  }

  /// A file of int32 tensors.
  void write_tensors(const std::string& name, const std::map<std::string, std::vector<std::int32_t>>& tensors) const {
    json header = json::object();
    std::string data;
    for (const auto& [key, values] : tensors) {
      const std::size_t bytes = values.size() * sizeof(values[0]), at = data.size();
      header[key] = {{"dtype", "I32"}, {"shape", {values.size()}}, {"data_offsets", {at, at + bytes}}};
      data.resize(at + bytes);
      std::memcpy(data.data() + at, values.data(), bytes);
    }
    const std::string text = header.dump();
    const std::uint64_t size = text.size();
    std::string length(sizeof(size), '\0');
    std::memcpy(length.data(), &size, sizeof(size));
    write(name, length + text + data);
  }

  std::string error_of(const std::string& path, const std::string& op = "") const {
    const auto loaded = load_any_suite(path, op);
    if (loaded.ok()) return "";
    EXPECT_EQ(loaded.status().code(), StatusCode::kInvalidArgument);
    std::string text = loaded.status().message();
    EXPECT_EQ(text.find('\n'), std::string::npos);
    for (std::size_t at; (at = text.find(folder_.string())) != std::string::npos;)
      text.replace(at, folder_.string().size(), "F");
    return text;
  }

  TemporaryFolder temporary_;
  fs::path folder_ = temporary_.path();
};

}  // namespace farwarp::cli
