#include "farwarp/ops/flash_decode/case/inputs.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <random>

#include "farwarp/base/sizes.h"

namespace farwarp::decode {
namespace {

using harness::RandomStream;

constexpr std::size_t kPool = 1 << 17;
enum Stream : std::uint64_t { kPoolStream, kPlaceStream, kQueryStream, kSinkStream, kLengthStream, kTableStream };

}  // namespace

int pages_for(const FlashDecodeDesc& desc) { return desc.batch * desc.max_pages + std::min(desc.batch, 3); }

Inputs::Inputs(const Problem& problem, int call) : problem_(problem), call_(static_cast<std::uint64_t>(call)) {
  pool_.resize(kPool);
  const RandomStream stream(problem.seed, {kPoolStream, call_});
  if (!problem.fp8()) {
    harness::fill_normal(stream, 0, 1, problem.desc.dtype, pool_);
    return;
  }
  std::vector<std::uint16_t> normal(kPool);
  harness::fill_normal(stream, 0, 1, DType::kBf16, normal);
  pool_fp8_.resize(kPool);
  for (std::size_t i = 0; i < kPool; ++i)
    pool_fp8_[i] = fp8_from(problem.fp8_format, harness::decode(DType::kBf16, normal[i]));
}

int Inputs::length(int rank, int sequence) const {
  const RandomStream stream(problem_.seed, {kLengthStream, call_, size(rank)});
  const auto most = static_cast<std::uint64_t>(problem_.most_keys());
  const auto at = static_cast<std::uint64_t>(2 * sequence);
  switch (problem_.lengths) {
    case Lengths::kFull: return static_cast<int>(most);
    case Lengths::kEmpty: return 0;
    case Lengths::kGiven: return problem_.given_lengths[size(sequence)];
    case Lengths::kShort:
      return static_cast<int>(
          std::min(most, stream.below(at, static_cast<std::uint64_t>(problem_.desc.query_tokens) + 2)));
    case Lengths::kRagged: break;
  }
  // In every call one is long, on every rank, and of the next one each rank has a key alone: its probability is not
  // rounded.
  const auto batch = static_cast<std::uint64_t>(problem_.desc.batch);
  const std::uint64_t turn = (static_cast<std::uint64_t>(sequence) + batch - call_ % batch) % batch;
  if (turn == 0) return static_cast<int>(most - stream.below(at, most / 4 + 1));
  if (turn == 1) return std::min(problem_.desc.query_tokens, static_cast<int>(most));
  switch (stream.below(at + 1, 8)) {
    case 0: return 0;
    case 1: return 1;
    case 2: return static_cast<int>(most);
    default: return static_cast<int>(stream.below(at, most + 1));
  }
}

std::size_t Inputs::place(Operand operand, int rank, int sequence, int key, int kv_head) const {
  const RandomStream stream(problem_.seed, {kPlaceStream, call_, size(rank), static_cast<std::uint64_t>(operand)});
  const std::uint64_t row =
      (static_cast<std::uint64_t>(sequence) * (1u << 24) + static_cast<std::uint64_t>(key)) * 256 +
      static_cast<std::uint64_t>(kv_head);
  return stream.bits(row) % (kPool - 128);
}

std::span<const std::uint16_t> Inputs::kv_row(Operand operand, int rank, int sequence, int key, int kv_head) const {
  return std::span(pool_).subspan(place(operand, rank, sequence, key, kv_head), size(problem_.desc.head_dim));
}
std::span<const std::uint8_t> Inputs::kv_row_fp8(Operand operand, int rank, int sequence, int key, int kv_head) const {
  return std::span(pool_fp8_).subspan(place(operand, rank, sequence, key, kv_head), size(problem_.desc.head_dim));
}

void Inputs::kv_values(Operand operand, int rank, int sequence, int key, int kv_head, std::span<double> values) const {
  const std::size_t at = place(operand, rank, sequence, key, kv_head);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = problem_.fp8() ? float_from_fp8(problem_.fp8_format, pool_fp8_[at + i])
                               : harness::decode(problem_.desc.dtype, pool_[at + i]);
  }
}

float Inputs::kv_scale(Operand operand, int rank, int kv_head) const {
  if (!problem_.fp8()) return 1;
  return (operand == Operand::kK ? 0.75f : 1.5f) + 0.125f * static_cast<float>((kv_head + rank) % 5);
}

std::vector<std::uint16_t> Inputs::q(int rank) const {
  const FlashDecodeDesc& desc = problem_.desc;
  std::vector<std::uint16_t> values(size(desc.batch) * size(desc.query_tokens) * size(desc.query_heads) *
                                    size(desc.head_dim));
  const std::uint64_t of_rank = problem_.shared_keys() ? 0 : size(rank);
  harness::fill_normal(RandomStream(problem_.seed, {kQueryStream, call_, of_rank}), 0,
                       problem_.logits == Logits::kLarge ? 5000 : 1, desc.dtype, values);
  return values;
}

std::vector<float> Inputs::sinks() const {
  std::vector<float> values;
  if (!problem_.desc.sinks) return values;
  const RandomStream stream(problem_.seed, {kSinkStream, call_});
  for (int head = 0; head < problem_.desc.query_heads; ++head)
    values.push_back(static_cast<float>(8 * stream.uniform(size(head)) - 1));  // beside a sum of exp(5) to exp(7)
  return values;
}

std::vector<std::int32_t> Inputs::block_table(int rank) const {
  const FlashDecodeDesc& desc = problem_.desc;
  std::vector<std::int32_t> pages(size(desc.pages));
  std::iota(pages.begin(), pages.end(), 0);
  const RandomStream stream(problem_.seed, {kTableStream, call_, size(rank)});
  std::shuffle(pages.begin(), pages.end(), std::mt19937_64(stream.bits(0)));
  std::vector<std::int32_t> table(size(desc.batch) * size(desc.max_pages));
  for (int sequence = 0; sequence < desc.batch; ++sequence) {
    const int length = this->length(rank, sequence);
    const int oldest = desc.window > 0 ? std::max(0, length - desc.query_tokens + 1 - desc.window) : 0;
    for (int page = 0; page < desc.max_pages; ++page) {
      const std::size_t at = size(sequence) * size(desc.max_pages) + size(page);
      const bool seen = page * desc.page_size < length && (page + 1) * desc.page_size > oldest;
      table[at] = seen ? pages[at] : page % 2 == 0 ? 0x7fffffff : -7;
    }
  }
  return table;
}

}  // namespace farwarp::decode
