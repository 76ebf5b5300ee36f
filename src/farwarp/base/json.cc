#include "farwarp/base/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <vector>

namespace farwarp {
namespace {

using nlohmann::json;

/// A callback of the parser.
class ParseWatch {
 public:
  explicit ParseWatch(int deepest) : deepest_(deepest) {}

  bool operator()(int depth, json::parse_event_t event, json& parsed) {
    too_deep_ = too_deep_ || depth > deepest_;
    if (too_deep_) return false;  // the value is dropped
    if (event == json::parse_event_t::object_start) open_.emplace_back();
    if (event == json::parse_event_t::object_end && !open_.empty()) open_.pop_back();
    if (event == json::parse_event_t::key && !open_.empty() && !open_.back().insert(parsed.get<std::string>()).second &&
        twice_.empty()) {
      twice_ = shown_json(parsed);
    }
    return true;
  }
  const std::string& twice() const { return twice_; }
  bool too_deep() const { return too_deep_; }

 private:
  int deepest_;
  std::vector<std::set<std::string>> open_;
  std::string twice_;
  bool too_deep_ = false;
};

}  // namespace

std::string shown_json(const json& value) {
  std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 60) + "...";
  return text;
}

Result<json> parse_json(std::string_view text, int deepest) {
  ParseWatch watch(deepest);
  json root;
  try {
    root = json::parse(text, std::ref(watch));
  } catch (const json::parse_error& error) {
    const std::size_t byte = std::min<std::size_t>(error.byte, text.size());
    const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(byte), '\n');
    return invalid_argument(fmt::format("not valid JSON at line {} (byte {} of {})", line, byte, text.size()));
  } catch (const json::exception&) {
    return invalid_argument("not valid JSON: a number is out of range");
  }
  if (watch.too_deep()) return invalid_argument(fmt::format("nested deeper than {} levels", deepest));
  if (!watch.twice().empty())
    return invalid_argument(fmt::format("key {} is given twice in one object", watch.twice()));
  return root;
}

}  // namespace farwarp
