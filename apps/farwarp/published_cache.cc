#include "published_cache.h"

#include <vector>

namespace farwarp::cli {
namespace {

using attention::Mapping;
constexpr CacheMetric kHits = CacheMetric::kL2HitRate, kSpeed = CacheMetric::kRelativeSpeed;
constexpr Mapping kBlock = Mapping::kBlockFirst, kBlockSwizzled = Mapping::kBlockFirstSwizzled,
                  kHead = Mapping::kHeadFirst, kHeadSwizzled = Mapping::kHeadFirstSwizzled;

constexpr std::string_view kPaper = "arXiv 2511.02132";

// "All mappings are equal with few heads": within 3%.
constexpr PublishedFigure kFewHeads[] = {{kBlock, kSpeed, 97, 103}, {kHead, kSpeed, 97, 103}};
constexpr PublishedFigure kManyHeads[] = {{kBlock, kSpeed, 64, 70}};
constexpr PublishedFigure k128Heads32k[] = {{kHeadSwizzled, kHits, 87, 95}, {kBlock, kSpeed, 64, 70}};
constexpr PublishedFigure k128Heads128k[] = {
    {kHeadSwizzled, kHits, 90, 97}, {kHead, kHits, 40, 60}, {kBlock, kHits, 1, 1}, {kBlock, kSpeed, 64, 70}};
constexpr PublishedFigure kGrouped[] = {{kBlockSwizzled, kSpeed, 97, 103}, {kHead, kSpeed, 90, 95}};
constexpr PublishedFigure kDeepSeek[] = {{kBlock, kSpeed, 0, 65}, {kBlockSwizzled, kSpeed, 76, 76}};
// TCC_HIT_sum, TCC_MISS_sum of rocprofv3 on an MI355X. The kernel's rows to a block are not stated there; it needs seq
// % 256 == 0.
constexpr PublishedFigure kFlyDsl[] = {{kHeadSwizzled, kHits, 93.62, 93.62}, {kBlock, kHits, 2.36, 2.36}};

std::vector<PublishedCase> all_cases() {
  std::vector<PublishedCase> cases;
  constexpr int kLengths[] = {8192, 32768, 131072};
  for (const int heads : {8, 16, 32, 64, 128}) {
    for (const int seq : kLengths) {
      std::span<const PublishedFigure> figures;
      if (heads == 8) figures = kFewHeads;
      if (heads == 64 && seq > 8192) figures = kManyHeads;
      if (heads == 128 && seq == 32768) figures = k128Heads32k;
      if (heads == 128 && seq == 131072) figures = k128Heads128k;
      cases.push_back({"mi300x", heads, heads, seq, 128, 128, kPaper, figures});
    }
  }
  for (const int heads : {32, 64, 128}) {
    for (const int seq : kLengths) cases.push_back({"mi300x", heads, 8, seq, 128, 128, kPaper, kGrouped});
  }
  for (const int seq : {2048, 8192, 32768, 131072}) {
    std::span<const PublishedFigure> figures;
    if (seq == 131072) figures = kDeepSeek;
    cases.push_back({"mi300x", 128, 128, seq, 56, 128, kPaper, figures});
  }
  cases.push_back({"mi350x", 64, 64, 65536, 128, 256, "ROCm/FlyDSL #919", kFlyDsl});
  return cases;
}

}  // namespace

std::span<const PublishedCase> published_cases() {
  static const std::vector<PublishedCase> kCases = all_cases();
  return kCases;
}

}  // namespace farwarp::cli
