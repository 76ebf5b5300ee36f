#include "farwarp/harness/submission.h"

#include <functional>
#include <numeric>

namespace farwarp::harness {
namespace {

std::size_t bytes_in(const std::vector<std::int64_t>& shape, ElementType type) {
  return static_cast<std::size_t>(std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>())) *
         bytes_of(type);
}

}  // namespace

std::string_view name_of(ElementType type) {
  switch (type) {
    case ElementType::kF16: return "float16";
    case ElementType::kBf16: return "bfloat16";
    case ElementType::kF32: return "float32";
    case ElementType::kI32: return "int32";
    case ElementType::kI64: return "int64";
    case ElementType::kF8: return "float8_e4m3";
  }
  return "?";
}

std::size_t bytes_of(ElementType type) {
  switch (type) {
    case ElementType::kF8: return 1;
    case ElementType::kF16:
    case ElementType::kBf16: return 2;
    case ElementType::kF32:
    case ElementType::kI32: return 4;
    case ElementType::kI64: return 8;
  }
  return 0;
}

ElementType element_type(DType type) {
  switch (type) {
    case DType::kF16: return ElementType::kF16;
    case DType::kBf16: return ElementType::kBf16;
    case DType::kF32: return ElementType::kF32;
    case DType::kI32: return ElementType::kI32;
    case DType::kI64: return ElementType::kI64;
  }
  return ElementType::kF32;
}

namespace {
Submission* g_submission = nullptr;
}  // namespace

Submission* submission() { return g_submission; }
void set_submission(Submission* submission) { g_submission = submission; }

std::size_t Argument::bytes() const { return bytes_in(shape, type); }
std::size_t Argument::most_bytes() const { return bytes_in(most.empty() ? shape : most, type); }

}  // namespace farwarp::harness
