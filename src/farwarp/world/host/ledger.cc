#include "farwarp/world/host/ledger.h"

#include <fmt/format.h>

#include <atomic>

namespace farwarp {
namespace {

std::string in_words(std::chrono::nanoseconds time) {
  const double ns = static_cast<double>(time.count());
  if (ns >= 1e9) return fmt::format("{:.1f} s", ns * 1e-9);
  if (ns >= 1e6) return fmt::format("{:.1f} ms", ns * 1e-6);
  return fmt::format("{:.1f} us", ns * 1e-3);
}

}  // namespace

std::string WaitRecord::to_string() const {
  const bool waited_in_vain = kind == StatusCode::kDeadline;
  std::string text = fmt::format("rank {}", rank);
  if (waited_in_vain) text += fmt::format(" waited {}", in_words(waited));
  text += fmt::format(" in {} at '{}'", operator_name, site);
  if (peer >= 0) text += fmt::format(" {} rank {}", waited_in_vain ? "for" : "from", peer);
  text += ": " + finding();
  return epoch == 0 ? text : text + fmt::format(" (epoch {})", epoch);  // no call has epoch 0
}

std::string WaitRecord::finding() const {
  const auto found = static_cast<std::int64_t>(seen);
  switch (kind) {
    case StatusCode::kDeadline:
      if (seen == kNothingSeen) return "nothing arrived";
      break;
    case StatusCode::kBadInput:
      if (expected == kNothingSeen)
        return fmt::format("column {} has no numbers at position {}", seen >> 32, seen & 0xffffffffu);
      return found <= static_cast<std::int64_t>(expected)
                 ? fmt::format("found {}, which is too small", found)
                 : fmt::format("found {}, allowed is at most {}", found, expected);
    case StatusCode::kCapacity: return fmt::format("there is room for {}, needed are {}", expected, seen);
    case StatusCode::kMisuse:
      if (expected == seen) return "another kernel of the operator still runs";
      return fmt::format("this is part {} of a call, and part {} is next", expected + 1, seen + 1);
    default: break;
  }
  return fmt::format("expected {}, saw {}", expected, seen);
}

Result<std::unique_ptr<HostLedger>> HostLedger::create(std::shared_ptr<Device> device) {
  void* device_address = nullptr;
  auto host = device->allocate_host(sizeof(Ledger), &device_address);
  if (!host.ok()) return host.status();
  return std::unique_ptr<HostLedger>(
      new HostLedger(std::move(device), static_cast<Ledger*>(*host), static_cast<Ledger*>(device_address)));
}

HostLedger::~HostLedger() { device_->release_host(ledger_); }

bool HostLedger::clean() const {
  return std::atomic_ref(ledger_->count.word).load(std::memory_order_relaxed) == 0 &&
         std::atomic_ref(ledger_->aborted_by.word).load(std::memory_order_relaxed) == 0;
}

std::vector<WaitRecord> HostLedger::records(const NameLookup& names) const {
  std::vector<WaitRecord> complete;
  for (LedgerRecord& record : ledger_->records) {
    if (std::atomic_ref(record.complete).load(std::memory_order_acquire) == 0) continue;
    Names words = names(record.operator_, record.site);
    complete.push_back({static_cast<StatusCode>(record.kind), static_cast<int>(record.rank),
                        std::move(words.operator_name), std::move(words.site), record.peer, record.epoch,
                        record.expected, record.seen, std::chrono::nanoseconds(record.waited_ns)});
  }
  return complete;
}

Status HostLedger::first_failure(const NameLookup& names) const {
  if (clean()) return {};
  if (const std::vector<WaitRecord> complete = records(names); !complete.empty())
    return {complete.front().kind, complete.front().to_string()};
  const std::uint32_t aborted_by = std::atomic_ref(ledger_->aborted_by.word).load(std::memory_order_relaxed);
  if (aborted_by != 0)
    return {
        StatusCode::kAborted,
        fmt::format("rank {} raised the abort; its ledger says why, unless its host called abort()", aborted_by - 1)};
  return {StatusCode::kAborted, "a kernel of this rank gave up; its record is not complete yet"};
}

void HostLedger::note_abort(int rank) {
  std::atomic_ref(ledger_->aborted_by.word).store(static_cast<std::uint32_t>(rank) + 1, std::memory_order_relaxed);
}

void HostLedger::clear() {
  for (LedgerRecord& record : ledger_->records) std::atomic_ref(record.complete).store(0, std::memory_order_relaxed);
  std::atomic_ref(ledger_->aborted_by.word).store(0, std::memory_order_relaxed);
  std::atomic_ref(ledger_->count.word).store(0, std::memory_order_release);
}

}  // namespace farwarp
