// Code objects made by tests.
#pragma once

#include <string>
#include <vector>

#include "farwarp/vendor/code_object.h"

namespace farwarp {

/// What cmake/compress.py makes of `image`, but stored: a test makes a thousand.
std::string compressed(const std::string& image);

/// An object with these embedded bytes, "broken (none)". It lives as long as the program, because CodeObject registers
/// itself.
const CodeObject& object_of(const std::string& bytes, TargetKind target);

/// code_objects() without those of object_of().
std::vector<const CodeObject*> built_objects(TargetKind target);

}  // namespace farwarp
