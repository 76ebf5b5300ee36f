// The task graph of one token: data that the host builds, checks and prints, and plans for the workers.
//
// A step is one operation; its tasks are its tiles or units, shared by all workers. Tasks of different steps wait for each other only through
// buffers: what a task writes carries the tag of its token and layer, and a task that reads waits until all it reads has its tag.
#pragma once

#include <string>
#include <vector>

#include "farwarp/base/status.h"
#include "farwarp/fleet/layout.h"

namespace farwarp::fleet {

/// Packets that steps write and read; each element is written by one task.
struct Buffer {
  std::string name;
  std::int64_t bytes = 0;   ///< of the packets
  std::int64_t offset = 0;  ///< in the heap
};

struct Step {
  struct Read {
    int buffer;
    bool whole;  ///< each task reads all of it; else a part, and all tasks together read all of it
  };
  std::string name;
  std::int32_t kind = 0, layer = 0;
  MatrixShape matrix{};      ///< its tiles are the tasks; no tiles: see `units`
  std::int64_t weights = 0;  ///< of the matrix
  std::int64_t norm = 0;     ///< see Task
  int units = 0;             ///< tasks of a step without a matrix, for printing
  std::vector<Read> reads;   ///< the first is Task::in
  std::vector<int> writes;   ///< the first is Task::out
  int rank_sums = -1;        ///< the buffer of all ranks' partial sums; -1: sums are whole
};

struct Graph {
  std::vector<Buffer> buffers;
  std::vector<Step>
      steps;  ///< in the order in which each worker does its tasks; after the last follows the first, of the next token

  /// Names what is wrong: a step that reads what no earlier step writes (each worker would wait for itself or for a later step), a buffer that no
  /// step reads, or a buffer that a step writes again while an earlier version may still be read, also on another rank. `first_inputs`: buffers
  /// that the token before has written.
  Status check(const std::vector<int>& first_inputs) const;
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

/// Whether each worker has room for the sums of its tiles of a matrix of several passes and no groups: kMostPassTiles.
bool keeps_sums(const MatrixShape& matrix, int workers);

/// Tiles are shared by share_of(). An error unless keeps_sums() is true of each step's matrix.
Result<TaskLists> plan_static(const Graph& graph, int workers);

}  // namespace farwarp::fleet
