// Calls whose results share memory with another tensor, for the tests of every operator of c.h.
#pragma once

#include <cctype>

#include "farwarp/c/c_test.h"

namespace farwarp_c_test {

struct Named {
  const char* name;
  DLTensor* tensor;  ///< null: the call has none
};
using Tensors = std::vector<Named>;

inline std::int64_t bytes_of(const DLTensor& tensor) {
  std::int64_t bytes = tensor.dtype.bits / 8;
  for (int i = 0; i < tensor.ndim; ++i) bytes *= tensor.shape[i];
  return bytes;
}

inline bool names(const std::string& message, const std::string& name) {
  for (std::size_t at = message.find(name); at != std::string::npos; at = message.find(name, at + 1)) {
    const auto is_word = [&](std::size_t i) {
      return i < message.size() && (std::isalnum(message[i]) || message[i] == '_');
    };
    if (!(at > 0 && is_word(at - 1)) && !is_word(at + name.size())) return true;
  }
  return false;
}

/// Lays each result over the begin, and over the end, of each other tensor: refused with both names. As they are, they
/// are taken.
inline void expect_apart(const Tensors& inputs, const Tensors& results, const std::function<farwarp_code()>& call) {
  Tensors all = inputs;
  all.insert(all.end(), results.begin(), results.end());
  int tried = 0;
  for (const Named& result : results) {
    for (const Named& other : all) {
      if (result.tensor == nullptr || other.tensor == nullptr || other.tensor == result.tensor) continue;
      void* const own = result.tensor->data;
      for (const std::int64_t offset : {std::int64_t{0}, (bytes_of(*other.tensor) - 1) / 256 * 256}) {
        result.tensor->data = static_cast<char*>(other.tensor->data) + offset;
        EXPECT_EQ(call(), FARWARP_INVALID_ARGUMENT) << result.name << " over " << other.name << " at " << offset;
        const std::string message = farwarp_message();
        EXPECT_TRUE(message.find("overlaps") != std::string::npos && names(message, result.name)) << message;
        if (bytes_of(*result.tensor) <= bytes_of(*other.tensor) - offset) {  // else it may reach a third tensor
          EXPECT_TRUE(names(message, other.name)) << other.name << ": " << message;
        }
        ++tried;
      }
      result.tensor->data = own;
    }
  }
  EXPECT_GT(tried, 0);
  EXPECT_EQ(call(), FARWARP_OK) << farwarp_message();
}

inline void expect_idle(Rank& rank) {
  EXPECT_EQ(farwarp_synchronize(rank.world, rank.stream, 20'000), FARWARP_OK) << farwarp_message();
}

inline std::vector<std::int32_t> integers(std::initializer_list<std::int32_t> numbers) { return numbers; }

}  // namespace farwarp_c_test
