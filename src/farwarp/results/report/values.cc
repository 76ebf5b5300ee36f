#include "farwarp/results/report/values.h"

#include <fmt/format.h>

#include <cmath>

namespace farwarp::results {

using nlohmann::json;

const json& member(const json& object, const char* key) {
  static const json kNone;
  const auto found = object.find(key);  // end() of what is no object
  return found == object.end() ? kNone : *found;
}

std::optional<double> number(const json& object, const char* key) {
  const json& value = member(object, key);
  if (!value.is_number() || !std::isfinite(value.get<double>())) return std::nullopt;
  return value.get<double>();
}

std::string text(const json& object, const char* key) {
  const json& value = member(object, key);
  return value.is_string() ? value.get<std::string>() : std::string();
}

const json& list(const json& object, const char* key) {
  static const json kNone = json::array();
  const json& value = member(object, key);
  return value.is_array() ? value : kNone;
}

bool flag(const json& object, const char* key) {
  const json& value = member(object, key);
  return value.is_boolean() && value.get<bool>();
}

std::string shown(double value) {
  const double size = std::abs(value);
  return fmt::format("{:.{}f}", value, size < 9.995 ? 2 : size < 999.95 ? 1 : 0);
}

std::string shown(const json& object, const char* key) {
  const auto value = number(object, key);
  return value ? shown(*value) : "-";
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      case '\'': out += "&#39;"; break;
      default: out += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? ' ' : c;
    }
  }
  return out;
}

std::string title_of(const json& suite) {
  const std::string name = text(suite, "suite"), settings = text(suite, "settings");
  const double ranks = number(suite, "ranks").value_or(0);
  return fmt::format("{} on {:g} rank{}{}{}", name.empty() ? "single cases" : name, ranks, ranks == 1 ? "" : "s",
                     settings.empty() ? "" : ", ", settings);
}

std::string figure(const json& object, const std::string& pointer, const char* key) {
  return number(object, key) ? fmt::format(" data-figure=\"{}/{}\"", pointer, key) : std::string();
}

}  // namespace farwarp::results
