// What a kernel that runs a graph is given, whatever the model is.
#pragma once

#include <cstdint>

#include "farwarp/fleet/gang.h"
#include "farwarp/fleet/layout.h"
#include "farwarp/world/view.h"

namespace farwarp::fleet {

/// The counter by which the steps of streamed vectors follow each other (stream_dispatcher.dev.h). In device memory,
/// zeros before the first launch.
struct StepCells {
  /// Workers that have ended a step: one for each worker and step of a launch of all steps. Only grows, modulo 2^32.
  alignas(128) std::uint32_t ended;
  /// Plain: `ended` when this launch began. The first worker stores it at a launch's end.
  alignas(128) std::uint32_t ended_before;
};

struct Launch {
  WorldView view;
  std::uint32_t slot;                 ///< of the operator in its World
  std::int32_t workers;               ///< of all launches but that of the last step alone, which has one
  const Task* tasks;                  ///< [all workers][steps]
  std::int32_t steps;                 ///< of a token
  std::int32_t first_task, end_task;  ///< of each worker's list: all of them for whole tokens, or one step of one token
  std::int32_t tokens;
  std::int32_t tags_of_token;  ///< Graph::tags_of_token()
  std::int32_t ends_token;  ///< 1: end_task is a token's last, so the first worker stores the tag and the model's state
  std::uint32_t* next_tag;  ///< the tag of the next token's first layer
  const std::byte* weights;
  std::byte* plain;         ///< memory of plain buffers; null where there are none
  std::uint64_t* residual;  ///< fours [rows / 4][columns] of the hidden vector; each tile is its worker's alone
  float epsilon;            ///< of RMSNorm
  StepCells* step_cells;    ///< of streamed vectors
  GangCells* gang;          ///< of the gang dispatcher
};

}  // namespace farwarp::fleet
