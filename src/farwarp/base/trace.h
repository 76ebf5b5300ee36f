// What kernels record of themselves: a record for each piece of work of a warp. Device code writes them by the
// functions of substrate/trace.h; Device::start_trace() and take_trace() (runtime/device.h) hand them out.
#pragma once

#include <cstdint>

namespace farwarp {

/// What a warp does between the two stamps of a record.
enum class TraceWork : std::uint8_t {
  kWait,      ///< waits for a cell, packets, words or an mbarrier
  kPut,       ///< an instant: stores a cell at a peer, which a wait there awaits
  kLoad,      ///< loads a tile into shared memory
  kMultiply,  ///< the main loop of a tile
  kStore,     ///< the epilogue of a tile
  kSend,      ///< copies a row or a piece of rows to peers
  kReceive,   ///< takes a row that a peer has sent
  kReduce,    ///< adds parts, of ranks or of splits
  kAttend,    ///< the keys of a tile of queries
  kTask,      ///< a task of a decoder
};

constexpr const char* name_of(TraceWork work) {
  constexpr const char* kNames[] = {"wait", "put",     "load",   "multiply", "store",
                                    "send", "receive", "reduce", "attend",   "task"};
  return kNames[static_cast<int>(work)];
}

/// As a kernel writes it. Times are of cycles(), the clock of one multiprocessor; on the emulator, steps of the
/// schedule.
struct TraceRecord {
  std::uint64_t begin = 0;  ///< 0: not written
  /// kPut, and the kWait of such a cell: its address; another kWait: 0; a decoder's step: its number in the graph; else
  /// the number of the tile or row.
  std::uint64_t where = 0;
  std::uint32_t length = 0;  ///< 0: an instant
  std::uint32_t tag = 0;     ///< kWait and kPut: what is awaited or stored in the upper half of the cell
  std::uint16_t site = 0;    ///< kWait: as in the ledger
  std::uint8_t slot = 0xff;  ///< of the operator; 0xff: unknown, `site` and the steps' numbers have no meaning
  TraceWork work = TraceWork::kWait;
  std::int8_t peer = -1;  ///< kWait: who is waited for; -1: nobody, or unknown
  std::uint8_t lane = 0;
  std::uint16_t unused = 0;
};
static_assert(sizeof(TraceRecord) == 32);

/// Of a block: both clocks at the first instruction of one of its warps and at the last of its thread 0, which relate
/// the clocks.
struct TraceBlock {
  std::uint64_t begin_ns, begin_cycles;
  std::uint64_t end_ns, end_cycles;
  std::uint64_t multiprocessor;
  std::uint64_t unused;
};

/// Where a launch on a GPU writes. `records` has `per_warp` records for each warp of each block; later ones are counted
/// in `dropped`, a number for each warp. Null pointers: nothing is recorded.
struct TraceBuffer {
  TraceBlock* blocks;
  TraceRecord* records;
  std::uint32_t* dropped;
  std::uint32_t per_warp;
  std::uint32_t unused;
};

}  // namespace farwarp
