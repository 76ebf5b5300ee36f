// The inputs of the check of attention. A row is a pure function of its place, so the oracle reads rows without keeping
// the tensors.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "farwarp/harness/params.h"
#include "farwarp/ops/attention/case/sequences.h"

namespace farwarp::attention {

enum class InputKind : std::uint8_t {
  kAuto,    ///< kSpread, kNeedle, kMean, kSpread, ... by call
  kNormal,  ///< q, k and v are N(0, 1)
  kSpread,  ///< the same, but each second query is N(0, 8): later keys often have much larger logits
  kLarge,   ///< q is N(0, 3000): logits up to +-1e4, and a few keys have all the weight
  kMean,    ///< q is zero and v has integers from -4 to 4: out is the mean of the values that a query sees
  kNeedle,  ///< each query has one key, its needle, with a logit at least 32 above all others: out is that key's value
};
inline constexpr harness::Choice<InputKind> kInputKinds[] = {
    {"auto", InputKind::kAuto},   {"normal", InputKind::kNormal}, {"spread", InputKind::kSpread},
    {"large", InputKind::kLarge}, {"mean", InputKind::kMean},     {"needle", InputKind::kNeedle}};
inline constexpr const char* kInputKindNames =
    "auto (spread, needle, mean, spread, ...; a bench: normal)|normal|spread|large|mean|needle";

/// Whether keys can have codes that all differ: each is made of `head_dim` signs.
constexpr bool has_needles(int head_dim, int keys) { return head_dim >= 31 || keys <= 1 << head_dim; }

/// Replaces kAuto. A softcap brings needles' logits close to others.
constexpr InputKind kind_in_call(InputKind kind, const AttentionDesc& desc, int call) {
  if (kind != InputKind::kAuto) return kind;
  if (call % 3 == 0) return InputKind::kSpread;
  return call % 3 == 1 && desc.softcap == 0 && has_needles(desc.head_dim, desc.max_keys) ? InputKind::kNeedle
                                                                                         : InputKind::kMean;
}

class Inputs {
 public:
  /// `kind` is not kAuto. `salt`: distinguishes calls and ranks.
  Inputs(const Sequences& sequences, InputKind kind, std::uint64_t seed, std::uint64_t salt);

  InputKind kind() const { return kind_; }
  const Sequences& sequences() const { return sequences_; }
  int heads_of_kv_head() const { return desc().heads / desc().kv_heads; }

  // One row of one head; `row` has head_dim elements.
  void query(int b, int head, int query, std::span<std::uint16_t> row) const;
  void key(int b, int kv_head, int key, std::span<std::uint16_t> row) const;
  std::span<const std::uint16_t> value(int b, int kv_head, int key) const;

  /// kNeedle: the key that a query is made for; -1 if the query sees none.
  int needle(int b, int head, int query) const;
  /// Of a head. Some are larger than all logits of kMean, some smaller.
  float sink(int head) const;

 private:
  const AttentionDesc& desc() const { return sequences_.desc(); }
  std::uint64_t hash(std::uint64_t what, int b, int head, int row) const;
  std::span<const std::uint16_t> from_table(const std::vector<std::uint16_t>& table, std::uint64_t hash) const;
  void code(int b, int kv_head, int key, std::uint16_t one, std::span<std::uint16_t> row) const;

  Sequences sequences_;
  InputKind kind_;
  std::uint64_t key_;
  std::vector<std::uint16_t> normal_, queries_,
      values_;  ///< numbers from which rows are cut; large tensors are made fast
};

}  // namespace farwarp::attention
