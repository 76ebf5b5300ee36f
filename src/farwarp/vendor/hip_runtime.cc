#include "farwarp/vendor/hip_runtime.h"

#include <fmt/format.h>

#include <cstdlib>
#include <memory>

namespace farwarp::hip {
namespace {

// The file name without a version is the development link; an installation without development files has only versioned
// names.
Result<SharedLibrary> open_library() {
  if (const char* name = std::getenv("FARWARP_HIP_LIBRARY"); name != nullptr && *name != '\0') {
    return SharedLibrary::open(name);
  }
  Result<SharedLibrary> library = SharedLibrary::open("libamdhip64.so");
  for (const char* name : {"libamdhip64.so.7", "libamdhip64.so.6"}) {
    if (library.ok()) break;
    if (Result<SharedLibrary> versioned = SharedLibrary::open(name); versioned.ok()) library = versioned;
  }
  return library;
}

Result<const Runtime*> open_runtime() {
  Result<SharedLibrary> library = open_library();
  if (!library.ok()) return library.status();
  auto runtime = std::make_unique<Runtime>();
#define FARWARP_RESOLVE(member, symbol, parameters)                         \
  if (Status status = runtime->member.resolve(*library); !status.ok()) {    \
    return unavailable(status.message() + "; ROCm 6.0 or newer is needed"); \
  }
  FARWARP_HIP_FUNCTIONS(FARWARP_RESOLVE)
#undef FARWARP_RESOLVE
  if (Status status = runtime->call(runtime->initialize, 0u); !status.ok()) return unavailable(status.message());
  return runtime.release();  // lives as long as the process
}

}  // namespace

Result<const Runtime*> Runtime::open() {
  static const Result<const Runtime*> runtime = open_runtime();
  return runtime;
}

Status Runtime::status(const char* symbol, Error error) const {
  if (error == Error::kSuccess) return {};
  const char* name = nullptr;
  const char* text = nullptr;
  error_name(error, &name);
  error_string(error, &text);
  forget_error();
  const StatusCode code = error == Error::kOutOfMemory ? StatusCode::kOutOfMemory : StatusCode::kInternal;
  return {code, fmt::format("{}: {} ({})", symbol, name ? name : fmt::format("error {}", static_cast<int>(error)),
                            text ? text : "unknown to the library")};
}

}  // namespace farwarp::hip
