#include "farwarp/harness/params.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace farwarp::harness {
namespace {

constexpr std::int64_t kLongestDelayMs = 3'600'000;
constexpr std::int64_t kLastPut = 1'000'000'000;

// Shortens long values and replaces unprintable characters, for a one-line message.
// Not called quoted(): argument-dependent lookup would find std::quoted if a header includes <iomanip>.
std::string in_quotes(std::string_view value) {
  std::string text;
  for (const char c : value.substr(0, 60)) text += c >= ' ' && c < 127 ? c : '?';
  return fmt::format("'{}{}'", text, value.size() > 60 ? "..." : "");
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

const ParamInfo* find_info(std::span<const ParamInfo> infos, std::string_view name) {
  for (const ParamInfo& info : infos) {
    if (info.name == name) return &info;
  }
  return nullptr;
}

}  // namespace

Result<std::int64_t> parse_integer(std::string_view what, std::string_view text, std::int64_t low, std::int64_t high) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < low || value > high) {
    return invalid_argument(fmt::format("{} is {}: allowed is an integer in {}..{}", what, in_quotes(text), low, high));
  }
  return value;
}

Result<double> parse_number(std::string_view what, std::string_view text, double low, double high) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || !(value >= low && value <= high)) {
    return invalid_argument(fmt::format("{} is {}: allowed is a number in {}..{}", what, in_quotes(text), low, high));
  }
  return value;
}

Status add_settings(std::string_view text, Params& params) {
  for (const std::string_view setting : split(text, ',')) {
    const std::size_t equals = setting.find('=');
    if (equals == std::string_view::npos || equals == 0) {
      return invalid_argument(fmt::format("--set has {}: allowed is key=value[,key=value...]", in_quotes(setting)));
    }
    params[std::string(setting.substr(0, equals))] = setting.substr(equals + 1);
  }
  return {};
}

std::string to_string(const Fault& fault) {
  switch (fault.kind) {
    case Fault::Kind::kNone: return "none";
    case Fault::Kind::kDropPut: return fmt::format("drop_put:{}", fault.amount);
    case Fault::Kind::kDelay: return fmt::format("delay:{}:{}", fault.rank, fault.amount);
    case Fault::Kind::kKill: return fmt::format("kill:{}", fault.rank);
    case Fault::Kind::kMismatch: return fmt::format("mismatch:{}", fault.rank);
  }
  return "?";
}

std::string forms_of(std::span<const Fault::Kind> kinds) {
  constexpr std::string_view kForms[] = {"none", "drop_put:N", "delay:RANK:MS", "kill:RANK", "mismatch:RANK"};
  std::string forms;
  for (const Fault::Kind kind : kinds) append_to_list(forms, ", ", kForms[static_cast<std::size_t>(kind)]);
  return forms;
}

Status check_fault(const OperatorInfo& op, const Fault& fault) {
  const auto& kinds = op.faults;
  if (fault.kind == Fault::Kind::kNone || std::find(kinds.begin(), kinds.end(), fault.kind) != kinds.end()) return {};
  const std::string what = kinds.empty() ? fmt::format("{} injects no fault", op.name)
                                         : fmt::format("allowed with {} is {}", op.name, forms_of(kinds));
  return invalid_argument(fmt::format("--fault is '{}': {}", to_string(fault), what));
}

Result<Fault> parse_fault(std::string_view text, int ranks) {
  const auto parts = split(text, ':');
  const auto wrong = [&] {
    return invalid_argument(fmt::format(
        "--fault is {}: allowed is drop_put:N, delay:RANK:MS, kill:RANK or mismatch:RANK", in_quotes(text)));
  };
  Fault fault;
  if (parts[0] == "drop_put" && parts.size() == 2) {
    const auto put = parse_integer("--fault drop_put:N", parts[1], 1, kLastPut);
    if (!put.ok()) return put.status();
    fault.kind = Fault::Kind::kDropPut;
    fault.amount = *put;
    return fault;
  }
  if (parts[0] == "delay" && parts.size() == 3) fault.kind = Fault::Kind::kDelay;
  if (parts[0] == "kill" && parts.size() == 2) fault.kind = Fault::Kind::kKill;
  if (parts[0] == "mismatch" && parts.size() == 2) fault.kind = Fault::Kind::kMismatch;
  if (fault.kind == Fault::Kind::kNone) return wrong();
  const auto rank = parse_integer(fmt::format("the rank of --fault {}", parts[0]), parts[1], 0, ranks - 1);
  if (!rank.ok()) return rank.status();
  fault.rank = static_cast<int>(*rank);
  if (fault.kind == Fault::Kind::kDelay) {
    const auto delay = parse_integer("the milliseconds of --fault delay", parts[2], 1, kLongestDelayMs);
    if (!delay.ok()) return delay.status();
    fault.amount = *delay;
  }
  return fault;
}

std::string one_line(std::string_view text) {
  constexpr std::size_t kMost = 1000;
  std::string line(text.substr(0, kMost));
  std::replace_if(
      line.begin(), line.end(), [](unsigned char c) { return c < ' ' || c == 127; }, '?');
  return text.size() > kMost ? line + "..." : line;
}

void append_to_list(std::string& list, std::string_view separator, std::string_view item) {
  if (!list.empty()) list += separator;
  list += item;
}

std::string to_string(const Params& params, std::span<const ParamInfo> infos) {
  std::string text;
  for (const ParamInfo& info : infos) {
    const auto found = params.find(info.name);
    if (found == params.end()) continue;
    append_to_list(text, " ", fmt::format("{}={}", info.name, found->second));
  }
  return text;
}

ParamReader::ParamReader(const Params& params, std::span<const ParamInfo> infos) : params_(params), infos_(infos) {
  for (const auto& [name, value] : params) {
    if (find_info(infos, name) != nullptr || !status_.ok()) continue;
    std::string allowed;
    for (const ParamInfo& info : infos) append_to_list(allowed, ", ", info.name);
    status_ = invalid_argument(
        fmt::format("parameter {} (value {}) is unknown: allowed are {}", in_quotes(name), in_quotes(value), allowed));
  }
}

std::string ParamReader::text(std::string_view name) {
  if (const auto found = params_.find(std::string(name)); found != params_.end()) return found->second;
  const ParamInfo* info = find_info(infos_, name);
  return info != nullptr ? info->default_value : std::string();
}

std::int64_t ParamReader::integer(std::string_view name, std::int64_t low, std::int64_t high) {
  const auto value = parse_integer(fmt::format("parameter {}", name), text(name), low, high);
  if (value.ok()) return *value;
  if (status_.ok()) status_ = value.status();
  return low;
}

double ParamReader::number(std::string_view name, double low, double high) {
  const auto value = parse_number(fmt::format("parameter {}", name), text(name), low, high);
  if (value.ok()) return *value;
  if (status_.ok()) status_ = value.status();
  return low;
}

bool ParamReader::flag(std::string_view name) {
  static constexpr Choice<bool> kFlags[] = {{"0", false}, {"1", true}, {"false", false}, {"true", true}};
  return choice(name, kFlags);
}

void ParamReader::reject(std::string_view name, std::string_view value, std::string_view allowed) {
  if (status_.ok())
    status_ = invalid_argument(fmt::format("parameter {} is {}: allowed is {}", name, in_quotes(value), allowed));
}

}  // namespace farwarp::harness
