// Submissions for tests of the judge, one for each operator: plain loops on the host. $PLAIN=alone: moe-a2a without
// the other ranks' experts; few_bits: all-reduce of numbers with 4 bits of mantissa.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "farwarp/submission.h"
#include "shared_memory_test_module.h"

namespace {

constexpr int kMaxRanks = 8;
constexpr std::size_t kRoom = 1 << 22;  // floats that a rank gives the others in a call

/// What all ranks share.
struct Shared {
  alignas(64) float given[kMaxRanks][kRoom];
};

int g_rank = 0, g_ranks = 1;
Shared* g_shared = nullptr;
SharedMemory g_memory;
std::string g_op;

void meet() { g_memory.meet(); }

/// Gives all ranks `mine`; result: rank r's at [r].
std::vector<std::vector<float>> exchange(const std::vector<float>& mine) {
  std::memcpy(g_shared->given[g_rank], mine.data(), 4 * mine.size());
  meet();
  std::vector<std::vector<float>> all;
  for (int rank = 0; rank < g_ranks; ++rank)
    all.emplace_back(g_shared->given[rank], g_shared->given[rank] + mine.size());
  meet();
  return all;
}

float from_bits(std::uint16_t bits, bool is_bf16) {
  if (!is_bf16) {
    _Float16 half;
    std::memcpy(&half, &bits, 2);
    return static_cast<float>(half);
  }
  const std::uint32_t wide = std::uint32_t{bits} << 16;
  float value;
  std::memcpy(&value, &wide, 4);
  return value;
}

std::uint16_t to_bits(float value, bool is_bf16) {
  if (!is_bf16) {
    const auto half = static_cast<_Float16>(value);
    std::uint16_t bits;
    std::memcpy(&bits, &half, 2);
    return bits;
  }
  std::uint32_t bits;
  std::memcpy(&bits, &value, 4);
  return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

struct Tensor {
  farwarp_submission_tensor view{};
  std::vector<std::int64_t> shape;
  bool is_bf16 = false;

  std::int64_t size() const {
    std::int64_t product = 1;
    for (const std::int64_t extent : shape) product *= extent;
    return product;
  }
  std::vector<float> floats() const {
    std::vector<float> values(static_cast<std::size_t>(size()));
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = view.dtype == FARWARP_SUBMISSION_FLOAT32
                      ? static_cast<const float*>(view.data)[i]
                      : from_bits(static_cast<std::uint16_t*>(view.data)[i], is_bf16);
    return values;
  }
  std::vector<std::int64_t> integers() const {
    std::vector<std::int64_t> values(static_cast<std::size_t>(size()));
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = view.dtype == FARWARP_SUBMISSION_INT64 ? static_cast<const std::int64_t*>(view.data)[i]
                                                         : static_cast<const std::int32_t*>(view.data)[i];
    return values;
  }
  void store(std::int64_t i, float value) const {
    if (view.dtype == FARWARP_SUBMISSION_FLOAT32)
      static_cast<float*>(view.data)[i] = value;
    else
      static_cast<std::uint16_t*>(view.data)[i] = to_bits(value, is_bf16);
  }
  float rounded(float value) const { return from_bits(to_bits(value, is_bf16), is_bf16); }
};

using Tensors = std::map<std::string, Tensor>;

/// [m, n] of x [m, k] and w [n, k], in fp32.
std::vector<float> product(const std::vector<float>& x, const std::vector<float>& w, std::int64_t k) {
  const auto m = static_cast<std::int64_t>(x.size()) / k, n = static_cast<std::int64_t>(w.size()) / k;
  std::vector<float> y(static_cast<std::size_t>(m * n));
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (std::int64_t l = 0; l < k; ++l)
        sum += double{x[static_cast<std::size_t>(i * k + l)]} * w[static_cast<std::size_t>(j * k + l)];
      y[static_cast<std::size_t>(i * n + j)] = static_cast<float>(sum);
    }
  }
  return y;
}

