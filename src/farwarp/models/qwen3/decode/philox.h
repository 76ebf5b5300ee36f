// Philox4x32-10: random numbers as a function of a key and a counter. John Salmon et al., "Parallel Random Numbers: As
// Easy as 1, 2, 3", SC 2011, section 3.3; the constants are those of its Random123 library.
#pragma once

#include <array>
#include <cstdint>

namespace farwarp {

/// Four independent uniform words.
constexpr std::array<std::uint32_t, 4> philox4x32_10(std::array<std::uint32_t, 4> counter, std::uint64_t key) {
  auto low = static_cast<std::uint32_t>(key), high = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t first = std::uint64_t{0xd2511f53u} * counter[0],
                        second = std::uint64_t{0xcd9e8d57u} * counter[2];
    counter = {static_cast<std::uint32_t>(second >> 32) ^ counter[1] ^ low, static_cast<std::uint32_t>(second),
               static_cast<std::uint32_t>(first >> 32) ^ counter[3] ^ high, static_cast<std::uint32_t>(first)};
    low += 0x9e3779b9u;
    high += 0xbb67ae85u;
  }
  return counter;
}

}  // namespace farwarp
