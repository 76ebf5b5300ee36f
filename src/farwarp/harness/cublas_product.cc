#include "farwarp/harness/cublas_product.h"

#include <utility>
#include <vector>

namespace farwarp::harness {
namespace {

constexpr int kTries = 5;

}  // namespace

Status choose_fastest(CublasProduct& product, DeviceTimer& timer, const Work& enqueue) {
  double best_us = 0;
  int best = 0;
  for (int algorithm = 0; algorithm < product.algorithms(); ++algorithm) {
    product.choose(algorithm);
    std::vector<double> samples;
    for (int i = -1; i < kTries; ++i) {
      const auto us = timer.sample([] { return Status(); }, enqueue, true);
      if (!us.ok()) return us.status();
      if (i >= 0) samples.push_back(*us);
    }
    const double median = summarise(std::move(samples)).median;
    if (algorithm == 0 || median < best_us) {
      best_us = median;
      best = algorithm;
    }
  }
  product.choose(best);
  return {};
}

}  // namespace farwarp::harness