/// gemm, ag-gemm (`gathers`), gemm-ar (`reduces`), gemm-rs (`scatters`, too).
void multiply(Tensors& tensors, bool gathers, bool reduces, bool scatters) {
  const Tensor &w = tensors.at("w"), &y = tensors.at("y");
  std::vector<float> x;
  if (gathers) {
    for (const std::vector<float>& theirs : exchange(tensors.at("x").floats()))
      x.insert(x.end(), theirs.begin(), theirs.end());
  } else {
    x = tensors.at("x").floats();
  }
  std::vector<float> sum = product(x, w.floats(), w.shape[1]);
  const auto bias = tensors.find("bias");
  if (bias != tensors.end()) {
    const std::vector<float> added = bias->second.floats();
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += added[i % added.size()];
  }
  if (reduces) {
    const auto all = exchange(sum);
    for (std::size_t i = 0; i < sum.size(); ++i) {
      sum[i] = 0;
      for (const auto& theirs : all) sum[i] += y.rounded(theirs[i]);
    }
  }
  const std::int64_t first = scatters ? y.size() * g_rank : 0;
  for (std::int64_t i = 0; i < y.size(); ++i) y.store(i, sum[static_cast<std::size_t>(first + i)]);
}

bool cheats_by(std::string_view name) {
  const char* const how = std::getenv("PLAIN");
  return how != nullptr && how == name;
}

void reduce(Tensors& tensors) {
  std::vector<float> in = tensors.at("in").floats();
  for (float& x : in) {
    std::uint32_t bits;
    std::memcpy(&bits, &x, 4);
    bits = (bits + 0x40000) & 0xfff80000;
    if (cheats_by("few_bits")) std::memcpy(&x, &bits, 4);
  }
  const auto all = exchange(in);
  const Tensor& out = tensors.at("out");
  for (std::int64_t i = 0; i < out.size(); ++i) {
    float sum = 0;
    for (const auto& theirs : all) sum += theirs[static_cast<std::size_t>(i)];
    out.store(i, sum);
  }
}

/// The ranks exchange what their experts compute; rows stay where they are.
void all_to_all(Tensors& tensors, std::int64_t experts) {
  const Tensor& out = tensors.at("out");
  const auto x = tensors.at("x").floats(), weights = tensors.at("topk_weights").floats(),
             mine = tensors.at("expert_scales").floats();
  const auto chosen = tensors.at("topk_indices").integers();
  std::vector<float> sent(kRoom / 64);
  std::memcpy(sent.data(), mine.data(), 4 * mine.size());
  auto all = exchange(sent);
  if (cheats_by("alone")) all.assign(all.size(), all[static_cast<std::size_t>(g_rank)]);
  const std::int64_t hidden = out.shape[1], k = tensors.at("topk_indices").shape[1];
  for (std::int64_t i = 0; i < out.size(); ++i) {
    float sum = 0;
    for (std::int64_t slot = 0; slot < k; ++slot) {
      const auto entry = static_cast<std::size_t>(i / hidden * k + slot);
      const std::int64_t expert = chosen[entry];
      if (expert < 0) continue;
      const std::int64_t owner = expert * g_ranks / experts;
      const std::int64_t first = (owner * experts + g_ranks - 1) / g_ranks;  // that the owner has
      const float scale = all[static_cast<std::size_t>(owner)][static_cast<std::size_t>(expert - first)];
      sum += weights[entry] * out.rounded(x[static_cast<std::size_t>(i)] * scale);
    }
    out.store(i, sum);
  }
}

/// One query row: `key(i)` and `value(i)` point to head_dim floats.
void attend(const float* q, std::int64_t head_dim, std::int64_t keys,
            const std::function<const float*(std::int64_t)>& key,
            const std::function<const float*(std::int64_t)>& value, const Tensor& out, std::int64_t row,
            const Tensor& lse, std::int64_t lse_row) {
  std::vector<double> logits(static_cast<std::size_t>(keys)), sum(static_cast<std::size_t>(head_dim));
  double largest = -INFINITY, total = 0;
  for (std::int64_t i = 0; i < keys; ++i) {
    double dot = 0;
    for (std::int64_t d = 0; d < head_dim; ++d) dot += double{q[d]} * key(i)[d];
    logits[static_cast<std::size_t>(i)] = dot / std::sqrt(static_cast<double>(head_dim));
    largest = std::max(largest, logits[static_cast<std::size_t>(i)]);
  }
  for (std::int64_t i = 0; i < keys; ++i) {
    const double weight = std::exp(logits[static_cast<std::size_t>(i)] - largest);
    total += weight;
    for (std::int64_t d = 0; d < head_dim; ++d) sum[static_cast<std::size_t>(d)] += weight * value(i)[d];
  }
  for (std::int64_t d = 0; d < head_dim; ++d)
    out.store(row * head_dim + d, keys > 0 ? static_cast<float>(sum[static_cast<std::size_t>(d)] / total) : 0);
  lse.store(lse_row, keys > 0 ? static_cast<float>(largest + std::log(total)) : -INFINITY);
}

