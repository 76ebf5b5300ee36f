// A warp's ring of slots in shared memory, through which one thread copies pieces of rows with bulk copies: from this
// device's memory into a slot, and from the slot to peers or to this device. Unlike RowPut (put_row.dev.h) it waits for
// no row: later pieces are loaded while earlier ones are stored, and a slot is free again when it has been read, long
// before its bytes have arrived.
#pragma once

#include "farwarp/world/device/wait.dev.h"

namespace farwarp::FARWARP_TARGET {

/// What is copied at a time: `bytes` bytes from byte `begin` of a row on. `row`, `to` and `segment` are for the ring's
/// user.
struct Piece {
  std::int32_t row = 0;
  std::uint32_t to = 0;  ///< bit r: to rank r
  std::int32_t segment = 0;
  std::int32_t begin = 0, bytes = 0;  ///< multiples of 16; bytes 0: no piece
  bool announced = false;             ///< whether it is to be announced, when it and all earlier pieces have arrived
};

/// `ahead`: pieces that are being loaded when an older one is stored, less than `slots`. `arriving`: pieces that are
/// stored before the ring asks whether an older one has arrived.
///
///   push(n):  store piece n - ahead once it is loaded; wait until piece n - slots has been read from its slot; load
///             piece n into that slot; if piece n - ahead - arriving is to be announced, wait until it has arrived, and
///             announce it
///
/// The waits count groups of bulk stores: between its first push() and finish() the thread commits no other.
template <int slots, int ahead, int arriving>
class CopyRing {
  static_assert(ahead > 0 && ahead < slots && arriving > 0);

 public:
  /// [warp] `memory`: `slots` slots of `slot_bytes`, and `barriers` as many, not initialised, of this warp. Only the
  /// warp's first lane uses the ring, so the constructor needs no warp_sync() after it.
  FARWARP_DEVICE CopyRing(Shared<std::byte> memory, int slot_bytes, Shared<Mbarrier> barriers)
      : memory_(memory), slot_bytes_(slot_bytes), barriers_(barriers) {
    if (lane_index() != 0) return;
    for (int slot = 0; slot < slots; ++slot) mbarrier_init(barriers + slot, 1);
    mbarrier_init_fence();
  }

  /// [thread] Begins to copy a piece from `from`. `store(piece, slot)` issues the bulk stores of an earlier piece out
  /// of its slot. `announce(piece)` is called when a piece to be announced and all before it have arrived; a release in
  /// it covers them. Does nothing once a load has not come within the deadline; call.live is false then.
  template <class Store, class Announce>
  FARWARP_DEVICE void push(Call& call, Global<const std::byte> from, const Piece& piece, std::uint32_t site,
                           const Store& store, const Announce& announce) {
    const bool stored = store_oldest(call, site, store);
    if (broken_) return;
    bulk_wait_read<slots - ahead>();
    mbarrier_arrive_expect(barriers_ + next_, piece.bytes);
    bulk_load(memory_ + next_ * slot_bytes_, from, piece.bytes, barriers_ + next_);
    next_ = next_ + 1 == slots ? 0 : next_ + 1;
    loading_[ahead - 1] = piece;
    if (stored) announce_oldest(announce);
  }

  /// [thread] Completes all copies that were begun. Without it no kernel may end after a push().
  template <class Store, class Announce>
  FARWARP_DEVICE void finish(Call& call, std::uint32_t site, const Store& store, const Announce& announce) {
#pragma unroll 1
    for (int i = 0; i < ahead; ++i) {
      if (store_oldest(call, site, store)) announce_oldest(announce);
    }
    bulk_wait_all();
#pragma unroll
    for (int i = 0; i < arriving; ++i) {
      if (stored_[i].announced) announce(stored_[i]);
      stored_[i] = Piece{};
    }
  }

 private:
  /// [thread] Stores the oldest piece that is being loaded, and makes room after the others. False if there is none.
  template <class Store>
  FARWARP_DEVICE bool store_oldest(Call& call, std::uint32_t site, const Store& store) {
    const Piece piece = loading_[0];
#pragma unroll
    for (int i = 0; i + 1 < ahead; ++i) loading_[i] = loading_[i + 1];
    loading_[ahead - 1] = Piece{};
    if (piece.bytes == 0 || broken_) return false;
    if (!wait_mbarrier(call, barriers_ + oldest_, parity_, site)) {
      broken_ = true;
      return false;
    }
    store(piece, memory_ + oldest_ * slot_bytes_);
    bulk_commit();
    if (++oldest_ == slots) {
      oldest_ = 0;
      parity_ ^= 1;
    }
    oldest_stored_ = stored_[0];
#pragma unroll
    for (int i = 0; i + 1 < arriving; ++i) stored_[i] = stored_[i + 1];
    stored_[arriving - 1] = piece;
    return true;
  }

  /// [thread] Announces the piece that `arriving` stored ones follow, if it is to be announced.
  template <class Announce>
  FARWARP_DEVICE void announce_oldest(const Announce& announce) {
    if (!oldest_stored_.announced) return;
    bulk_wait_all<arriving>();
    announce(oldest_stored_);
  }

  Shared<std::byte> memory_;
  int slot_bytes_;
  Shared<Mbarrier> barriers_;
  int next_ = 0, oldest_ = 0;  // slots: of the next piece to be loaded, and of the oldest one that is not stored yet
  std::uint32_t parity_ = 0;   // of `oldest_`
  bool broken_ = false;
  Piece loading_[ahead] = {};    // oldest first
  Piece stored_[arriving] = {};  // oldest first
  Piece oldest_stored_ = {};     // older than all of these
};

}  // namespace farwarp::FARWARP_TARGET
