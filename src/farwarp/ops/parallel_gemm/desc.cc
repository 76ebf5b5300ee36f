#include "farwarp/ops/parallel_gemm/desc.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string>

#include "farwarp/base/arguments.h"

namespace farwarp {

const char* name_of(ParallelGemmExchange exchange) {
  switch (exchange) {
    case ParallelGemmExchange::kAuto: return "auto";
    case ParallelGemmExchange::kBoxes: return "boxes";
    case ParallelGemmExchange::kWords: return "words";
    case ParallelGemmExchange::kOneShotWords: return "one_shot_words";
    case ParallelGemmExchange::kFetch: return "fetch";
  }
  return "?";
}

namespace parallel_gemm {
namespace {

constexpr int kVector = 8;  // elements of a 16-byte access: rows begin at multiples of it

Status wrong(const char* field, int value, const std::string& allowed) {
  return invalid_argument(fmt::format("ParallelGemmDesc.{} is {}; allowed: {}", field, value, allowed));
}

Status check_size(const char* field, int value, int unit) {
  if (value >= unit && value <= kMaxSize && value % unit == 0) return {};
  return wrong(field, value,
               unit == 1 ? fmt::format("1 to {}", kMaxSize) : fmt::format("a multiple of {} up to {}", unit, kMaxSize));
}

}  // namespace

const char* name_of(Kind kind) {
  switch (kind) {
    case Kind::kAllGather: return "ag-gemm";
    case Kind::kReduceScatter: return "gemm-rs";
    case Kind::kAllReduce: return "gemm-ar";
  }
  return "?";
}

const char* name_of(Path path) {
  switch (path) {
    case Path::kOwn: return "own";
    case Path::kUnfused: return "unfused";
    case Path::kBest: return "best";
  }
  return "?";
}

LocalShape local_shape(Kind kind, const ParallelGemmDesc& desc, int ranks) {
  switch (kind) {
    case Kind::kAllGather: return {desc.m / ranks, desc.n / ranks, desc.k, desc.m, desc.n / ranks};
    case Kind::kReduceScatter: return {desc.m, desc.n, desc.k / ranks, desc.m / ranks, desc.n};
    case Kind::kAllReduce: return {desc.m, desc.n, desc.k / ranks, desc.m, desc.n};
  }
  return {};
}

Status check_path(Path path) {
  if (path == Path::kOwn || path == Path::kUnfused || path == Path::kBest) return {};
  return invalid_argument(fmt::format("Path is {}; allowed: own, unfused, best", static_cast<int>(path)));
}

Status check(Kind kind, const ParallelGemmDesc& desc, int ranks) {
  if (ranks < 1 || ranks > kMaxRanks)
    return invalid_argument(fmt::format("ranks is {}; allowed: 1 to {}", ranks, kMaxRanks));
  if (std::find(std::begin(kKinds), std::end(kKinds), kind) == std::end(kKinds))
    return invalid_argument(
        fmt::format("Kind is {}; allowed: kAllGather, kReduceScatter, kAllReduce", static_cast<int>(kind)));
  const bool gathers = kind == Kind::kAllGather;
  for (const Status& status : {check_size("m", desc.m, kind == Kind::kAllReduce ? 1 : ranks),
                               check_size("n", desc.n, gathers ? kVector * ranks : kVector),
                               check_size("k", desc.k, gathers ? kVector : kVector * ranks)}) {
    if (!status.ok()) return status;
  }
  if (desc.dtype != DType::kBf16 && desc.dtype != DType::kF16)
    return invalid_argument(
        fmt::format("ParallelGemmDesc.dtype is {}; allowed: bf16, fp16", name_or_number(desc.dtype)));
  if (desc.max_sms < 0) return wrong("max_sms", desc.max_sms, "0 (all) or more");
  if (desc.tile_columns < 0) return wrong("tile_columns", desc.tile_columns, "0 (the plan's choice) or more");
  if (desc.splits < 0 || desc.splits > kMaxSplits)
    return wrong("splits", desc.splits, fmt::format("0 (the plan's choice) to {}", kMaxSplits));
  if (desc.comm_blocks < 0) return wrong("comm_blocks", desc.comm_blocks, "0 (the plan's choice) or more");
  using enum ParallelGemmExchange;
  if (desc.exchange > kFetch)
    return wrong("exchange", static_cast<int>(desc.exchange), "auto, boxes, words, one_shot_words, fetch");
  if ((desc.exchange == kOneShotWords && kind != Kind::kAllReduce) ||
      (desc.exchange == kFetch && kind != Kind::kReduceScatter))
    return invalid_argument(
        fmt::format("ParallelGemmDesc.exchange is {}; allowed: auto, boxes or words", name_of(desc.exchange)));
  if (desc.return_x && !gathers) return wrong("return_x", 1, "0, but in an all-gather");
  return {};
}

std::uint64_t configuration_of(Kind kind, const ParallelGemmDesc& desc, int ranks) {
  return hash_of({static_cast<int>(kind), ranks, desc.m, desc.n, desc.k, static_cast<int>(desc.dtype), desc.has_bias,
                  desc.max_sms, desc.tile_columns, desc.splits, desc.comm_blocks, static_cast<int>(desc.exchange),
                  desc.return_x});
}

}  // namespace parallel_gemm
}  // namespace farwarp
