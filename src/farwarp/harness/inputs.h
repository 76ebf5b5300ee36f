// Seeded inputs. Every value is a pure function of (seed, stream, index), so any rank can compute any rank's data, in
// any order, without sending it.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>

#include "farwarp/base/half.h"

namespace farwarp::harness {

/// The kind of numbers that a check gives its operator. With exact inputs every element must be exact; for other inputs
/// a model of rounding (rounding.h) gives the bounds.
enum class InputKind : std::uint8_t {
  kAuto,     ///< kExact in calls 0, 2, ..., the operator's own random kind in calls 1, 3, ...
  kExact,    ///< small integers, so few of them not zero that the dtype holds all sums (integers or halves) exactly
  kUniform,  ///< +-0.01
  kNormal,   ///< N(0, 1)
  kMean,     ///< products: x N(0, 1), w N(1, 1)
  kTiny,     ///< most inputs and results are subnormal numbers of the dtype
};
/// The kind to use in `call`: replaces kAuto, returns other kinds unchanged.
constexpr InputKind kind_in_call(InputKind kind, int call, InputKind random) {
  if (kind != InputKind::kAuto) return kind;
  return call % 2 == 0 ? InputKind::kExact : random;
}

/// One stream of random numbers with random access: SplitMix64 evaluated at a position.
class RandomStream {
 public:
  /// `path` distinguishes the streams of one seed: {call, rank, what, row}. Whoever sees numbers of a stream can
  /// compute the stream, and without keep_streams_apart() the seed.
  RandomStream(std::uint64_t seed, std::initializer_list<std::uint64_t> path);

  std::uint64_t bits(std::uint64_t index) const;
  /// In [0, 1).
  double uniform(std::uint64_t index) const { return static_cast<double>(bits(index) >> 11) * 0x1p-53; }
  /// In [0, bound).
  std::uint64_t below(std::uint64_t index, std::uint64_t bound) const;

 private:
  std::uint64_t key_;
};

/// From now on streams depend on a random key of this process, too, by SipHash-2-4 (Aumasson and Bernstein, 2012):
/// nobody can compute one stream from another.
void keep_streams_apart();

/// Normally distributed, rounded to `dtype` (kF16 or kBf16).
void fill_normal(const RandomStream& stream, double mean, double deviation, DType dtype,
                 std::span<std::uint16_t> values);
/// Uniform in [low, high), rounded to `dtype`.
void fill_uniform(const RandomStream& stream, double low, double high, DType dtype, std::span<std::uint16_t> values);
/// The deviation with which most numbers of N(0, deviation) are subnormal in `dtype`.
double tiny_deviation(DType dtype);
/// -1 and 1, each with probability density / 2, and 0. The density is rounded to a multiple of 2^-16.
void fill_ternary(const RandomStream& stream, double density, DType dtype, std::span<std::uint16_t> values);

/// The 16-bit pattern of `value` rounded to `dtype`, and back.
inline std::uint16_t encode(DType dtype, float value) {
  return dtype == DType::kF16 ? half_from(value).bits : bf16_from(value).bits;
}
inline float decode(DType dtype, std::uint16_t bits) {
  return dtype == DType::kF16 ? float_from(Half{bits}) : float_from(Bf16{bits});
}

}  // namespace farwarp::harness
