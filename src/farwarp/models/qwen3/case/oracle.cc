#include "farwarp/models/qwen3/case/oracle.h"

#include <algorithm>
#include <cmath>

#include "farwarp/base/half.h"

namespace farwarp::qwen3 {
namespace {

std::size_t size(int value) { return static_cast<std::size_t>(value); }

}  // namespace

OracleWeights::OracleWeights(const Qwen3Config& config, std::uint64_t seed)
    : config_(config), seed_(seed), tensors_(size(tensor_number(GlobalTensor::kHead, config.layers)) + 1) {
  const int heads = config.query_heads * config.head_dim, kv = config.kv_heads * config.head_dim;
  const auto matrix = [&](std::int32_t tensor, int rows, int columns) {
    make(tensor, rows, columns, std::sqrt(3.0 / columns), 0);
  };
  for (int layer = 0; layer < config.layers; ++layer) {
    matrix(tensor_number(Tensor::kQ, layer), heads, config.hidden);
    matrix(tensor_number(Tensor::kK, layer), kv, config.hidden);
    matrix(tensor_number(Tensor::kV, layer), kv, config.hidden);
    matrix(tensor_number(Tensor::kOut, layer), config.hidden, heads);
    matrix(tensor_number(Tensor::kGate, layer), config.intermediate, config.hidden);
    matrix(tensor_number(Tensor::kUp, layer), config.intermediate, config.hidden);
    matrix(tensor_number(Tensor::kDown, layer), config.hidden, config.intermediate);
    make(tensor_number(Tensor::kInputNorm, layer), 1, config.hidden, 0.25, 1);
    make(tensor_number(Tensor::kPostNorm, layer), 1, config.hidden, 0.25, 1);
    make(tensor_number(Tensor::kQNorm, layer), 1, config.head_dim, 0.25, 1);
    make(tensor_number(Tensor::kKNorm, layer), 1, config.head_dim, 0.25, 1);
  }
  make(tensor_number(GlobalTensor::kEmbedding, config.layers), config.vocabulary, config.hidden, 1, 0);
  make(tensor_number(GlobalTensor::kFinalNorm, config.layers), 1, config.hidden, 0.25, 1);
  if (!config.tied) matrix(tensor_number(GlobalTensor::kHead, config.layers), config.vocabulary, config.hidden);
}

void OracleWeights::make(std::int32_t tensor, int rows, int columns, double scale, double offset) {
  const RandomTensor random{seed_, tensor, static_cast<float>(scale), static_cast<float>(offset)};
  std::vector<float>& elements = tensors_[size(tensor)];
  elements.resize(size(rows) * size(columns));
  for (std::size_t i = 0; i < elements.size(); ++i)
    elements[i] = float_from(bf16_from(random.at(static_cast<std::int64_t>(i))));
}

double Oracle::round(double value) const { return rounded_ ? float_from(bf16_from(static_cast<float>(value))) : value; }

Oracle::Vector Oracle::product(std::span<const float> matrix, int rows, const Vector& x) const {
  Vector result(size(rows));
  for (std::size_t row = 0; row < result.size(); ++row) {
    const float* const weights = &matrix[row * x.size()];
    double sums[8] = {};  // so that the compiler can add several at a time
    for (std::size_t i = 0; i < x.size(); i += 8) {
      for (std::size_t k = 0; k < 8; ++k) sums[k] += static_cast<double>(weights[i + k]) * x[i + k];
    }
    result[row] = ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
  }
  return result;
}

/// The matrix times RMSNorm(x). A prefill divides by the root before it rounds.
Oracle::Vector Oracle::normalised_product(std::span<const float> matrix, int rows, const Vector& x,
                                          std::span<const float> norm, bool prefilled) const {
  double squares = 0;
  for (const double value : x) squares += value * value;
  const double root = std::sqrt(squares / static_cast<double>(x.size()) + epsilon());
  Vector scaled(x.size());
  for (std::size_t i = 0; i < x.size(); ++i)
    scaled[i] = round(x[i] * static_cast<double>(norm[i]) / (prefilled ? root : 1));
  Vector result = product(matrix, rows, scaled);
  if (prefilled) return result;
  for (double& value : result) value /= root;
  return result;
}

void Oracle::normalise_head(std::span<double> head, std::span<const float> norm, int position) const {
  double squares = 0;
  for (const double value : head) squares += value * value;
  const double root = std::sqrt(squares / static_cast<double>(head.size()) + epsilon());
  for (std::size_t i = 0; i < head.size(); ++i) head[i] *= static_cast<double>(norm[i]) / root;
  const std::size_t half = head.size() / 2;
  for (std::size_t i = 0; i < half; ++i) {
    const double angle = position * std::pow(static_cast<double>(weights_.config().rope_theta),
                                             -static_cast<double>(i) / static_cast<double>(half));
    const double first = head[i], second = head[i + half];
    head[i] = round(first * std::cos(angle) - second * std::sin(angle));
    head[i + half] = round(second * std::cos(angle) + first * std::sin(angle));
  }
}

Oracle::Vector Oracle::attend(const Cached& cached, const Vector& queries) const {
  const Qwen3Config& config = weights_.config();
  const std::size_t dim = size(config.head_dim), heads_per_kv_head = size(config.query_heads / config.kv_heads);
  Vector result(queries.size(), 0.0);
  for (std::size_t head = 0; head < size(config.query_heads); ++head) {
    const std::size_t kv = head / heads_per_kv_head * dim;
    Vector scores;
    for (const Vector& key : cached.keys) {
      double score = 0;
      for (std::size_t i = 0; i < dim; ++i) score += queries[head * dim + i] * key[kv + i];
      scores.push_back(factors_.scores * score / std::sqrt(static_cast<double>(dim)));
    }
    const double highest = *std::max_element(scores.begin(), scores.end());
    double sum = 0;
    for (std::size_t key = 0; key < scores.size(); ++key) {
      const double probability = std::exp(scores[key] - highest);
      sum += probability;
      for (std::size_t i = 0; i < dim; ++i) result[head * dim + i] += round(probability) * cached.values[key][kv + i];
    }
    for (std::size_t i = 0; i < dim; ++i)
      result[head * dim + i] = round(factors_.attended * result[head * dim + i] / sum);
  }
  return result;
}

void Oracle::begin_with_zero_keys(int positions) {
  const Vector zeros(size(weights_.config().kv_heads * weights_.config().head_dim), 0.0);
  for (Cached& cached : cache_) cached.keys = cached.values = std::vector<Vector>(size(positions), zeros);
  position_ = positions;
}

std::vector<double> Oracle::step(std::int32_t token, bool prefilled) {
  const Qwen3Config& config = weights_.config();
  const std::size_t hidden = size(config.hidden), dim = size(config.head_dim);
  const int heads = config.query_heads * config.head_dim, kv = config.kv_heads * config.head_dim;
  const std::vector<float>& embedding = weights_.of(GlobalTensor::kEmbedding);
  Vector x(hidden);
  for (std::size_t i = 0; i < hidden; ++i) x[i] = static_cast<double>(embedding[size(token) * hidden + i]);
  for (int layer = 0; layer < config.layers; ++layer) {
    const auto of = [&](Tensor tensor) -> const std::vector<float>& { return weights_.of(tensor, layer); };
    const auto projected = [&](Tensor tensor, int rows) {
      Vector result = normalised_product(of(tensor), rows, x, of(Tensor::kInputNorm), prefilled);
      for (double& value : result) value = round(value);
      return result;
    };
    Vector queries = projected(Tensor::kQ, heads), key = projected(Tensor::kK, kv), value = projected(Tensor::kV, kv);
    for (std::size_t i = 0; i < queries.size(); i += dim)
      normalise_head(std::span(queries).subspan(i, dim), of(Tensor::kQNorm), position_);
    for (std::size_t i = 0; i < key.size(); i += dim)
      normalise_head(std::span(key).subspan(i, dim), of(Tensor::kKNorm), position_);
    Cached& cached = cache_[size(layer)];
    cached.keys.push_back(key);
    cached.values.push_back(value);
    const auto add = [&](const Vector& what) {
      for (std::size_t i = 0; i < hidden; ++i) x[i] = round(x[i] + (prefilled ? round(what[i]) : what[i]));
    };
    add(product(of(Tensor::kOut), config.hidden, attend(cached, queries)));
    Vector gate = normalised_product(of(Tensor::kGate), config.intermediate, x, of(Tensor::kPostNorm), prefilled),
           up = normalised_product(of(Tensor::kUp), config.intermediate, x, of(Tensor::kPostNorm), prefilled);
    if (prefilled) {
      for (Vector* const vector : {&gate, &up}) {
        for (double& value : *vector) value = round(value);
      }
    }
    Vector activated(gate.size());
    for (std::size_t i = 0; i < gate.size(); ++i)
      activated[i] = round(factors_.activated * gate[i] / (1 + std::exp(-factors_.silu * gate[i])) * up[i]);
    add(product(of(Tensor::kDown), config.hidden, activated));
  }
  ++position_;
  const GlobalTensor head = config.tied ? GlobalTensor::kEmbedding : GlobalTensor::kHead;
  if (prefilled) return {};
  Vector logits =
      normalised_product(weights_.of(head), config.vocabulary, x, weights_.of(GlobalTensor::kFinalNorm), false);
  for (double& logit : logits) logit *= factors_.logits;
  return logits;
}

}  // namespace farwarp::qwen3
