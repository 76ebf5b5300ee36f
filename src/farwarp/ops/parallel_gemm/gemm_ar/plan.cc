#include "farwarp/ops/parallel_gemm/gemm_ar/plan.h"

#include <fmt/format.h>

#include "farwarp/ops/parallel_gemm/gemm_ar/args.h"
#include "farwarp/ops/parallel_gemm/gemm_ar/variants.h"
#include "farwarp/ops/parallel_gemm/rates.h"

namespace farwarp {
namespace {

constexpr std::int64_t align(std::int64_t bytes) { return (bytes + 255) / 256 * 256; }

enum class Way { kOneShotWords, kTwoShotWords, kTwoShotBoxes };

/// What the second flight of two-shot takes beside its bytes, us: about the difference of both ways on two ranks, where their bytes are the
/// same (8 rows, n = 4096, k = 1024, 2 H200s, 2026-11; MEASURED.md has more rows).
constexpr double kUsOfHandingOut = 2.1;

/// One-shot up to this many rows on CDNA, where nothing has been measured.
constexpr int kMostOneShotRowsOnCdna = 16;

/// Bytes that each rank sends: one-shot R - 1 times its sums; two-shot 2 (R - 1) / R times.
bool one_shot_pays(const ParallelGemmDesc& desc, int ranks) {
  const double more = (ranks - 1) * (1 - 2.0 / ranks) * 2 * desc.m * desc.n;
  return more / parallel_gemm::kLinkBytesPerUs < kUsOfHandingOut;
}

/// On Hopper.
Way way_of(const ParallelGemmDesc& desc, int padded_rows, int ranks) {
  switch (desc.exchange) {
    case ParallelGemmExchange::kBoxes: return Way::kTwoShotBoxes;
    case ParallelGemmExchange::kWords: return Way::kTwoShotWords;
    case ParallelGemmExchange::kOneShotWords: return Way::kOneShotWords;
    case ParallelGemmExchange::kAuto: break;
  }
  if (padded_rows <= tile::kMostSwapAbRows && one_shot_pays(desc, ranks)) return Way::kOneShotWords;
  const std::int64_t owned_bytes = std::int64_t{2} * padded_rows / ranks * desc.n;
  return owned_bytes <= gemm_reduce::kMostOwnedAsWords ? Way::kTwoShotWords : Way::kTwoShotBoxes;
}

std::span<const tile::Variant> kernels_of(Way way, const MachineShape& shape) {
  if (shape.traits.matrix_unit == MatrixUnit::kMfma) return gemm_ar::kMfmaKernels;
  switch (way) {
    case Way::kOneShotWords: return gemm_ar::kOneShotKernels;
    case Way::kTwoShotWords: return gemm_ar::kWordsKernels;
    case Way::kTwoShotBoxes: break;
  }
  return gemm_ar::kBoxesKernels;
}

}  // namespace

Result<GemmAllReducePlan> plan_gemm_all_reduce(const ParallelGemmDesc& desc, const MachineShape& shape, int ranks) {
  if (const Status status = parallel_gemm::check(parallel_gemm::Kind::kAllReduce, desc, ranks); !status.ok())
    return status;
  GemmAllReducePlan plan;
  plan.desc = desc;
  ParallelGemmDesc padded = desc;
  padded.m = (desc.m + ranks - 1) / ranks * ranks;
  if (padded.m > parallel_gemm::kMostSize)
    return invalid_argument(fmt::format("ParallelGemmDesc.m is {}; allowed: at most {} with {} ranks", desc.m,
                                        parallel_gemm::kMostSize / ranks * ranks, ranks));
  if (desc.exchange == ParallelGemmExchange::kOneShotWords && padded.m > tile::kMostSwapAbRows)
    return invalid_argument(
        fmt::format("ParallelGemmDesc.exchange is one_shot_words; allowed: auto, boxes or words where m, padded to a "
                    "multiple of the ranks, is more than {}",
                    tile::kMostSwapAbRows));
  const bool wgmma = shape.traits.matrix_unit == MatrixUnit::kWgmma;
  const Way way = wgmma                              ? way_of(desc, padded.m, ranks)
                  : desc.m <= kMostOneShotRowsOnCdna ? Way::kOneShotWords
                                                     : Way::kTwoShotBoxes;
  const int word_rows = way == Way::kOneShotWords ? desc.m : way == Way::kTwoShotWords ? padded.m / ranks : 0;
  auto reduce = gemm_reduce::make_plan(padded, shape, ranks, word_rows, kernels_of(way, shape));
  if (!reduce.ok()) return reduce.status();
  plan.reduce = std::move(*reduce);
  const gemm_reduce::Plan& part = plan.reduce;
  plan.kernel = part.kernel;
  plan.workspace_bytes = align(part.workspace.total);
  if (way == Way::kTwoShotWords) {
    plan.finished_inbox = part.word_inbox;
    plan.finished_inbox.at = part.word_inbox.bytes();
  }
  if (!plan.by_words()) {
    plan.finished_rows = plan.workspace_bytes;
    plan.signals = plan.finished_rows + align(std::int64_t{2} * padded.m * desc.n);
    plan.workspace_bytes = plan.signals + align(std::int64_t{8} * ranks * gemm_reduce::chunks_of(part.bands));
  }
  return plan;
}

std::int64_t GemmAllReducePlan::heap_bytes() const { return workspace_bytes + align(word_bytes()); }

std::string GemmAllReducePlan::to_string() const {
  return fmt::format("{}: {}; {}; {} KB of heap", kernel, reduce.tile::Tiling::to_string(),
                     one_shot()   ? "exchange words, to all ranks"
                     : by_words() ? "exchange words, owners add and hand out"
                                  : "exchange boxes, owners add and hand out",
                     heap_bytes() / 1024);
}

}  // namespace farwarp
