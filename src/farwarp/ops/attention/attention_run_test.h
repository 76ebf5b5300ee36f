// A call of attention on the emulator, its inputs, and what it should give: a float64 softmax, within what roundings
// explain.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "farwarp/harness/inputs.h"
#include "farwarp/ops/attention/attention.h"
#include "farwarp/ops/attention/reference.h"
#include "farwarp/runtime/device_memory.h"
#include "farwarp/substrate/emu/machine.h"
#include "farwarp/world/host/bootstrap.h"

namespace farwarp {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();
inline constexpr std::uint16_t kNan = 0x7fff;

/// A descriptor, and the counts of its sequences if they are in device memory.
struct Shape {
  AttentionDesc desc;
  std::vector<int> queries = {}, keys = {};  ///< empty: max_queries, max_keys
  double deviation = 1;                      ///< of q
};

class AttentionRun {
 public:
  AttentionRun(const Shape& shape, TargetKind target, std::uint64_t seed = 1)
      : shape_(shape), desc_(shape.desc), target_(target), seed_(seed) {
    for (int b = 0; b < desc_.batch; ++b) {
      queries_.push_back(shape.queries.empty() ? desc_.max_queries : shape.queries[index(b)]);
      keys_.push_back(shape.keys.empty() ? desc_.max_keys : shape.keys[index(b)]);
    }
    starts_of_queries_ = starts(queries_);
    starts_of_keys_ = starts(keys_);
  }

