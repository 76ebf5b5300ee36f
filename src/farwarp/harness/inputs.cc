#include "farwarp/harness/inputs.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <numbers>
#include <optional>
#include <random>

namespace farwarp::harness {
namespace {

constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15ull;

std::uint64_t mix(std::uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ull;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebull;
  return value ^ (value >> 31);
}

std::optional<std::array<std::uint64_t, 2>> g_secret;

struct SipHash {
  std::uint64_t v0, v1, v2, v3;

  explicit SipHash(const std::array<std::uint64_t, 2>& key)
      : v0(key[0] ^ 0x736f6d6570736575ull),
        v1(key[1] ^ 0x646f72616e646f6dull),
        v2(key[0] ^ 0x6c7967656e657261ull),
        v3(key[1] ^ 0x7465646279746573ull) {}
  void rounds(int count) {
    for (int i = 0; i < count; ++i) {
      v0 += v1, v2 += v3;
      v1 = std::rotl(v1, 13) ^ v0, v3 = std::rotl(v3, 16) ^ v2;
      v0 = std::rotl(v0, 32);
      v2 += v1, v0 += v3;
      v1 = std::rotl(v1, 17) ^ v2, v3 = std::rotl(v3, 21) ^ v0;
      v2 = std::rotl(v2, 32);
    }
  }
  void add(std::uint64_t word) {
    v3 ^= word;
    rounds(2);
    v0 ^= word;
  }
  /// After `words` words.
  std::uint64_t finish(std::uint64_t words) {
    add(8 * words << 56);
    v2 ^= 0xff;
    rounds(4);
    return v0 ^ v1 ^ v2 ^ v3;
  }
};

}  // namespace

void keep_streams_apart() {
  std::random_device random;
  const auto word = [&] { return std::uint64_t{random()} << 32 | random(); };
  g_secret = {word(), word()};
}

RandomStream::RandomStream(std::uint64_t seed, std::initializer_list<std::uint64_t> path) : key_(mix(seed + kGolden)) {
  if (!g_secret) {
    for (const std::uint64_t step : path) key_ = mix((key_ ^ step) + kGolden);
    return;
  }
  SipHash hash(*g_secret);
  hash.add(seed);
  for (const std::uint64_t step : path) hash.add(step);
  key_ = hash.finish(path.size() + 1);
}

std::uint64_t RandomStream::bits(std::uint64_t index) const { return mix(key_ + (index + 1) * kGolden); }

std::uint64_t RandomStream::below(std::uint64_t index, std::uint64_t bound) const {
  // The upper half of a 64 x 64 product: a bias below bound / 2^64.
  return static_cast<std::uint64_t>((static_cast<unsigned __int128>(bits(index)) * bound) >> 64);
}

void fill_normal(const RandomStream& stream, double mean, double deviation, DType dtype,
                 std::span<std::uint16_t> values) {
  // Box-Muller: two uniforms make two normals.
  for (std::size_t i = 0; i < values.size(); i += 2) {
    const double radius = deviation * std::sqrt(-2.0 * std::log(1.0 - stream.uniform(i)));
    const double angle = 2.0 * std::numbers::pi * stream.uniform(i + 1);
    values[i] = encode(dtype, static_cast<float>(mean + radius * std::cos(angle)));
    if (i + 1 < values.size()) values[i + 1] = encode(dtype, static_cast<float>(mean + radius * std::sin(angle)));
  }
}

void fill_uniform(const RandomStream& stream, double low, double high, DType dtype, std::span<std::uint16_t> values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = encode(dtype, static_cast<float>(low + (high - low) * stream.uniform(i)));
  }
}

double tiny_deviation(DType dtype) { return dtype == DType::kF16 ? 0x1p-15 : 0x1p-127; }

void fill_ternary(const RandomStream& stream, double density, DType dtype, std::span<std::uint16_t> values) {
  constexpr std::size_t kPerDraw = 4;  // 16 bits of a draw each
  const auto bound = static_cast<std::uint32_t>(std::lround(density * 0x1p16));
  const std::uint16_t signs[] = {encode(dtype, 1), encode(dtype, -1)};
  for (std::size_t first = 0; first < values.size(); first += kPerDraw) {
    std::uint64_t draw = stream.bits(first / kPerDraw);
    for (std::size_t i = first; i < std::min(first + kPerDraw, values.size()); ++i, draw >>= 16) {
      const auto bits = static_cast<std::uint32_t>(draw & 0xffff);
      values[i] = bits < bound ? signs[bits & 1] : std::uint16_t{0};
    }
  }
}

}  // namespace farwarp::harness
