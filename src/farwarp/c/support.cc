#include "farwarp/c/support.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

namespace farwarp::c {
namespace {

thread_local std::string last_message = "no call of this thread has failed";

constexpr DLDataType kFloat32 = {kDLFloat, 32, 1};

std::string text_of(DLDataType type) {
  if (same(type, kFp8)) return "float8_e4m3fn";
  if (same(type, kFp8Fnuz)) return "float8_e4m3fnuz";
  const char* const name = type.code == kDLInt      ? "int"
                           : type.code == kDLUInt   ? "uint"
                           : type.code == kDLFloat  ? "float"
                           : type.code == kDLBfloat ? "bfloat"
                                                    : nullptr;
  const std::string text = name != nullptr ? fmt::format("{}{}", name, type.bits)
                                           : fmt::format("DLPack type {} of {} bits", type.code, type.bits);
  return type.lanes == 1 ? text : fmt::format("{} x {}", text, type.lanes);
}

std::string text_of(std::initializer_list<std::int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape.begin(), shape.end(), ", "));
}
std::string shape_text(const DLTensor& tensor) {
  return fmt::format("[{}]", fmt::join(tensor.shape, tensor.shape + tensor.ndim, ", "));
}

/// What the C++ API calls what c.h calls otherwise, in messages. Of two that begin alike the longer one is first.
constexpr std::pair<std::string_view, std::string_view> kNames[] = {
    {"AttentionDesc.max_queries", "desc.queries"},
    {"* max_queries", "* queries"},
    {"AttentionDesc.max_keys", "desc.keys"},
    {"AttentionDesc.", "desc."},
    {"FlashDecodeDesc.kv_dtype is same", "desc.fp8_cache is 0"},
    {"FlashDecodeDesc.sinks is false", "desc.has_sinks is 0"},
    {"FlashDecodeDesc.", "desc."},
    {"MoeAllToAllDesc.layout is kRows; allowed: kRows without", "desc.rows is 1; allowed: 1 without"},
    {"MoeAllToAllDesc.layout kRows", "desc.rows"},
    {"0, or with layout kRows a multiple", "0, or with rows a multiple"},
    {"MoeAllToAllDesc.scales is kColumns; allowed: kRowMajor, or with fp8_dispatch and layout kMasked the others",
     "desc.scale_columns is 1; allowed: 0, or 1 with fp8_dispatch and masked"},
    {"MoeAllToAllDesc.fp8_dispatch is true", "desc.fp8_dispatch is 1"},
    {"MoeAllToAllDesc.", "desc."},
    {"MoeLayerDesc.", "desc."},
    {"MoeTokens.tokens_on_device", "count"},
    {"MoeTokens.topk_", ""},
    {"MoeTokens.", ""},
    {"MoeReceived.topk_", "recv_"},
    {"MoeReceived.x", "recv_x"},
    {"MoeReceived.", ""},
    {"MoeCounts.", ""},
    {"MoeHandle.memory", "handle"},
    {"MoeHandle.topk_", ""},
    {"MoeHandle.", ""},
    {"topk_weights", "weights"},
    {"topk_indices", "indices"},
    {"tokens_on_device", "count"},
    {"ParallelGemmDesc.", "desc."},
    {"GroupedGemmDesc.", "desc."},
    {"GemmDesc.", "desc."},
    {"AllReduceDesc.", "desc."},
    {"Qwen3Limits.", "desc."},
    {"Qwen3Sampling.", "sampling."},
    {"Qwen3Call.", ""},
    {"Qwen3Decoder::", "farwarp_qwen3_"},
    {"WorldOptions::deadline is", "desc.deadline_ms is"},
    {"WorldOptions::", "desc."},
    {"ordinal is", "device is"},
};

std::string in_names_of_c(std::string message) {
  for (const auto& [cpp, c] : kNames) {
    for (std::size_t at = 0; (at = message.find(cpp, at)) != std::string::npos; at += c.size())
      message.replace(at, cpp.size(), c);
  }
  return message;
}

/// What can be read of it at all.
Status check_form(const char* name, const DLTensor& tensor) {
  if (tensor.ndim < 0) return invalid_argument(fmt::format("{}.ndim is {}; allowed: 0 or more", name, tensor.ndim));
  if (tensor.ndim > 0 && tensor.shape == nullptr) return null_argument(fmt::format("{}.shape", name).c_str());
  return {};
}