/// Of one sequence, whose lse is [heads, queries].
void prefill(Tensors& tensors) {
  const auto q = tensors.at("q").floats(), k = tensors.at("k").floats(), v = tensors.at("v").floats();
  const auto &q_shape = tensors.at("q").shape, &k_shape = tensors.at("k").shape;
  const std::int64_t queries = q_shape[1], heads = q_shape[2], head_dim = q_shape[3], kv_heads = k_shape[2];
  for (std::int64_t i = 0; i < queries * heads; ++i) {
    const std::int64_t head = i % heads / (heads / kv_heads);
    const auto row_of = [&](const std::vector<float>& from) {
      return [&from, head, kv_heads, head_dim](std::int64_t at) {
        return &from[static_cast<std::size_t>((at * kv_heads + head) * head_dim)];
      };
    };
    attend(&q[static_cast<std::size_t>(i * head_dim)], head_dim, k_shape[1], row_of(k), row_of(v), tensors.at("out"), i,
           tensors.at("lse"), i % heads * queries + i / heads);
  }
}

void decode(Tensors& tensors) {
  const auto q = tensors.at("q").floats(), k = tensors.at("k").floats(), v = tensors.at("v").floats();
  const auto table = tensors.at("block_table").integers(), lengths = tensors.at("lengths").integers();
  const auto& shape = tensors.at("q").shape;
  const std::int64_t tokens = shape[1], heads = shape[2], head_dim = shape[3];
  const auto& cache = tensors.at("k").shape;  // [pages, page_size, kv_heads, head_dim]
  const std::int64_t page_size = cache[1], kv_heads = cache[2], max_pages = tensors.at("block_table").shape[1];
  for (std::int64_t i = 0; i < shape[0] * tokens * heads; ++i) {
    const std::int64_t sequence = i / heads / tokens, token = i / heads % tokens, head = i % heads / (heads / kv_heads);
    const auto row_of = [&](const std::vector<float>& from) {
      return [&, sequence, head](std::int64_t at) {
        const std::int64_t page = table[static_cast<std::size_t>(sequence * max_pages + at / page_size)];
        return &from[static_cast<std::size_t>(((page * page_size + at % page_size) * kv_heads + head) * head_dim)];
      };
    };
    const std::int64_t keys =
        std::max<std::int64_t>(0, lengths[static_cast<std::size_t>(sequence)] - tokens + 1 + token);
    attend(&q[static_cast<std::size_t>(i * head_dim)], head_dim, keys, row_of(k), row_of(v), tensors.at("out"), i,
           tensors.at("lse"), i);
  }
}

std::int64_t g_experts = 0;

bool run_op(Tensors& tensors) {
  if (g_op == "gemm")
    multiply(tensors, false, false, false);
  else if (g_op == "ag-gemm")
    multiply(tensors, true, false, false);
  else if (g_op == "gemm-ar")
    multiply(tensors, false, true, false);
  else if (g_op == "gemm-rs")
    multiply(tensors, false, true, true);
  else if (g_op == "all-reduce")
    reduce(tensors);
  else if (g_op == "moe-a2a")
    all_to_all(tensors, g_experts);
  else if (g_op == "attention")
    prefill(tensors);
  else if (g_op == "flash-decode")
    decode(tensors);
  else
    return false;
  return true;
}

}  // namespace

uint32_t farwarp_submission_abi_version(void) { return FARWARP_SUBMISSION_ABI_VERSION; }

int farwarp_submission_create(const farwarp_submission_problem* problem, void** state, char*, size_t) {
  g_rank = problem->rank;
  g_ranks = problem->ranks;
  g_op = problem->op;
  const char* const experts = std::strstr(problem->case_json, "\"num_experts\":\"");
  if (experts != nullptr) g_experts = std::atoll(experts + 15);
  if (!g_memory.open(*problem, sizeof(Shared))) return 1;
  g_shared = static_cast<Shared*>(g_memory.data());
  *state = nullptr;
  return 0;
}

int farwarp_submission_run(void*, const farwarp_submission_tensor* inputs, int32_t input_count,
                           const farwarp_submission_tensor* outputs, int32_t output_count, void*) {
  Tensors tensors;
  for (int i = 0; i < input_count + output_count; ++i) {
    const farwarp_submission_tensor& view = i < input_count ? inputs[i] : outputs[i - input_count];
    tensors[view.name] = {view, {view.shape, view.shape + view.dims}, view.dtype == FARWARP_SUBMISSION_BFLOAT16};
  }
  return run_op(tensors) ? 0 : 1;
}

void farwarp_submission_destroy(void*) {}
