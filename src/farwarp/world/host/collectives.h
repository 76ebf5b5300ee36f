// Collective host calls of one World: all ranks agree on what is called, and all get the same outcome.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "farwarp/base/status.h"
#include "farwarp/world/host/bootstrap.h"

namespace farwarp {

/// Collective. ok if all ranks pass ok, else the failure of the first rank that failed, on all ranks. Also a barrier.
Status all_ok(Bootstrap& bootstrap, const Status& mine, std::chrono::milliseconds timeout);

class Collectives {
 public:
  Collectives() = default;
  Collectives(std::shared_ptr<Bootstrap> bootstrap, std::chrono::milliseconds timeout)
      : bootstrap_(std::move(bootstrap)), timeout_(timeout) {}

  /// Collective: numbers the World with rank 0's `mine`, so that calls on two Worlds over one bootstrap cannot be
  /// confused.
  Status number_world(std::uint32_t mine);

  /// Collective. ok on all ranks if `call` is the same on all, else kMismatch on all, quoting the first rank that
  /// differs from rank 0. `call` is the call in words with its arguments: "allocate(4096 bytes, alignment 256)".
  Status check_same_call(const std::string& call, std::chrono::milliseconds extra_time = {});

  Status all_ok(const Status& mine) { return farwarp::all_ok(*bootstrap_, mine, timeout_); }

  /// Every rank's value, in rank order.
  template <class T>
  Result<std::vector<T>> gather(const T& mine) {
    static_assert(std::is_trivially_copyable_v<T>);
    std::vector<std::byte> bytes(sizeof(T));
    std::memcpy(bytes.data(), &mine, sizeof(T));
    auto all = gather_bytes(bytes, sizeof(T));
    if (!all.ok()) return all.status();
    std::vector<T> values(all->size());
    for (std::size_t rank = 0; rank < values.size(); ++rank) std::memcpy(&values[rank], (*all)[rank].data(), sizeof(T));
    return values;
  }

 private:
  Result<std::vector<std::vector<std::byte>>> gather_bytes(const std::vector<std::byte>& mine,
                                                           std::size_t expected_bytes);

  std::shared_ptr<Bootstrap> bootstrap_;
  std::chrono::milliseconds timeout_{};
  std::uint32_t world_ = 0;
  std::uint64_t calls_ = 0;
};

}  // namespace farwarp
