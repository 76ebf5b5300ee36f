// Libraries opened at run time: on machines without them farwarp still runs, and says what is missing.
#pragma once

#include <string>

#include "farwarp/base/status.h"

namespace farwarp {

/// A shared library. It is never closed, because drivers cannot be unloaded safely.
class SharedLibrary {
 public:
  /// Uses the library that the process has already loaded, if any: a second HIP runtime in one process would have
  /// streams and memory of its own. kUnavailable has the loader's message.
  static Result<SharedLibrary> open(const std::string& name);

  const std::string& name() const { return name_; }

  /// The address of `symbol`; kUnavailable names library and symbol.
  Result<void*> find(const char* symbol) const;

 private:
  SharedLibrary(std::string name, void* handle) : name_(std::move(name)), handle_(handle) {}
  std::string name_;
  void* handle_;
};

/// A function of a run-time-opened library, with the name that errors report.
template <class Signature>
struct LibraryFunction;

template <class Return, class... Parameters>
struct LibraryFunction<Return(Parameters...)> {
  const char* symbol;
  Return (*address)(Parameters...) = nullptr;

  template <class... Arguments>
  Return operator()(Arguments... arguments) const {
    return address(arguments...);
  }

  Status resolve(const SharedLibrary& library) {
    Result<void*> found = library.find(symbol);
    if (!found.ok()) return found.status();
    address = reinterpret_cast<Return (*)(Parameters...)>(*found);
    return {};
  }
};

}  // namespace farwarp
