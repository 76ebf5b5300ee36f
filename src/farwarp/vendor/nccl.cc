#include "farwarp/vendor/nccl.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <memory>
#include <string_view>

namespace farwarp::nccl {
namespace {

constexpr int kOldestVersion = 21000;  // the first with bfloat16

// Multicast objects can put a shared host's GPUs out of service, so NCCL must not make any. NCCL reads this variable
// only when it is initialised: if this process already uses NCCL, it must have been set before.
Status switch_multicast_off(const std::string& library) {
  constexpr const char* kVariable = "NCCL_NVLS_ENABLE";
  const char* value = std::getenv(kVariable);
  const bool off = value != nullptr && std::string_view(value) == "0";
  const bool held = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD) != nullptr;
  if (held && !off) {
    return unavailable(fmt::format(
        "this process had loaded {} before farwarp could switch NVLink multicast off in it; start it with {}=0",
        library, kVariable));
  }
  setenv(kVariable, "0", 1);
  return {};
}

Result<const Library*> open_library() {
  const std::string name = library_name();
  if (Status status = switch_multicast_off(name); !status.ok()) return status;
  const Result<SharedLibrary> opened = SharedLibrary::open(name);
  if (!opened.ok()) {
    return unavailable(opened.status().message() + "; install NCCL, or name its file in FARWARP_NCCL_LIBRARY");
  }
  auto library = std::make_unique<Library>();
  Status status = library->error_string.resolve(*opened);
#define FARWARP_RESOLVE(member, symbol, parameters) \
  if (status.ok()) status = library->member.resolve(*opened);
  FARWARP_NCCL_FUNCTIONS(FARWARP_RESOLVE)
#undef FARWARP_RESOLVE
  if (status.ok()) status = library->call(library->get_version, &library->version);
  if (status.ok() && library->version < kOldestVersion) {
    status = unavailable(fmt::format("{} is {}", name, library->describe()));
  }
  if (!status.ok()) return unavailable(status.message() + "; NCCL 2.10 or newer is needed");
  return library.release();  // lives as long as the process
}

}  // namespace

std::string library_name() {
  const char* name = std::getenv("FARWARP_NCCL_LIBRARY");
  return name != nullptr && *name != '\0' ? name : "libnccl.so.2";
}

Result<const Library*> Library::open() {
  static const Result<const Library*> library = open_library();
  return library;
}

Status Library::status(const char* symbol, Error error) const {
  if (error == Error::kSuccess) return {};
  const char* text = error_string(error);
  return internal_error(fmt::format("{}: {}", symbol, text ? text : fmt::format("error {}", static_cast<int>(error))));
}

std::string Library::describe() const {
  // Before 2.9 a version was coded in four digits.
  const int minor_unit = 100, major_unit = version < 10000 ? 1000 : 10000;
  return fmt::format("NCCL {}.{}.{}", version / major_unit, version % major_unit / minor_unit, version % minor_unit);
}

}  // namespace farwarp::nccl
