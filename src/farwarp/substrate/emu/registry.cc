#include "farwarp/substrate/emu/registry.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace farwarp::emu {
namespace {

std::vector<const KernelRecord*>& records() {
  static auto* all =
      new std::vector<const KernelRecord*>;  // filled by static constructors, so it must outlive and precede them
  return *all;
}

std::string& preferred_variant() {
  static std::string variant;
  return variant;
}

const KernelRecord* find_exactly(std::string_view name, TargetKind personality) {
  for (const KernelRecord* record : records()) {
    if (record->personality == personality && name == record->name) return record;
  }
  return nullptr;
}

}  // namespace

KernelRecord::KernelRecord(const char* kernel, TargetKind kind, std::size_t bytes, int most_threads,
                           void (*run)(const void*))
    : name(kernel), personality(kind), args_bytes(bytes), max_threads(most_threads), body(run) {
  records().push_back(this);
}

void prefer_variant(std::string_view variant) { preferred_variant() = variant; }

const KernelRecord* find_kernel(std::string_view name, TargetKind personality) {
  if (!preferred_variant().empty()) {
    const KernelRecord* record = find_exactly(preferred_variant() + ":" + std::string(name), personality);
    if (record != nullptr) return record;
  }
  return find_exactly(name, personality);
}

std::vector<const KernelRecord*> list_kernels(TargetKind personality) {
  std::vector<const KernelRecord*> result;
  for (const KernelRecord* record : records()) {
    if (record->personality == personality) result.push_back(record);
  }
  std::sort(result.begin(), result.end(),
            [](const KernelRecord* a, const KernelRecord* b) { return std::strcmp(a->name, b->name) < 0; });
  return result;
}

}  // namespace farwarp::emu
