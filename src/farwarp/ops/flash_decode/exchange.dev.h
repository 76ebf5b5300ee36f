// Partial outputs of ranks that share the keys of every sequence: sent as words, merged, and sent back.
#pragma once

#include "farwarp/ops/flash_decode/block.dev.h"
#include "farwarp/ops/flash_decode/merge.dev.h"
#include "farwarp/world/device/words.dev.h"

namespace farwarp::FARWARP_TARGET::decode {

template <int dim>
FARWARP_DEVICE void send_partial(const Args&, const Call&, int, int, int, Statistics, const FourOf&) {}

template <class Block>
FARWARP_DEVICE void collect(const Args&, const Block&, CopyWaits&, int) {}

}  // namespace farwarp::FARWARP_TARGET::decode
