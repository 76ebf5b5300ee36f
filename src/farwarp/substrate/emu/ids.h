#pragma once

#include "farwarp/substrate/device.h"

namespace farwarp::FARWARP_TARGET {

FARWARP_DEVICE int thread_index() { return emu::running_ids->thread_index; }
FARWARP_DEVICE int num_threads() { return emu::running_ids->num_threads; }
FARWARP_DEVICE int block_index() { return emu::running_ids->block_index; }
FARWARP_DEVICE int num_blocks() { return emu::running_ids->num_blocks; }
FARWARP_DEVICE int warp_index() { return emu::running_ids->warp_index; }
FARWARP_DEVICE int lane_index() { return emu::running_ids->lane_index; }
FARWARP_DEVICE int multiprocessor() { return emu::running_ids->multiprocessor; }
FARWARP_DEVICE int xcc() { return emu::running_ids->xcc; }
FARWARP_DEVICE Shared<std::byte> block_shared() { return Shared<std::byte>(emu::running_ids->shared); }

}  // namespace farwarp::FARWARP_TARGET
