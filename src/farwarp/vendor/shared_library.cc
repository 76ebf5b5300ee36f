#include "farwarp/vendor/shared_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "farwarp/base/file.h"

namespace farwarp {

Result<SharedLibrary> SharedLibrary::open(const std::string& name) {
  const bool path = name.find('/') != std::string::npos;  // dlopen() would wait for a pipe's writer
  if (Status regular = path ? check_regular(name) : Status(); !regular.ok())
    return unavailable(fmt::format("cannot open the library {}: it {}", name, regular.message()));
  void* handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  if (handle == nullptr) handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return unavailable(fmt::format("cannot open the library {}: {}", name, dlerror()));
  return SharedLibrary(name, handle);
}

Result<void*> SharedLibrary::find(const char* symbol) const {
  void* address = dlsym(handle_, symbol);
  if (address == nullptr) return unavailable(fmt::format("the library {} has no function {}", name_, symbol));
  return address;
}

}  // namespace farwarp
