// The task graph of one token: data that the host builds, checks and prints, and plans for the workers.
//
// A step is one operation. Its tiles, or where it has none its units, are shared by all workers: a worker's share
// is a task. Tasks wait for each other by packets, each with the tag of its token and layer; plain buffers are ordered
// by the dispatcher (stream_dispatcher.dev.h, gang.dev.h).
#pragma once

#include <string>
#include <vector>

#include "farwarp/base/status.h"
#include "farwarp/fleet/layout.h"

namespace farwarp::fleet {

enum class Storage : std::uint8_t {
  kPackets,      ///< in the heap: a reader waits for each packet's tag. For vectors that do not stream (layout.h)
  kRankPackets,  ///< the same with every dispatcher, as peers may write them
  /// in the rank's device memory: the dispatcher orders its uses. For vectors that stream, and, with gang, in
  /// place of kPackets
  kPlain,
  kOwn,    ///< in the rank's device memory: a worker reads what it has written itself
  kCopies  ///< each worker has all of it
};
constexpr bool is_packets(Storage storage) { return storage <= Storage::kRankPackets; }

/// What steps write and read; each element is written by one task.
struct Buffer {
  std::string name;
  Storage storage = Storage::kPackets;
  std::int64_t fours = 0;   ///< places (layout.h); of own memory and copies none: they lie elsewhere
  std::int64_t offset = 0;  ///< in bytes, among the packets of the graph or among its plain buffers
};

struct Step {
  struct Read {
    int buffer;
    bool whole;  ///< each task reads all of it; else a part, and all tasks together read all of it
  };
  std::string name;
  std::int32_t kind = 0, layer = 0;
  MatrixShape matrix{};      ///< its tiles are shared; no tiles: see `units`. Without slices there are no weights
  std::int64_t weights = 0;  ///< of the matrix
  Epilogue epilogue = Epilogue::kNone;
  std::int64_t out_norm = 0;  ///< see Task
  int in_norm_rows = 0;       ///< see Task
  int units = 0;              ///< of a step without tiles: what is shared
  std::vector<Read> reads;    ///< the first is Task::in; a task is not told where others lie
  std::vector<int> writes;    ///< the first is Task::out; likewise
  int rank_sums = -1;         ///< kHidden with weights: the buffer of all ranks' partial sums; -1: sums are whole
};

struct Graph {
  std::vector<Buffer> buffers;
  std::vector<Step>
      steps;  ///< in the order in which each worker does its tasks; after the last follows the first, of the next token
  std::vector<int> first_inputs;                   ///< buffers that the token before has written
  std::int64_t packet_bytes = 0, plain_bytes = 0;  ///< of all buffers

  /// Gives it a place. Returns its number.
  int add_buffer(std::string name, Storage storage, std::int64_t fours = 0);
  /// The same graph for the gang dispatcher: packets that no peer writes are plain.
  Graph with_plain_buffers() const;
  /// Tags differ between a token's layers: this many for each token.
  int tags_of_token() const;
  /// Names what is wrong: a step that reads what no earlier step writes (each worker would wait for itself or for a
  /// later step); a buffer of packets or a plain one that no step reads, or that a step writes again while an earlier
  /// version may still be read, also on another rank; own memory that two steps share in different ways, so that a
  /// worker would read what another one has written; a vector that is read under two tags, or under one that its writer
  /// does not store; sums of ranks that are not added to the hidden vector. It does not know whether buffers are large
  /// enough.
  Status check() const;
  /// Names what kernels for so many columns cannot run: Storage of vectors, groups and passes that these columns do not
  /// have; a last step with weights, or one that writes anything but copies, because `graph` launches the first
  /// worker's share of it only. Runtime::create() calls it.
  Status check_launch(int columns, bool bulk_copy) const;
  /// A line for each step: its tasks, what its matrix weighs, what it reads and writes.
  std::string to_string(int workers) const;
  /// For Graphviz. Dashed: a task reads a part of the buffer.
  std::string to_dot(int workers) const;
};

/// Each worker's tasks: `count` for each worker, one of each step, in the order of the steps.
struct TaskLists {
  std::vector<Task> tasks;  ///< worker 0's, worker 1's, ...
  int count = 0;
};

/// Whether each worker has room for the sums of its tiles of a matrix of several passes and no groups: kMaxPassTiles.
bool keeps_sums(const MatrixShape& matrix, int workers);

/// Tiles are shared by share_of(); units are dealt out in turn. `packets_at`: where the graph's packets begin in the
/// heap. An error unless keeps_sums() is true of each step's matrix.
Result<TaskLists> plan_static(const Graph& graph, int workers, std::int64_t packets_at = 0);

}  // namespace farwarp::fleet
