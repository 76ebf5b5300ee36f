// Status and Result: how every host function of farwarp reports failure. Nothing throws.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace farwarp {

enum class StatusCode : std::uint8_t {
  kOk = 0,
  /// the caller's parameter is outside what is allowed; the message names it, its value and the range
  kInvalidArgument,
  kUnavailable,  ///< the machine lacks something: a device, a driver, a library, a kernel for this target
  kOutOfMemory,  ///< the device, the host or the symmetric heap has no room
  kMismatch,     ///< ranks disagree: on a descriptor, on the order of collective calls, on a call's configuration
  kMisuse,       ///< calls in an order the operator does not allow, or two calls in flight on one operator
  kCapacity,     ///< more rows arrived than the receive buffer holds
  kBadInput,     ///< a kernel found device data outside what is allowed (an expert index, a token count)
  kDeadline,     ///< a wait passed its deadline; the ledger says which wait and which peer
  kAborted,      ///< another rank raised the abort
  kPeerLost,     ///< a rank died or cannot drain; the World is lost for good
  kInternal,     ///< a broken invariant of farwarp, or an unexpected error of a driver
};

std::string_view to_string(StatusCode code);

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }
  /// "deadline: rank 2 waited ..." or "ok".
  std::string to_string() const;

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

inline Status invalid_argument(std::string message) { return {StatusCode::kInvalidArgument, std::move(message)}; }
inline Status unavailable(std::string message) { return {StatusCode::kUnavailable, std::move(message)}; }
inline Status internal_error(std::string message) { return {StatusCode::kInternal, std::move(message)}; }

/// A value or the Status that says why there is none.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Status status) : state_(std::in_place_index<1>, std::move(status)) {}

  bool ok() const { return state_.index() == 0; }
  Status status() const { return ok() ? Status{} : std::get<1>(state_); }
  T& value() & { return std::get<0>(state_); }
  const T& value() const& { return std::get<0>(state_); }
  T&& value() && { return std::get<0>(std::move(state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  std::variant<T, Status> state_;
};

}  // namespace farwarp
