// Pieces of rows, what a warp works on at a time.
#pragma once

#include "farwarp/ops/moe_a2a/regions.dev.h"

namespace farwarp::FARWARP_TARGET::moe {

/// A piece of a token's row: units [first, last).
struct Segment {
  int token, number;
  int first, last;
};

/// A piece of a received row that one warp works on.
struct Row {
  int source;
  std::int32_t token;  ///< its number at the source
  int number;          ///< of the row among those that came
  int segment;
  int first, last;  ///< units
};

/// First unit of a row's segment, a multiple of `align`; of segment number `segments`, the end.
template <int align>
FARWARP_DEVICE int segment_start(const Args& args, int segment) {
  const int start = args.by_segments.quotient(args.hidden / kPer<Unit> * segment);
  return align == 1 || segment == args.segments ? start : start / align * align;
}

template <int align>
FARWARP_DEVICE Segment segment_of(const Args& args, int token, int number) {
  return {token, number, segment_start<align>(args, number), segment_start<align>(args, number + 1)};
}

}  // namespace farwarp::FARWARP_TARGET::moe
