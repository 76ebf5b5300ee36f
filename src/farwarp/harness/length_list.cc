#include "farwarp/harness/length_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "farwarp/harness/params.h"

namespace farwarp::harness {

Result<std::vector<int>> parse_lengths(std::string_view name, std::string_view text, int count, int most) {
  std::vector<int> lengths;
  for (std::string_view rest = text;;) {
    const std::size_t end = rest.find('+');
    const auto value = parse_integer(fmt::format("a number of parameter {}", name), rest.substr(0, end), 0, most);
    if (!value.ok()) return value.status();
    lengths.push_back(static_cast<int>(*value));
    if (end == std::string_view::npos) break;
    rest.remove_prefix(end + 1);
  }
  if (lengths.size() == static_cast<std::size_t>(count)) return lengths;
  return invalid_argument(
      fmt::format("parameter {} is {} numbers: allowed is one of each of {} sequences", name, lengths.size(), count));
}

std::string to_string(const std::vector<int>& lengths) {
  std::string text;
  for (const int length : lengths) append_to_list(text, "+", std::to_string(length));
  return text;
}

std::string shortened_lengths(std::string_view text, int count, int most) {
  const auto all = static_cast<int>(1 + std::count(text.begin(), text.end(), '+'));
  auto lengths = parse_lengths("", text, all, std::numeric_limits<int>::max());
  if (!lengths.ok()) return std::string(text);
  lengths->resize(static_cast<std::size_t>(std::min(count, all)));
  for (int& length : *lengths) length = std::min(length, most);
  return to_string(*lengths);
}

}  // namespace farwarp::harness
