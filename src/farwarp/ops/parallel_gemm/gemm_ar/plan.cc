#include "farwarp/ops/parallel_gemm/gemm_ar/plan.h"

#include <fmt/format.h>

#include "farwarp/ops/parallel_gemm/gemm_ar/args.h"
#include "farwarp/ops/parallel_gemm/gemm_ar/variants.h"
#include "farwarp/ops/parallel_gemm/rates.h"

namespace farwarp {
namespace {

constexpr std::int64_t align(std::int64_t bytes) { return (bytes + 255) / 256 * 256; }

enum class Form { kOneShotWords, kTwoShotWords, kTwoShotBoxes };

/// What the second half of two-shot costs beside its bytes. Measured on 2 H200s (2026-11), where both forms send as
/// many bytes: MEASURED.md.
constexpr double kTwoShotUs = 2.1;

/// On CDNA one-shot is for at most so many rows. Not measured.
constexpr int kMaxOneShotRowsOnCdna = 16;

/// Bytes that a rank sends, in sizes of y: R - 1 in one-shot, 2 (R - 1) / R in two-shot.
bool one_shot_pays(const ParallelGemmDesc& desc, int ranks) {
  const double more = (ranks - 1) * (1 - 2.0 / ranks) * 2 * desc.m * desc.n;
  return more / parallel_gemm::kLinkBytesPerUs < kTwoShotUs;
}

/// On Hopper.
Form form_of(const ParallelGemmDesc& desc, int padded_rows, int ranks) {
  switch (desc.exchange) {
    case ParallelGemmExchange::kBoxes: return Form::kTwoShotBoxes;
    case ParallelGemmExchange::kWords: return Form::kTwoShotWords;
    case ParallelGemmExchange::kOneShotWords: return Form::kOneShotWords;
    case ParallelGemmExchange::kFetch:  // parallel_gemm::check() has refused it
    case ParallelGemmExchange::kAuto: break;
  }
  if (padded_rows <= tile::kMaxSwapAbRows && one_shot_pays(desc, ranks)) return Form::kOneShotWords;
  const std::int64_t owned_bytes = std::int64_t{2} * padded_rows / ranks * desc.n;
  return owned_bytes <= gemm_reduce::kMaxOwnedAsWords ? Form::kTwoShotWords : Form::kTwoShotBoxes;
}

std::span<const tile::Variant> kernels_of(Form form, const MachineShape& shape) {
  if (shape.traits.matrix_unit == MatrixUnit::kMfma) return gemm_ar::kMfmaKernels;
  switch (form) {
    case Form::kOneShotWords: return gemm_ar::kOneShotKernels;
    case Form::kTwoShotWords: return gemm_ar::kWordsKernels;
    case Form::kTwoShotBoxes: break;
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
  if (padded.m > parallel_gemm::kMaxSize)
    return invalid_argument(fmt::format("ParallelGemmDesc.m is {}; allowed: at most {} with {} ranks", desc.m,
                                        parallel_gemm::kMaxSize / ranks * ranks, ranks));
  if (desc.exchange == ParallelGemmExchange::kOneShotWords && padded.m > tile::kMaxSwapAbRows)
    return invalid_argument(
        fmt::format("ParallelGemmDesc.exchange is one_shot_words; allowed: auto, boxes or words where m, padded to a "
                    "multiple of the ranks, is more than {}",
                    tile::kMaxSwapAbRows));
  const bool wgmma = shape.traits.matrix_unit == MatrixUnit::kWgmma;
  const Form form = wgmma                             ? form_of(desc, padded.m, ranks)
                    : desc.m <= kMaxOneShotRowsOnCdna ? Form::kOneShotWords
                                                      : Form::kTwoShotBoxes;
  const int word_rows = form == Form::kOneShotWords ? desc.m : form == Form::kTwoShotWords ? padded.m / ranks : 0;
  auto reduce = gemm_reduce::make_plan(padded, shape, ranks, {.word_rows = word_rows}, kernels_of(form, shape));
  if (!reduce.ok()) return reduce.status();
  plan.reduce = std::move(*reduce);
  const gemm_reduce::Plan& part = plan.reduce;
  plan.kernel = part.kernel;
  plan.workspace_bytes = align(part.workspace.total);
  if (form == Form::kTwoShotWords) {
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
                     one_shot()   ? "exchange words, one-shot"
                     : by_words() ? "exchange words, two-shot"
                                  : "exchange boxes, two-shot",
                     heap_bytes() / 1024);
}

}  // namespace farwarp
