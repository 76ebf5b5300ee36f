#include "farwarp/ops/all_reduce/case/oracle.h"

#include <bit>
#include <cmath>
#include <limits>

#include "farwarp/harness/inputs.h"

namespace farwarp::all_reduce {
namespace {

/// Random bits of one element that all ranks (`rank` = -1) or one rank may compute.
std::uint64_t random_bits(const Inputs& inputs, int call, int rank, std::int64_t element) {
  return harness::RandomStream(inputs.seed,
                               {static_cast<std::uint64_t>(call), static_cast<std::uint64_t>(rank + 1), 31})
      .bits(static_cast<std::uint64_t>(element));
}

/// In [-1, 1).
float uniform(std::uint64_t bits) { return static_cast<float>(static_cast<double>(bits >> 11) * 0x1p-52 - 1); }

/// With three ranks or more: two have +-2^13 (1 + x), the others about 2^-8. In fp32 the distance between numbers near
/// 2^13 is 2^-10.
float cancelling(const Inputs& inputs, std::uint64_t mine, std::uint64_t shared, int rank) {
  const float small = 0x1p-8f * uniform(mine);
  const auto ranks = static_cast<std::uint64_t>(inputs.ranks);
  if (inputs.ranks < 3) return uniform(mine);
  const auto first = shared % ranks, second = (first + 1 + shared / 64 % (ranks - 1)) % ranks;
  const float large = 0x1p13f * (1 + static_cast<float>(shared >> 60) / 16);
  const auto me = static_cast<std::uint64_t>(rank);
  return me == first ? large : me == second ? -large : small;
}

/// Sums of two may be too large for the dtype, and sums of all within it again.
float huge(DType dtype, std::uint64_t bits) {
  const float most = dtype == DType::kF16 ? 65504.0f : 0x1.fep127f;
  return most * uniform(bits);
}

/// By 16 elements: one in five is special, one huge; the others cancel in even calls.
InputKind mixed(int call, std::int64_t element) {
  switch (element / 16 % 5) {
    case 0: return InputKind::kSpecial;
    case 1: return InputKind::kHuge;
    default: return call % 2 == 0 ? InputKind::kCancelling : InputKind::kUniform;
  }
}

std::uint32_t special(DType dtype, std::uint64_t mine) {
  const float infinity = std::numeric_limits<float>::infinity();
  switch (mine % 16) {
    case 0: return bits_of(dtype, std::numeric_limits<float>::quiet_NaN());
    case 1: return bits_of(dtype, infinity);
    case 2: return bits_of(dtype, -infinity);
    case 3: return bits_of(dtype, -0.0f);
    case 4: return 0;
    case 5: return 1;  // the smallest subnormal number
    default: return bits_of(dtype, uniform(mine));
  }
}

}  // namespace

float number_of(DType dtype, std::uint32_t bits) {
  if (dtype == DType::kF32) return std::bit_cast<float>(bits);
  return harness::decode(dtype, static_cast<std::uint16_t>(bits));
}

std::uint32_t bits_of(DType dtype, float value) {
  if (dtype == DType::kF32) return std::bit_cast<std::uint32_t>(value);
  return harness::encode(dtype, value);
}

std::uint32_t Inputs::bits(int call, int rank, std::int64_t element) const {
  const InputKind now = kind != InputKind::kAuto ? kind : mixed(call, element);
  const std::uint64_t mine = random_bits(*this, call, rank, element);
  switch (now) {
    case InputKind::kSpecial:
      // Every 10th group of 16 elements is all ones on rank 0: halves of words that must not look absent.
      if (rank == 0 && element / 16 % 10 == 0) return dtype == DType::kF32 ? 0xffffffffu : 0xffffu;
      // Sums of -0 alone have a sign.
      if (random_bits(*this, call, -1, element) % 8 == 0) return bits_of(dtype, -0.0f);
      return special(dtype, mine);
    case InputKind::kHuge: return bits_of(dtype, huge(dtype, mine));
    case InputKind::kCancelling:
      return bits_of(dtype, cancelling(*this, mine, random_bits(*this, call, -1, element), rank));
    default: return bits_of(dtype, uniform(mine));
  }
}

std::uint32_t sum_of(DType dtype, std::span<const std::uint32_t> terms) {
  float sum = number_of(dtype, terms[0]);
  for (const std::uint32_t term : terms.subspan(1)) sum += number_of(dtype, term);
  return bits_of(dtype, sum);
}

bool same(DType dtype, std::uint32_t got, std::uint32_t expected) {
  return got == expected || (std::isnan(number_of(dtype, got)) && std::isnan(number_of(dtype, expected)));
}

}  // namespace farwarp::all_reduce
