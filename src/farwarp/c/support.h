// What the functions of c.h share: failures, descriptors, tensors.
#pragma once

#include <fmt/format.h>

#include <cstring>
#include <exception>
#include <initializer_list>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <utility>

#include "farwarp/base/half.h"
#include "farwarp/c.h"
#include "farwarp/c/membership.h"
#include "farwarp/world/host/world.h"

namespace farwarp::c {

/// What farwarp_allocate() has given, by address: copies stay inside it.
class Allocations {
 public:
  void add(const void* pointer, std::size_t bytes);
  /// Whether it was there.
  bool remove(const void* pointer);
  /// `only`: whether copies may go nowhere else. Memory of other owners on a GPU the driver knows.
  Status check(const char* name, const void* pointer, std::size_t bytes, bool only) const;

 private:
  mutable std::mutex mutex_;
  std::map<std::uintptr_t, std::size_t> bytes_of_;
};

}  // namespace farwarp::c

struct farwarp_world {
  farwarp::World world;
  std::shared_ptr<farwarp::c::Membership> membership;
  farwarp::c::Allocations allocations{};
};

namespace farwarp::c {

/// Keeps the message for farwarp_message().
farwarp_code code_of(const Status& status);

/// Runs what a function of c.h does: no exception leaves it.
template <class Body>
farwarp_code guarded(const Body& body) noexcept {
  try {
    return code_of(body());
  } catch (const std::bad_alloc&) {
    return code_of({StatusCode::kOutOfMemory, "the host has no memory"});
  } catch (const std::exception& error) {
    return code_of(internal_error(error.what()));
  }
}

Status null_argument(const char* name);

/// farwarp_*_init_sized(): the defaults, in the `bytes` bytes that the caller's struct has.
template <class Desc>
farwarp_code init_sized(Desc* desc, std::size_t bytes, Desc (*defaults)(), const char* name = "desc") noexcept {
  return guarded([&]() -> Status {
    if (desc == nullptr) return null_argument(name);
    if (bytes <= sizeof desc->bytes || bytes > sizeof(Desc))
      return invalid_argument(fmt::format("bytes is {}; allowed: the size of the struct, {} to {} in this library",
                                          bytes, sizeof desc->bytes + 1, sizeof(Desc)));
    Desc all = defaults();
    all.bytes = bytes;
    std::memcpy(desc, &all, bytes);
    return {};
  });
}

/// The descriptor: fields that the caller does not know yet keep their defaults.
template <class Desc>
Result<Desc> read_desc(const Desc* given, Desc (*defaults)(), const char* name = "desc") {
  if (given == nullptr) return null_argument(name);
  if (given->bytes <= sizeof given->bytes || given->bytes > sizeof(Desc))
    return invalid_argument(
        fmt::format("{}.bytes is {}; allowed: what the init function sets, up to {} in this library", name,
                    given->bytes, sizeof(Desc)));
  Desc desc = defaults();
  std::memcpy(&desc, given, given->bytes);
  return desc;
}

/// Of an enumeration of c.h whose values are 0 to `last`.
Status check_choice(const char* name, std::int32_t value, std::int32_t last);
Result<bool> read_flag(const char* name, std::int32_t value);
Result<DType> read_dtype(const char* name, DLDataType type, std::initializer_list<DType> allowed);
DLDataType type_of(DType dtype);
bool same(DLDataType a, DLDataType b);
inline constexpr DLDataType kBytes = {kDLUInt, 8, 1};
/// For Tensors: e4m3 in the device's format, as kBytes or as DLPack 1.1's type of that format (codes 10 and 11; this
/// DLPack may be older).
inline constexpr DLDataType kFp8 = {10, 8, 1};
inline constexpr DLDataType kFp8Fnuz = {11, 8, 1};

/// Checks the tensors of a call, one after the other; the first failure is kept.
class Tensors {
 public:
  explicit Tensors(World& world) : device_(world.device()) {}

  /// Its data. Null, too, after a failure.
  void* read(const char* name, const DLTensor* tensor, DLDataType type, std::initializer_list<std::int64_t> shape);
  /// The same of a tensor of any shape with up to `most` elements; `elements` gets their number.
  void* read_any_shape(const char* name, const DLTensor* tensor, DLDataType type, std::int64_t most,
                       std::int64_t& elements);
  /// Null exactly if it is not wanted.
  void* read_if(bool wanted, const char* name, const DLTensor* tensor, DLDataType type,
                std::initializer_list<std::int64_t> shape);
  /// Rows of dimension 0, if the others are as given; -1 after a failure. `most`: rows that are allowed.
  std::int64_t rows_of(const char* name, const DLTensor* tensor, std::int64_t most);
  const Status& status() const { return status_; }

 private:
  bool is_of(DLDataType found, DLDataType wanted) const;
  template <class CheckShape>
  void* read_checked(const char* name, const DLTensor* tensor, DLDataType type, const CheckShape& check_shape);

  Device& device_;
  Status status_;
};

}  // namespace farwarp::c
