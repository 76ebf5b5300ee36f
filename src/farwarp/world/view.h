// What host and device share of a World: plain data, one definition for both.
//
// A kernel takes a WorldView by value, inside its argument block: the launch brings the addresses, without a load
// (about 0.6 us on a cold H200). Captured graphs stay valid because peers' addresses never move while a World lives.
// What changes between launches (abort, deadline, epochs) is in the WorldControl at the start of each rank's heap.
#pragma once

#include <cstddef>
#include <cstdint>

#include "farwarp/base/pointers.h"

namespace farwarp {

inline constexpr int kMaxRanks = 8;
inline constexpr int kMaxOperators = 64;  ///< live operator instances of one World

/// The state of one operator instance that outlives a launch. Written by this rank's kernels, open_operator() and
/// recover().
struct OperatorCells {
  std::uint32_t epoch;  ///< of the call in flight or the next one; advanced by the call's last kernel
  std::uint32_t phase;  ///< the operator's phase that comes next (0: a new call); a kernel of another is out of order
  std::uint32_t blocks_gone;  ///< blocks of the kernel that have left the call; the last one advances phase and epoch
  std::uint32_t busy;  ///< 1 from a kernel's claim until its last block has left the call: it may work on after that
};

/// At offset 0 of every rank's heap.
struct alignas(128) WorldControl {
  SystemCell<std::uint32_t> abort;  ///< nonzero: 1 + the rank that raised it; any rank may write it
  std::uint32_t ledger_claims;      ///< records claimed by this rank's kernels; cleared by recover()
  std::uint64_t deadline_ns;  ///< budget of a launch's waits (fleet: of a token's) in nanoseconds; written by the host
  OperatorCells operators[kMaxOperators];
};

/// Why a kernel gave up.
struct LedgerRecord {
  std::uint32_t kind;       ///< a StatusCode
  std::uint32_t rank;       ///< the rank that waited
  std::uint32_t operator_;  ///< index into WorldControl::operators
  std::uint32_t site;       ///< which wait of the operator; its names are in the operator's args.h
  std::int32_t peer;        ///< the rank it waited for, or -1
  std::uint32_t block;
  std::uint32_t epoch;
  std::uint32_t complete;  ///< written last: 1 once the other fields are valid
  std::uint64_t expected;
  std::uint64_t seen;
  /// Since the kernel read its call (fleet: all tokens before included): a bound for the wait.
  std::uint64_t waited_ns;
};
inline constexpr std::uint32_t kSiteBegin = 0xffff;  ///< LedgerRecord::site of a call made out of order
/// LedgerRecord::seen of a wait for something that has no earlier value to show: words, a phase of an mbarrier.
inline constexpr std::uint64_t kNothingSeen = ~std::uint64_t{0};
inline constexpr int kLedgerRecords = 32;

/// In host memory that the device writes; the host reads it without synchronising.
struct Ledger {
  SystemCell<std::uint32_t> count;       ///< records claimed; may exceed kLedgerRecords, but only so many are kept
  SystemCell<std::uint32_t> aborted_by;  ///< 1 + rank whose abort this rank's kernels saw, or 0
  LedgerRecord records[kLedgerRecords];
};

struct WorldView {
  std::int32_t rank;
  std::int32_t size;
  std::byte* heap[kMaxRanks];  ///< every rank's heap as this rank's device addresses it; heap[rank] is its own
  Ledger* ledger;              ///< device address
};

}  // namespace farwarp
