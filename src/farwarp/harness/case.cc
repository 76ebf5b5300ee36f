#include "farwarp/harness/case.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <utility>

namespace farwarp::harness {
namespace {

// A function-local static, because ops register from static initialisers of other files, in any order.
std::vector<OperatorInfo>& mutable_ops() {
  static std::vector<OperatorInfo> ops;
  return ops;
}

}  // namespace

CheckOutcome judge(const std::string& where, const Status& status, const Verdict& verdict,
                   const std::string& difference) {
  CheckOutcome outcome;
  outcome.status = status;
  outcome.rel_err = verdict.rel_err;
  outcome.max_share = verdict.max_share;
  outcome.tile_share = verdict.tile_share;
  outcome.pass = status.ok() && verdict.pass && difference.empty();
  if (outcome.pass) return outcome;
  const std::string& why = difference.empty() ? verdict.detail : difference;
  outcome.detail = fmt::format("{}: {}", where, status.ok() ? why : status.to_string());
  return outcome;
}

Status apply_fault(const Fault& fault, int rank, const Bootstrap& bootstrap, Device& device, Stream stream) {
  if (rank != fault.rank) return {};
  if (fault.kind == Fault::Kind::kDelay)
    return device.enqueue_delay(stream, static_cast<std::uint64_t>(fault.amount) * 1'000'000);
  if (fault.kind != Fault::Kind::kKill) return {};
  if (!bootstrap.same_process()) std::raise(SIGKILL);
  // The caller releases its memory next. No work that it has enqueued may still write there.
  constexpr std::chrono::nanoseconds kPatience = std::chrono::seconds(10);
  const Status drained = device.synchronize(stream, static_cast<std::uint64_t>(kPatience.count()));
  if (!drained.ok()) return drained;
  return {StatusCode::kAborted, fmt::format("rank {} left before its first call, as --fault kill asks", rank)};
}

Result<bool> true_on_all(Bootstrap& bootstrap, bool mine) {
  constexpr std::chrono::minutes kPatience{10};
  const auto everybody = bootstrap.allgather({static_cast<std::byte>(mine)}, kPatience);
  if (!everybody.ok()) return everybody.status();
  return std::all_of(everybody->begin(), everybody->end(),
                     [](const auto& ok) { return ok == std::vector{std::byte{1}}; });
}

BenchOutcome Case::bench(std::shared_ptr<Bootstrap>, const RunOptions&, const BenchOptions&) {
  BenchOutcome outcome;
  outcome.check.status = unavailable(describe() + ": there is no bench of this operator");
  outcome.check.detail = outcome.check.status.message();
  return outcome;
}

const std::vector<OperatorInfo>& registered_ops() { return mutable_ops(); }

void register_operator(OperatorInfo info) {
  auto& ops = mutable_ops();
  const auto place =
      std::find_if(ops.begin(), ops.end(), [&](const OperatorInfo& other) { return other.name > info.name; });
  ops.insert(place, std::move(info));
}

const OperatorInfo* find_operator(std::string_view name) {
  for (const OperatorInfo& op : registered_ops()) {
    if (op.name == name) return &op;
  }
  return nullptr;
}

}  // namespace farwarp::harness
