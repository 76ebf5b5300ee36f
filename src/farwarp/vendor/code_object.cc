#include "farwarp/vendor/code_object.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <tuple>

namespace farwarp {
namespace {

// Records are statics of other files and register before main(). A function's static is constructed at the first
// registration.
std::vector<const CodeObject*>& table() {
  static std::vector<const CodeObject*> objects;
  return objects;
}

// The size of the image, 8 bytes, little-endian; then a zlib stream. Null if they are damaged.
const std::vector<std::byte>* decompress(std::span<const std::byte> compressed) {
  constexpr std::size_t kSizeBytes = 8;
  constexpr std::uint64_t kMaxRatio = 1032;  // of deflate: a damaged size must not allocate all memory
  if (compressed.size() <= kSizeBytes) return nullptr;
  std::uint64_t size = 0;
  for (std::size_t at = 0; at < kSizeBytes; ++at) size |= std::to_integer<std::uint64_t>(compressed[at]) << (8 * at);
  const std::span<const std::byte> stream = compressed.subspan(kSizeBytes);
  if (size > kMaxRatio * stream.size()) return nullptr;
  auto image = std::make_unique<std::vector<std::byte>>(size);
  uLongf written = size;
  const int error = uncompress(reinterpret_cast<Bytef*>(image->data()), &written,
                               reinterpret_cast<const Bytef*>(stream.data()), stream.size());
  return error == Z_OK && written == size ? image.release() : nullptr;
}

}  // namespace

CodeObject::CodeObject(std::string_view name_, TargetKind target_, std::string_view arch_, const std::byte* begin_,
                       const std::byte* end_)
    : name(name_), target(target_), arch(arch_), compressed(begin_, end_) {
  table().push_back(this);
}

Result<std::span<const std::byte>> CodeObject::image() const {
  std::call_once(once_, [this] { image_ = decompress(compressed); });
  if (image_ == nullptr)
    return internal_error(fmt::format("{} ({}) is damaged: it cannot be decompressed", name, arch));
  return std::span(*image_);
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
