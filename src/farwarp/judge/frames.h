// What the judge and the process of a rank say to each other.
#pragma once

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "farwarp/base/status.h"
#include "farwarp/world/host/connection.h"

namespace farwarp::judge {

/// Frame::kind. Setup, TryOut, Load, Call, Gathered, Go and Finish are the judge's, the others the rank's.
enum Kind : std::uint32_t {
  kSetup = 1,  ///< JSON, with the descriptor of the rank's memory
  kReady,      ///< JSON: error
  kTryOut,     ///< as kCall, without a submission: how long the judge waits for nothing
  kLoad,
  kGather,    ///< the bytes of one rank
  kGathered,  ///< of all
  kCreated,   ///< JSON: error
  kCall,      ///< JSON: hold_ns, places (Arena::offsets()), shapes. Its sequence is a random number that frames of this
              ///< call repeat
  kRelease,   ///< the work is enqueued, its stream is held: the inputs are to be there
  kGo,        ///< that has been done
  kDone,      ///< JSON: error, us, late
  kFinish,
  kFinished,
};

/// Exit status of a rank's process that finds the judge's socket closed.
inline constexpr int kLostJudge = 113;

inline std::vector<std::byte> to_bytes(const nlohmann::json& value) {
  const std::string text = value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  const auto* begin = reinterpret_cast<const std::byte*>(text.data());
  return {begin, begin + text.size()};
}
/// A discarded value if it is none.
inline nlohmann::json to_json(const std::vector<std::byte>& bytes) {
  const auto* begin = reinterpret_cast<const char*>(bytes.data());
  return nlohmann::json::parse(begin, begin + bytes.size(), nullptr, false);
}

/// What kReady, kCreated, kDone and kFinished say.
struct Answer {
  Status status;
  double us = 0;
  bool late = false;  ///< the host enqueued too late for the hold: the time does not count
};

inline std::vector<std::byte> to_bytes(const Answer& answer) {
  if (answer.status.ok()) return to_bytes(nlohmann::json{{"us", answer.us}, {"late", answer.late}});
  return to_bytes(nlohmann::json{{"error", answer.status.message()}, {"code", static_cast<int>(answer.status.code())}});
}

/// A submission may have written it. Nothing if it is no answer.
inline std::optional<Answer> read_answer(const std::vector<std::byte>& payload) {
  const nlohmann::json text = to_json(payload);
  if (!text.is_object()) return {};
  Answer answer;
  if (text.contains("us") && text["us"].is_number()) {
    answer.us = text["us"].get<double>();
    answer.late = text.contains("late") && text["late"] == true;
    if (std::isfinite(answer.us) && answer.us >= 0) return answer;
  }
  if (!text.contains("error") || !text["error"].is_string() || !text.contains("code") ||
      !text["code"].is_number_integer())
    return {};
  const auto code = text["code"].get<std::int64_t>();
  const bool known = code > 0 && code <= static_cast<int>(StatusCode::kInternal);
  answer.status = {known ? static_cast<StatusCode>(code) : StatusCode::kMisuse, text["error"].get<std::string>()};
  return answer;
}

}  // namespace farwarp::judge
