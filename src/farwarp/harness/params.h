// Typed reading of a Case's parameters, with errors that name the parameter, its value and what is allowed.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "farwarp/base/half.h"
#include "farwarp/base/status.h"
#include "farwarp/harness/case.h"

namespace farwarp::harness {

/// A decimal integer in [low, high]; nothing may follow it. The error message begins with `what`: "parameter
/// hidden_dim".
Result<std::int64_t> parse_integer(std::string_view what, std::string_view text, std::int64_t low, std::int64_t high);

/// The same for a decimal number.
Result<double> parse_number(std::string_view what, std::string_view text, double low, double high);

/// Splits "key=value,key=value" and adds the pairs to `params`; later values replace earlier ones.
Status add_settings(std::string_view text, Params& params);

/// "drop_put:N", "delay:RANK:MS", "kill:RANK", "mismatch:RANK".
Result<Fault> parse_fault(std::string_view text, int ranks);
/// The text that parse_fault() reads.
std::string to_string(const Fault& fault);
/// "drop_put:N, kill:RANK": what --fault accepts for these kinds; empty if there are none.
std::string forms_of(std::span<const Fault::Kind> kinds);
/// kInvalidArgument if the operator does not inject such a fault; the message names those that it injects.
Status check_fault(const OperatorInfo& op, const Fault& fault);

/// `text`, from a file or a user, made fit for a one-line message: control characters become '?', and it is cut off
/// after 1000 bytes.
std::string one_line(std::string_view text);

/// "a", "a, b", "a, b, c": adds `item` to `list`, after `separator` unless it is the first.
void append_to_list(std::string& list, std::string_view separator, std::string_view item);

/// "a=1 b=2", in the order of `infos`.
std::string to_string(const Params& params, std::span<const ParamInfo> infos);

template <class Enum>
struct Choice {
  std::string_view name;
  Enum value;
};
/// "bf16|fp16".
inline constexpr Choice<DType> kSixteenBitTypes[] = {{"bf16", DType::kBf16}, {"fp16", DType::kF16}};

/// Reads the parameters that `infos` declare, defaults included. A read that fails returns the lowest or first allowed
/// value. The first error is kept, so that a Case reads all parameters and then calls status() once.
class ParamReader {
 public:
  ParamReader(const Params& params, std::span<const ParamInfo> infos);

  std::int64_t integer(std::string_view name, std::int64_t low, std::int64_t high);
  int small_integer(std::string_view name, int low, int high) { return static_cast<int>(integer(name, low, high)); }
  double number(std::string_view name, double low, double high);
  /// 0 or 1, false or true.
  bool flag(std::string_view name);
  std::string text(std::string_view name);

  template <class Enum, std::size_t N>
  Enum choice(std::string_view name, const Choice<Enum> (&choices)[N]) {
    const std::string value = text(name);
    std::string allowed;
    for (const auto& choice : choices) {
      if (choice.name == value) return choice.value;
      append_to_list(allowed, "|", choice.name);
    }
    reject(name, value, allowed);
    return choices[0].value;
  }

  /// Records the error that `value` is not allowed for parameter `name`.
  void reject(std::string_view name, std::string_view value, std::string_view allowed);
  const Status& status() const { return status_; }

 private:
  const Params& params_;
  std::span<const ParamInfo> infos_;
  Status status_;
};

}  // namespace farwarp::harness
