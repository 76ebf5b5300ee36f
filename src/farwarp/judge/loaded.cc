#include "farwarp/judge/loaded.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <type_traits>
#include <utility>

namespace farwarp::judge {
namespace {

constexpr std::size_t kErrorBytes = 4096;

Status refused(int code, const char* why) {
  return {StatusCode::kMisuse,
          fmt::format("the submission refuses the case ({}): {}", code, *why != '\0' ? why : "it gives no reason")};
}

class SharedObject : public Loaded {
 public:
  Status create(const std::string& path, const farwarp_submission_problem& problem) override {
    void* const object = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (object == nullptr) return invalid_argument(fmt::format("cannot be loaded: {}", ::dlerror()));
    const auto find = [&](const char* name, auto& function) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(object, name));
      return function != nullptr ? Status() : invalid_argument(fmt::format("{} does not define {}()", path, name));
    };
    decltype(&farwarp_submission_abi_version) version = nullptr;
    decltype(&farwarp_submission_create) creating = nullptr;
    decltype(&farwarp_submission_destroy) destroying = nullptr;
    Status status = find("farwarp_submission_abi_version", version);
    if (status.ok() && version() != FARWARP_SUBMISSION_ABI_VERSION)
      status = invalid_argument(fmt::format("farwarp_submission_abi_version() is {}: allowed is {}", version(),
                                            FARWARP_SUBMISSION_ABI_VERSION));
    if (status.ok()) status = find("farwarp_submission_create", creating);
    if (status.ok()) status = find("farwarp_submission_run", run_);
    if (status.ok()) status = find("farwarp_submission_destroy", destroying);
    if (!status.ok()) return status;
    std::vector<char> error(kErrorBytes, '\0');
    const int code = creating(&problem, &state_, error.data(), error.size());
    error.back() = '\0';
    if (code != 0) return refused(code, error.data());
    destroy_ = destroying;
    return {};
  }
  Status prepare(const CallArguments& arguments) override {
    arguments_ = arguments;
    return {};
  }
  Status run() override {
    const auto count = [](const auto& list) { return static_cast<std::int32_t>(list.size()); };
    const int code = run_(state_, arguments_.inputs.data(), count(arguments_.inputs), arguments_.outputs.data(),
                          count(arguments_.outputs), arguments_.stream.handle);
    return code == 0 ? Status() : Status(StatusCode::kMisuse, fmt::format("the submission's run() returned {}", code));
  }
  Status deliver() override { return {}; }
  void destroy() override {
    if (destroy_ != nullptr) destroy_(state_);
  }
  bool is_python() const override { return false; }

 private:
  decltype(&farwarp_submission_run) run_ = nullptr;
  decltype(&farwarp_submission_destroy) destroy_ = nullptr;
  void* state_ = nullptr;
  CallArguments arguments_;
};

class PythonFile : public Loaded {
 public:
  explicit PythonFile(const farwarp_submission_callbacks& callbacks) : callbacks_(callbacks) {}
  Status create(const std::string& /*path*/, const farwarp_submission_problem& problem) override {
    const int code = callbacks_.create(&problem);
    return code == 0 ? Status() : refused(code, callbacks_.last_error());
  }
  Status prepare(const CallArguments& arguments) override {
    return checked(callbacks_.prepare(arguments.inputs.data(), static_cast<std::int32_t>(arguments.inputs.size()),
                                      arguments.outputs.data(), static_cast<std::int32_t>(arguments.outputs.size()),
                                      arguments.stream.handle));
  }
  Status run() override { return checked(callbacks_.run()); }
  Status deliver() override { return checked(callbacks_.deliver()); }
  void destroy() override { callbacks_.destroy(); }
  bool is_python() const override { return true; }

 private:
  Status checked(int code) const {
    return code == 0 ? Status()
                     : Status(StatusCode::kMisuse, fmt::format("the submission: {}", callbacks_.last_error()));
  }
  farwarp_submission_callbacks callbacks_;
};

}  // namespace

std::unique_ptr<Loaded> shared_object() { return std::make_unique<SharedObject>(); }
std::unique_ptr<Loaded> python_file(const farwarp_submission_callbacks& callbacks) {
  return std::make_unique<PythonFile>(callbacks);
}

}  // namespace farwarp::judge
