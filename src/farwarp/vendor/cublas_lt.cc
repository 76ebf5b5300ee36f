#include "farwarp/vendor/cublas_lt.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <memory>

namespace farwarp::cublas_lt {
namespace {

constexpr std::size_t kOldestVersion = 120000;
constexpr const char* kVariable = "FARWARP_CUBLASLT_LIBRARY";
constexpr const char* kNames[] = {"libcublasLt.so.13", "libcublasLt.so.12"};  // the newest first

Result<SharedLibrary> open_file() {
  const char* file = std::getenv(kVariable);
  if (file != nullptr && *file != '\0') return SharedLibrary::open(file);
  // A library that the process already uses is the right baseline for it.
  for (const char* name : kNames) {
    if (dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD) != nullptr) return SharedLibrary::open(name);
  }
  std::string why;
  for (const char* name : kNames) {
    auto opened = SharedLibrary::open(name);
    if (opened.ok()) return opened;
    why += (why.empty() ? "" : "; ") + opened.status().message();
  }
  return unavailable(why);
}

Result<const Library*> open_library() {
  const auto opened = open_file();
  if (!opened.ok()) {
    return unavailable(
        fmt::format("{}; install cuBLAS, or name its file libcublasLt.so in {}", opened.status().message(), kVariable));
  }
  auto library = std::make_unique<Library>();
  Status status = library->status_name.resolve(*opened);
  if (status.ok()) status = library->get_version.resolve(*opened);
#define FARWARP_RESOLVE(member, symbol, parameters) \
  if (status.ok()) status = library->member.resolve(*opened);
  FARWARP_CUBLASLT_FUNCTIONS(FARWARP_RESOLVE)
#undef FARWARP_RESOLVE
  if (status.ok()) {
    library->version = library->get_version();
    if (library->version < kOldestVersion) {
      status = unavailable(fmt::format("{} has version code {}", opened->name(), library->version));
    }
  }
  if (!status.ok()) return unavailable(status.message() + "; cuBLAS 12 or newer is needed");
  return library.release();  // lives as long as the process
}

StatusCode code_of(Error error) {
  switch (error) {
    case Error::kNotInitialized:  // what cublasLtCreate returns without a driver or a device
    case Error::kArchMismatch:
    case Error::kNotSupported: return StatusCode::kUnavailable;
    case Error::kAllocFailed: return StatusCode::kOutOfMemory;
    default: return StatusCode::kInternal;
  }
}

}  // namespace

Result<const Library*> Library::open() {
  static const Result<const Library*> library = open_library();
  return library;
}

Status Library::status(const char* symbol, Error error) const {
  if (error == Error::kSuccess) return {};
  const char* name = status_name(error);
  return {code_of(error), fmt::format("{}: {} (run with CUBLASLT_LOG_LEVEL=1 for details)", symbol,
                                      name ? name : fmt::format("status {}", static_cast<int>(error)))};
}

std::string Library::describe() const {
  return fmt::format("cuBLASLt {}.{}.{}", version / 10000, version % 10000 / 100, version % 100);
}

}  // namespace farwarp::cublas_lt
