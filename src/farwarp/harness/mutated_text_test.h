// For tests of readers: texts that are almost right.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "farwarp/harness/inputs.h"

namespace farwarp::harness {

/// Cuts, repeats, overwrites and inserts bytes: up to seven changes, which `round` chooses.
inline std::string mutated(const std::string& original, std::uint64_t round) {
  const RandomStream random(2025, {round});
  std::string text = original;
  for (std::uint64_t change = 0; change <= random.below(0, 8); ++change) {
    const std::uint64_t draw = 1 + 4 * change;
    const std::size_t at = random.below(draw, text.size());
    const std::size_t length = std::min<std::size_t>(1 + random.below(draw + 1, 40), text.size() - at);
    switch (random.below(draw + 2, 6)) {
      case 0: text.resize(at + 1); break;
      case 1: text.erase(at, length); break;
      case 2: text = text.substr(0, at + length) + text.substr(at); break;
      case 3: text[at] = static_cast<char>(random.bits(draw + 3)); break;
      case 4: text[at] = "{}[]\",:-0129eE.tfn&*!|>"[random.below(draw + 3, 23)]; break;
      default: text.insert(at, "99999999999999999999"); break;
    }
    if (text.empty()) text.push_back('{');
  }
  return text;
}

}  // namespace farwarp::harness
