#include "farwarp/harness/case.h"

#include <algorithm>
#include <utility>

namespace farwarp::harness {
namespace {

// A function-local static: ops register from static initialisers of other files, in any order.
std::vector<OpInfo>& mutable_ops() {
  static std::vector<OpInfo> ops;
  return ops;
}

}  // namespace

BenchOutcome Case::bench(std::shared_ptr<Bootstrap>, const RunOptions&, const BenchOptions&) {
  BenchOutcome outcome;
  outcome.check.status = unavailable(describe() + ": there is no bench of this operator");
  outcome.check.detail = outcome.check.status.message();
  return outcome;
}

const std::vector<OpInfo>& registered_ops() { return mutable_ops(); }

void register_op(OpInfo info) {
  auto& ops = mutable_ops();
  const auto place = std::find_if(ops.begin(), ops.end(), [&](const OpInfo& other) { return other.name > info.name; });
  ops.insert(place, std::move(info));
}

const OpInfo* find_op(std::string_view name) {
  for (const OpInfo& op : registered_ops()) {
    if (op.name == name) return &op;
  }
  return nullptr;
}

}  // namespace farwarp::harness