DLDeviceType device_type(TargetKind target) {
  return target == TargetKind::kCuda ? kDLCUDA : target == TargetKind::kHip ? kDLROCM : kDLCPU;
}

Status check_place(const char* name, const DLTensor& tensor, const Device& device) {
  const DLDeviceType wanted = device_type(device.target());
  const int ordinal = wanted == kDLCPU ? 0 : device.ordinal();
  if (tensor.device.device_type != wanted || (wanted != kDLCPU && tensor.device.device_id != ordinal))
    return invalid_argument(fmt::format("{} is on DLPack device ({}, {}); allowed: ({}, {}), that of the world", name,
                                        static_cast<int>(tensor.device.device_type), tensor.device.device_id,
                                        static_cast<int>(wanted), ordinal));
  return {};
}

DLDataType fp8_type(const Device& device) { return device.shape().traits.fp8 == Fp8Format::kOcp ? kFp8 : kFp8Fnuz; }

Status check_contiguous(const char* name, const DLTensor& tensor) {
  if (tensor.strides == nullptr) return {};
  for (int i = 0; i < tensor.ndim; ++i) {
    if (tensor.shape[i] == 0) return {};  // strides of no elements say nothing
  }
  std::int64_t expected = 1;
  for (int i = tensor.ndim - 1; i >= 0; --i) {
    if (tensor.shape[i] != 1 && tensor.strides[i] != expected)
      return invalid_argument(fmt::format("{} has stride {} in dimension {}; allowed: {}, a contiguous tensor", name,
                                          tensor.strides[i], i, expected));
    expected *= tensor.shape[i];
  }
  return {};
}

}  // namespace

bool same(DLDataType a, DLDataType b) { return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes; }

void Allocations::add(const void* pointer, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  bytes_of_[reinterpret_cast<std::uintptr_t>(pointer)] = bytes;
}

bool Allocations::remove(const void* pointer) {
  const std::lock_guard lock(mutex_);
  return bytes_of_.erase(reinterpret_cast<std::uintptr_t>(pointer)) == 1;
}

Status Allocations::check(const char* name, const void* pointer, std::size_t bytes, bool only) const {
  if (bytes == 0) return {};
  if (pointer == nullptr) return null_argument(name);
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  const std::lock_guard lock(mutex_);
  const auto next = bytes_of_.upper_bound(address);
  const auto found = next == bytes_of_.begin() ? bytes_of_.end() : std::prev(next);
  if (found == bytes_of_.end() || address - found->first >= found->second) {
    if (!only) return {};
    return invalid_argument(fmt::format("{} is {}; allowed: memory of farwarp_allocate()", name, fmt::ptr(pointer)));
  }
  const std::size_t left = found->second - (address - found->first);
  if (bytes <= left) return {};
  return invalid_argument(
      fmt::format("bytes is {}; allowed: up to {}, what the allocation has from {} on", bytes, left, name));
}

farwarp_code code_of(const Status& status) {
  if (!status.ok()) last_message = in_names_of_c(status.message());
  return static_cast<farwarp_code>(status.code());
}

Status null_argument(const char* name) { return invalid_argument(fmt::format("{} is NULL; allowed: a pointer", name)); }

Status check_choice(const char* name, std::int32_t value, std::int32_t last) {
  if (value >= 0 && value <= last) return {};
  return invalid_argument(fmt::format("{} is {}; allowed: 0 to {}", name, value, last));
}

Result<bool> read_flag(const char* name, std::int32_t value) {
  if (value == 0 || value == 1) return value == 1;
  return invalid_argument(fmt::format("desc.{} is {}; allowed: 0, 1", name, value));
}

DLDataType type_of(DType dtype) {
  switch (dtype) {
    case DType::kF16: return {kDLFloat, 16, 1};
    case DType::kBf16: return {kDLBfloat, 16, 1};
    case DType::kF32: return kFloat32;
    case DType::kI32: return {kDLInt, 32, 1};
    case DType::kI64: break;
  }
  return {kDLInt, 64, 1};
}

Result<DType> read_dtype(const char* name, DLDataType type, std::initializer_list<DType> allowed) {
  std::string names;
  for (const DType dtype : allowed) {
    if (same(type, type_of(dtype))) return dtype;
    names += (names.empty() ? "" : ", ") + text_of(type_of(dtype));
  }
  return invalid_argument(fmt::format("desc.{} is {}; allowed: {}", name, text_of(type), names));
}

