// The best candidates of a column in a warp's registers, and the draw of one of them.
#pragma once

#include "farwarp/models/qwen3/decode/logits.dev.h"
#include "farwarp/models/qwen3/decode/philox.h"

namespace farwarp::FARWARP_TARGET::qwen3 {

/// Up to kMaxTopK candidates, the best one first. Those that are missing have Candidate::kNoToken.
class TopList {
 public:
  FARWARP_DEVICE explicit TopList(int count) : count_(count) {}

  /// [warp] Each lane offers one. Its code is long: in a loop it stands once.
  FARWARP_DEVICE void offer(const Candidate& mine) {
    std::uint64_t better = ballot(before(mine, worst_));
    while (better != 0) {
      insert(Candidate::unpack(shuffle(mine.packed(), lowest_bit(better))));
      better &= better - 1;
      better &= ballot(before(mine, worst_));
    }
  }
  /// [thread] The candidate at place slot * warp size + lane is the lane's; what is not in the list is Candidate{}.
  FARWARP_DEVICE Candidate mine(int slot) const { return place(slot) < count_ ? best_[slot] : Candidate{}; }
  FARWARP_DEVICE int place(int slot) const { return slot * Target::kWarpSize + lane_; }
  static constexpr int kSlots = kMaxTopK / Target::kWarpSize;

  /// [warp] The token that is drawn for the output at `position`: the softmax of the scaled logits, of that the
  /// smallest set of best candidates whose probability reaches top_p, and of that one by a random number of (seed,
  /// position). Sums are fp32, in the order of the candidates. kNotANumber if a logit is none.
  FARWARP_DEVICE std::int32_t draw(const DrawState& how, std::int32_t position) const {
    const Candidate best = at(0);
    if (how.scale_log2 == 0 || best.token == Candidate::kNotANumber) return best.token;
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    float until[kSlots], upto[kSlots], total = 0;  // the sums without and with the lane's candidates
#pragma unroll
    for (int slot = 0; slot < kSlots; ++slot) {
      const float weight = weight_of(mine(slot), best, how.scale_log2);
      until[slot] = upto[slot] = kInfinity;
      if (slot * Target::kWarpSize >= count_) continue;
#pragma unroll 8
      for (int lane = 0; lane < Target::kWarpSize; ++lane) {
        const float before_it = total;
        total = add(total, shuffle(weight, lane));
        if (lane != lane_) continue;
        until[slot] = before_it;
        upto[slot] = total;
      }
    }
    const float reached = multiply(how.top_p, total);
    const int kept = lanes_with([&](int slot) { return until[slot] < reached; });
    const float aim = multiply(uniform_of(how.seed, position), value_at(upto, kept - 1));
    const int drawn = lanes_with([&](int slot) { return upto[slot] <= aim; });
    return at(drawn < kept ? drawn : kept - 1).token;
  }

 private:
  /// Greater logits, then lower tokens.
  static FARWARP_DEVICE bool before(const Candidate& first, const Candidate& second) {
    return first.logit > second.logit || (first.logit == second.logit && first.token < second.token);
  }
  /// [warp] `candidate` comes before the last one, which drops out.
  FARWARP_DEVICE void insert(const Candidate& candidate) {
#pragma unroll
    for (int slot = kSlots - 1; slot >= 0; --slot) {
      Candidate above = Candidate::unpack(shuffle(best_[slot].packed(), (lane_ - 1) & (Target::kWarpSize - 1)));
      if (slot > 0) {
        const Candidate last =
            Candidate::unpack(shuffle(best_[slot > 0 ? slot - 1 : 0].packed(), Target::kWarpSize - 1));
        if (lane_ == 0) above = last;
      }
      if (!before(candidate, best_[slot])) continue;
      best_[slot] = place(slot) > 0 && before(candidate, above) ? above : candidate;
    }
    worst_ = at(count_ - 1);
  }
  /// [warp] The candidate at `place`, on all lanes.
  FARWARP_DEVICE Candidate at(int place) const {
    Candidate found;
#pragma unroll
    for (int slot = 0; slot < kSlots; ++slot) {
      const Candidate there = Candidate::unpack(shuffle(best_[slot].packed(), place % Target::kWarpSize));
      if (place / Target::kWarpSize == slot) found = there;
    }
    return found;
  }
  static FARWARP_DEVICE float value_at(const float (&values)[kSlots], int place) {
    float found = 0;
#pragma unroll
    for (int slot = 0; slot < kSlots; ++slot) {
      const float there = shuffle(values[slot], place % Target::kWarpSize);
      if (place / Target::kWarpSize == slot) found = there;
    }
    return found;
  }
  /// [warp] How many candidates `holds` is true for.
  template <class Holds>
  static FARWARP_DEVICE int lanes_with(const Holds& holds) {
    int count = 0;
#pragma unroll
    for (int slot = 0; slot < kSlots; ++slot) count += count_bits(ballot(holds(slot)));
    return count;
  }
  /// Infinite logits are as probable as each other.
  static FARWARP_DEVICE float weight_of(const Candidate& candidate, const Candidate& best, float scale_log2) {
    if (candidate.token == Candidate::kNoToken) return 0;
    if (candidate.logit == best.logit) return 1;
    return exp2(multiply(add(candidate.logit, -best.logit), scale_log2));
  }
  /// Of [0, 1): a multiple of 2^-24.
  static FARWARP_DEVICE float uniform_of(std::uint64_t seed, std::int32_t position) {
    const std::uint32_t bits = philox4x32_10({static_cast<std::uint32_t>(position), 0, 0, 0}, seed)[0];
    return multiply(static_cast<float>(bits >> 8), 0x1p-24f);
  }

  int count_;
  int lane_ = recomputed(lane_index());  ///< the loops of other tasks need all registers
  Candidate best_[kSlots], worst_;       ///< worst_: the last of the list
};

}  // namespace farwarp::FARWARP_TARGET::qwen3
