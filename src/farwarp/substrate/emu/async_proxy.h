// What the vocabulary of sm90's async proxy shares: mbarrier.cc and bulk_copy.cc.
#pragma once

#include <cstddef>

#include "farwarp/substrate/emu/entities.h"

namespace farwarp::emu {

/// The running thread, after a step. A fault if the personality has no async proxy.
Thread& enter_async_proxy(const char* function);
/// A fault unless the block's shared memory has these bytes.
void check_in_shared(Thread& thread, const void* address, std::size_t bytes, const char* what);

/// Null if there is none at this address.
Mbarrier* find_mbarrier(Block& block, const void* address);
/// A fault if the thread may not use it.
Mbarrier& checked_mbarrier(Thread& thread, const void* address);
/// Completes the phase if all threads and all bytes have arrived.
void maybe_complete(Mbarrier& barrier, Uid by);

}  // namespace farwarp::emu