void* Tensors::read(const char* name, const DLTensor* tensor, DLDataType type,
                    std::initializer_list<std::int64_t> shape) {
  return read_checked(name, tensor, type, [&]() -> Status {
    if (tensor->ndim == static_cast<int>(shape.size()) && std::equal(shape.begin(), shape.end(), tensor->shape))
      return {};
    return invalid_argument(fmt::format("{} has shape {}; allowed: {}", name, shape_text(*tensor), text_of(shape)));
  });
}

void* Tensors::read_any_shape(const char* name, const DLTensor* tensor, DLDataType type, std::int64_t most,
                              std::int64_t& elements) {
  elements = 0;
  return read_checked(name, tensor, type, [&]() -> Status {
    std::int64_t count = 1;
    for (int i = 0; i < tensor->ndim && count > 0; ++i) {
      const std::int64_t size = tensor->shape[i];
      count = size < 0 || (size > 0 && count > most / size) ? -1 : count * size;
    }
    if (count < 0)
      return invalid_argument(
          fmt::format("{} has shape {}; allowed: 0 to {} elements", name, shape_text(*tensor), most));
    elements = count;
    return {};
  });
}

bool Tensors::is_of(DLDataType found, DLDataType wanted) const {
  if (!same(wanted, kFp8)) return same(found, wanted);
  return same(found, kBytes) || same(found, fp8_type(device_));
}

template <class CheckShape>
void* Tensors::read_checked(const char* name, const DLTensor* tensor, DLDataType type, const CheckShape& check_shape) {
  if (!status_.ok()) return nullptr;
  if (tensor == nullptr) {
    status_ = null_argument(name);
    return nullptr;
  }
  if (status_ = check_form(name, *tensor); !status_.ok()) return nullptr;
  if (!is_of(tensor->dtype, type)) {
    const std::string bytes = same(type, kFp8) ? text_of(kBytes) + ", " : "";
    const DLDataType allowed = same(type, kFp8) ? fp8_type(device_) : type;
    status_ = invalid_argument(
        fmt::format("{} is of {}; allowed: {}{}", name, text_of(tensor->dtype), bytes, text_of(allowed)));
  } else if (status_ = check_shape(); status_.ok()) {
    status_ = check_place(name, *tensor, device_);
  }
  if (status_.ok()) status_ = check_contiguous(name, *tensor);
  if (!status_.ok() || tensor->data == nullptr) return nullptr;  // the operator says whether null is allowed
  return static_cast<std::byte*>(tensor->data) + tensor->byte_offset;
}

void* Tensors::read_if(bool wanted, const char* name, const DLTensor* tensor, DLDataType type,
                       std::initializer_list<std::int64_t> shape) {
  if (wanted) return read(name, tensor, type, shape);
  if (tensor != nullptr && status_.ok())
    status_ = invalid_argument(fmt::format("{} is given; allowed: NULL, as the descriptor says", name));
  return nullptr;
}

std::int64_t Tensors::rows_of(const char* name, const DLTensor* tensor, std::int64_t most) {
  if (!status_.ok()) return -1;
  if (tensor == nullptr) {
    status_ = null_argument(name);
    return -1;
  }
  if (status_ = check_form(name, *tensor); !status_.ok()) return -1;
  const std::int64_t rows = tensor->ndim > 0 ? tensor->shape[0] : -1;
  if (rows >= 0 && rows <= most) return rows;
  status_ = invalid_argument(fmt::format("{} has shape {}; allowed: 0 to {} rows", name, shape_text(*tensor), most));
  return -1;
}

}  // namespace farwarp::c

extern "C" {

int32_t farwarp_c_version() { return FARWARP_C_VERSION; }
farwarp_code farwarp_require_version(int32_t version) {
  using farwarp::StatusCode;
  return farwarp::c::guarded([&]() -> farwarp::Status {
    if (version >= FARWARP_C_OLDEST && version <= FARWARP_C_VERSION) return {};
    return {version < 1 ? StatusCode::kInvalidArgument : StatusCode::kUnavailable,
            fmt::format("version is {}; allowed: {} to {}, that of this library", version, FARWARP_C_OLDEST,
                        FARWARP_C_VERSION)};
  });
}
const char* farwarp_message() { return farwarp::c::last_message.c_str(); }
const char* farwarp_code_name(farwarp_code code) {
  if (code < FARWARP_OK || code > FARWARP_INTERNAL) return "unknown";
  return farwarp::to_string(static_cast<farwarp::StatusCode>(code)).data();
}
}
