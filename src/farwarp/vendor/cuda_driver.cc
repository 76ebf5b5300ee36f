#include "farwarp/vendor/cuda_driver.h"

#include <fmt/format.h>

#include <memory>

namespace farwarp::cuda {
namespace {

Result<const Driver*> open_driver() {
  Result<SharedLibrary> library = SharedLibrary::open("libcuda.so.1");
  if (!library.ok()) return library.status();
  auto driver = std::make_unique<Driver>();
#define FARWARP_RESOLVE(member, symbol, parameters)                                      \
  if (Status status = driver->member.resolve(*library); !status.ok()) {                  \
    return unavailable(status.message() + "; a driver of CUDA 12.4 or newer is needed"); \
  }
  FARWARP_CUDA_FUNCTIONS(FARWARP_RESOLVE)
#undef FARWARP_RESOLVE
  if (Status status = driver->call(driver->initialize, 0u); !status.ok()) return unavailable(status.message());
  return driver.release();  // lives as long as the process
}

}  // namespace

Result<const Driver*> Driver::open() {
  static const Result<const Driver*> driver = open_driver();
  return driver;
}

Status Driver::status(const char* symbol, Error error) const {
  if (error == Error::kSuccess) return {};
  const char* name = nullptr;
  const char* text = nullptr;
  error_name(error, &name);
  error_string(error, &text);
  const StatusCode code = error == Error::kOutOfMemory ? StatusCode::kOutOfMemory : StatusCode::kInternal;
  return {code, fmt::format("{}: {} ({})", symbol, name ? name : fmt::format("error {}", static_cast<int>(error)),
                            text ? text : "unknown to the driver")};
}

}  // namespace farwarp::cuda
