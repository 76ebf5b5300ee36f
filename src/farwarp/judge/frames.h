// What the judge and the process of a rank say to each other.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "farwarp/world/host/connection.h"

namespace farwarp::judge {

/// Frame::kind. Setup, Load, Call, Gathered and Finish are the judge's, the others answer them.
enum Kind : std::uint32_t {
  kSetup = 1,  ///< JSON, with the descriptor of the rank's memory
  kReady,      ///< JSON: error
  kTryOut,     ///< an empty call, before the submission is loaded: how long the judge waits for nothing
  kLoad,
  kGather,    ///< the bytes of one rank
  kGathered,  ///< of all
  kCreated,   ///< JSON: error
  kCall,      ///< JSON: where the tensors are. Its sequence is a secret that the answer repeats
  kDone,      ///< JSON: error, us
  kFinish,
  kFinished,
};

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

}  // namespace farwarp::judge