  Status run(std::shared_ptr<Bootstrap> bootstrap) {
    emu::Machine::instance().set_schedule({seed_, true});
    auto world = World::create(std::move(bootstrap), {.target = target_});
    if (!world.ok()) return world.status();
    auto op = Attention::create(*world, desc_);
    if (!op.ok()) return op.status();
    device_ = &world->device();
    const auto stream = device_->create_stream();
    if (!stream.ok()) return stream.status();
    stream_ = *stream;
    Status status = call(*op);
    if (status.ok()) status = device_->synchronize(stream_, 60'000'000'000);
    if (status.ok()) status = world->status();
    if (status.ok()) status = download();
    race_ = emu::Machine::instance().report().race;
    memory_.clear();  // before the World and its device
    return status.ok() ? op->close() : status;
  }

  /// Empty, or the first wrong element.
  std::string difference() const {
    if (!race_.empty()) return race_;
    for (int b = 0; b < desc_.batch; ++b) {
      for (int head = 0; head < desc_.heads; ++head) {
        for (int query = 0; query < queries_[index(b)]; ++query) {
          if (query == nan_query) {
            if (!is_nan(b, head, query)) return "query " + std::to_string(query) + " has a NaN, its results have not";
            continue;
          }
          const std::string wrong = difference_of(b, head, query);
          if (!wrong.empty()) return wrong;
        }
      }
    }
    return {};
  }

  /// Whether all results but those of query `except` have the same bits. For sequences without counts.
  bool equals(const AttentionRun& other, int except) const {
    const std::int64_t of_query = std::int64_t{desc_.heads} * desc_.head_dim;
    for (std::int64_t i = 0; i < desc_.max_queries * of_query; ++i)
      if (i / of_query != except && out[index(i)] != other.out[index(i)]) return false;
    for (std::int64_t i = 0; i < std::int64_t{desc_.heads} * desc_.max_queries; ++i)
      if (i % desc_.max_queries != except && lse[index(i)] != other.lse[index(i)]) return false;
    return true;
  }

  int second_page = -1;  ///< set before run() to give a wrong block table
  int nan_query = -1;    ///< set before run() to give this query of each sequence a NaN in each head

 private:
  std::vector<std::int32_t> table;
  std::vector<std::uint16_t> q, k, v, out;
  std::vector<float> lse, sinks;

  static std::size_t index(std::int64_t value) { return static_cast<std::size_t>(value); }
  static std::vector<std::int32_t> starts(const std::vector<int>& counts) {
    std::vector<std::int32_t> result{0};
    for (const int count : counts) result.push_back(result.back() + count);
    return result;
  }

  std::int64_t query_row(int b, int query) const {
    return desc_.ragged_queries ? starts_of_queries_[index(b)] + query : std::int64_t{b} * desc_.max_queries + query;
  }
  std::int64_t key_row(int b, int key) const {
    if (desc_.page_size > 0) {
      const int page = table[index(std::int64_t{b} * table_pitch() + key / desc_.page_size)];
      return std::int64_t{page} * desc_.page_size + key % desc_.page_size;
    }
    return desc_.ragged_keys ? starts_of_keys_[index(b)] + key : std::int64_t{b} * desc_.max_keys + key;
  }
  int table_pitch() const { return (desc_.max_keys + desc_.page_size - 1) / desc_.page_size; }

  /// Random rows; those that belong to no sequence are NaNs.
  std::vector<std::uint16_t> rows(int what, std::int64_t count, int heads, const std::vector<std::int64_t>& used,
                                  double deviation) {
    const std::int64_t row_size = std::int64_t{heads} * desc_.head_dim;
    std::vector<std::uint16_t> values(index(count * row_size), kNan);
    for (const std::int64_t row : used) {
      const harness::RandomStream stream(7, {index(what), index(row)});
      harness::fill_normal(stream, 0, deviation, desc_.dtype,
                           std::span(values).subspan(index(row * row_size), index(row_size)));
    }
    return values;
  }

  void make_inputs() {
    if (desc_.page_size > 0 && table.empty()) {
      table.assign(index(std::int64_t{desc_.batch} * table_pitch()), 1 << 20);
      int taken = 0;
      for (int b = 0; b < desc_.batch; ++b) {
        for (int page = 0; page * desc_.page_size < keys_[index(b)]; ++page)
          table[index(std::int64_t{b} * table_pitch() + page)] = (taken++ * 5 + 3) % desc_.pages;
      }
    }
    std::vector<std::int64_t> used_queries, used_keys;
    for (int b = 0; b < desc_.batch; ++b) {
      for (int i = 0; i < queries_[index(b)]; ++i) used_queries.push_back(query_row(b, i));
      for (int i = 0; i < keys_[index(b)]; ++i)
        if (i < desc_.max_keys) used_keys.push_back(key_row(b, i));
    }
    const std::int64_t query_rows = desc_.ragged_queries ? desc_.total_queries : desc_.batch * desc_.max_queries;
    const std::int64_t key_rows = desc_.page_size > 0 ? std::int64_t{desc_.pages} * desc_.page_size
                                  : desc_.ragged_keys ? desc_.total_keys
                                                      : std::int64_t{desc_.batch} * desc_.max_keys;
    q = rows(1, query_rows, desc_.heads, used_queries, shape_.deviation);
    k = rows(2, key_rows, desc_.kv_heads, used_keys, 1);
    v = rows(3, key_rows, desc_.kv_heads, used_keys, 1);
    for (int b = 0; nan_query >= 0 && b < desc_.batch; ++b) {
      for (int head = 0; head < desc_.heads; ++head)
        q[index((query_row(b, nan_query) * desc_.heads + head) * desc_.head_dim + 5)] = kNan;
    }
    out.assign(q.size(), 0xffff);
    lse.assign(index(query_rows * desc_.heads), 0);
    for (int head = 0; head < desc_.heads; ++head) sinks.push_back(0.5f * static_cast<float>(head % 3));
  }

  template <class T>
  T* on_device(const std::vector<T>& values, Status& status) {
    auto memory = DeviceMemory::create(*device_, std::max<std::size_t>(values.size() * sizeof(T), 16));
    if (status.ok()) status = memory.status();
    if (!status.ok()) return nullptr;
    if (!values.empty()) status = device_->copy_in(memory->get(), values.data(), values.size() * sizeof(T), stream_);
    memory_.push_back(std::move(*memory));
    return static_cast<T*>(memory_.back().get());
  }

  Status call(Attention& op) {
    make_inputs();
    Status status;
    AttentionTensors tensors;
    tensors.q = on_device(q, status);
    tensors.k = on_device(k, status);
    tensors.v = on_device(v, status);
    tensors.out = device_out_ = on_device(out, status);
    if (desc_.has_lse) tensors.lse = device_lse_ = on_device(lse, status);
    if (desc_.has_sinks) tensors.sinks = on_device(sinks, status);
    if (desc_.ragged_queries) tensors.query_starts = on_device(starts_of_queries_, status);
    if (desc_.ragged_keys) tensors.key_starts = on_device(starts_of_keys_, status);
    if (desc_.has_key_counts || desc_.page_size > 0) tensors.key_counts = on_device(keys_as_words(), status);
    if (second_page >= 0) table[1] = second_page;
    if (desc_.page_size > 0) tensors.block_table = on_device(table, status);
    return status.ok() ? op(tensors, stream_) : status;
  }
  std::vector<std::int32_t> keys_as_words() const { return {keys_.begin(), keys_.end()}; }

  Status download() {
    Status status = device_->copy_out(out.data(), device_out_, out.size() * 2, stream_);
    if (status.ok() && desc_.has_lse) status = device_->copy_out(lse.data(), device_lse_, lse.size() * 4, stream_);
    return status;
  }

  std::vector<double> numbers(const std::vector<std::uint16_t>& values, std::int64_t row, int heads, int head) const {
    std::vector<double> result(index(desc_.head_dim));
    for (int i = 0; i < desc_.head_dim; ++i)
      result[index(i)] = harness::decode(desc_.dtype, values[index((row * heads + head) * desc_.head_dim + i)]);
    return result;
  }

  std::int64_t row_of_lse(int b, int head, int query) const {
    return desc_.ragged_queries ? std::int64_t{head} * desc_.total_queries + query_row(b, query)
                                : (std::int64_t{b} * desc_.heads + head) * desc_.max_queries + query;
  }
  bool is_nan(int b, int head, int query) const {
    const std::vector<double> row = numbers(out, query_row(b, query), desc_.heads, head);
    const bool in_lse = !desc_.has_lse || std::isnan(lse[index(row_of_lse(b, head, query))]);
    return in_lse && std::ranges::all_of(row, [](double value) { return std::isnan(value); });
  }

  std::string difference_of(int b, int head, int query) const {
    const int shift = keys_[index(b)] - queries_[index(b)];
    const int kv_head = head / (desc_.heads / desc_.kv_heads);
    const bool ends = desc_.causal || desc_.window_right >= 0;
    const std::vector<double> own = numbers(q, query_row(b, query), desc_.heads, head);
    std::vector<double> key, value;
    const double sink = sinks[index(head)];
    attention::ReferenceRow row{
        own,          {}, {}, 0, keys_[index(b)], 1 / std::sqrt(desc_.head_dim), desc_.has_sinks ? &sink : nullptr,
        desc_.softcap};
    if (desc_.window_left >= 0) row.first_key = std::max(0, query + shift - desc_.window_left);
    if (ends) row.end_key = std::min(row.end_key, query + shift + std::max(0, desc_.window_right) + 1);
    row.key = [&](int j) {
      key = numbers(k, key_row(b, j), desc_.kv_heads, kv_head);
      return std::span<const double>(key);
    };
    row.value = [&](int j) {
      value = numbers(v, key_row(b, j), desc_.kv_heads, kv_head);
      return std::span<const double>(value);
    };
    const attention::ReferenceResult right = attention::reference_row(row);
    const double unit = desc_.dtype == DType::kBf16 ? 0x1p-8 : 0x1p-11;
    const double of_scores = 0x1p-20 * (1 + right.largest_logit);
    for (int i = 0; i < desc_.head_dim; ++i) {
      const double got =
          harness::decode(desc_.dtype, out[index((query_row(b, query) * desc_.heads + head) * desc_.head_dim + i)]);
      const double allowed =
          (unit + of_scores) * right.magnitude[index(i)] + unit * std::abs(right.out[index(i)]) + 0x1p-24;
      if (!(std::abs(got - right.out[index(i)]) <= allowed))
        return "batch " + std::to_string(b) + ", head " + std::to_string(head) + ", query " + std::to_string(query) +
               ", column " + std::to_string(i) + ": " + std::to_string(got) + ", expected " +
               std::to_string(right.out[index(i)]);
    }
    if (!desc_.has_lse) return {};
    const std::int64_t lse_row = row_of_lse(b, head, query);
    const double got = lse[index(lse_row)];
    const bool same = right.lse == -kInfinity ? got == -kInfinity : std::abs(got - right.lse) <= of_scores;
    if (!same)
      return "logarithm of query " + std::to_string(query) + ": " + std::to_string(got) + ", expected " +
             std::to_string(right.lse);
    return {};
  }

  Shape shape_;
  AttentionDesc desc_;
  TargetKind target_;
  std::uint64_t seed_;
  std::string race_;
  Device* device_ = nullptr;
  Stream stream_{};
  std::vector<int> queries_, keys_;
  std::vector<std::int32_t> starts_of_queries_, starts_of_keys_;
  std::vector<DeviceMemory> memory_;
  std::uint16_t* device_out_ = nullptr;
  float* device_lse_ = nullptr;
};

}  // namespace farwarp
