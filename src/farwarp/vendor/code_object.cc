#include "farwarp/vendor/code_object.h"

#include <algorithm>
#include <tuple>

namespace farwarp {
namespace {

// Records are statics of other files and register before main(). A function's static is constructed at the first
// registration.
std::vector<const CodeObject*>& table() {
  static std::vector<const CodeObject*> objects;
  return objects;
}

}  // namespace

CodeObject::CodeObject(std::string_view name_, TargetKind target_, std::string_view arch_, const std::byte* begin_,
                       const std::byte* end_)
    : name(name_), target(target_), arch(arch_), begin(begin_), end(end_) {
  table().push_back(this);
}

std::vector<const CodeObject*> code_objects(TargetKind target) {
  std::vector<const CodeObject*> found;
  for (const CodeObject* object : table()) {
    if (object->target == target) found.push_back(object);
  }
  std::sort(found.begin(), found.end(), [](const CodeObject* a, const CodeObject* b) {
    return std::tie(a->name, a->arch) < std::tie(b->name, b->arch);
  });
  return found;
}

}  // namespace farwarp
