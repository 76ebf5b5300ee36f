#include "farwarp/base/status.h"

namespace farwarp {

std::string_view to_string(StatusCode code) {
  switch (code) {
    case StatusCode::kOk: return "ok";
    case StatusCode::kInvalidArgument: return "invalid argument";
    case StatusCode::kUnavailable: return "unavailable";
    case StatusCode::kOutOfMemory: return "out of memory";
    case StatusCode::kMismatch: return "mismatch";
    case StatusCode::kMisuse: return "misuse";
    case StatusCode::kCapacity: return "capacity";
    case StatusCode::kBadInput: return "bad input";
    case StatusCode::kDeadline: return "deadline";
    case StatusCode::kAborted: return "aborted";
    case StatusCode::kPeerLost: return "peer lost";
    case StatusCode::kInternal: return "internal error";
  }
  return "unknown status";
}

std::string Status::to_string() const {
  std::string text(farwarp::to_string(code_));
  if (!message_.empty()) text += ": " + message_;
  return text;
}

}  // namespace farwarp
