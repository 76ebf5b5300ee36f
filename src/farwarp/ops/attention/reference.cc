#include "farwarp/ops/attention/reference.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

namespace farwarp::attention {

ReferenceResult reference_row(const ReferenceRow& row) {
  const std::size_t columns = row.query.size();
  ReferenceResult result{std::vector<double>(columns), -std::numeric_limits<double>::infinity(),
                         std::vector<double>(columns), 0};
  std::vector<double> logits;
  double most = row.sink == nullptr ? -std::numeric_limits<double>::infinity() : *row.sink;
  for (int key = row.first_key; key < row.end_key; ++key) {
    const std::span<const double> numbers = row.key(key);
    double sum = 0;
    for (std::size_t i = 0; i < columns; ++i) sum += row.query[i] * numbers[i];
    const double logit = sum * row.scale;
    logits.push_back(row.softcap > 0 ? row.softcap * std::tanh(logit / row.softcap) : logit);
    most = std::max(most, logits.back());
    result.largest_logit = std::max(result.largest_logit, std::abs(logits.back()));
  }
  if (std::isinf(most)) return result;
  double denominator = row.sink == nullptr ? 0 : std::exp(*row.sink - most);
  for (const double logit : logits) denominator += std::exp(logit - most);
  for (std::size_t j = 0; j < logits.size(); ++j) {
    const double probability = std::exp(logits[j] - most) / denominator;
    const std::span<const double> numbers = row.value(row.first_key + static_cast<int>(j));
    for (std::size_t i = 0; i < columns; ++i) {
      result.out[i] += probability * numbers[i];
      result.magnitude[i] += probability * std::abs(numbers[i]);
    }
  }
  result.lse = most + std::log(denominator);
  return result;
}

}  // namespace farwarp::attention
