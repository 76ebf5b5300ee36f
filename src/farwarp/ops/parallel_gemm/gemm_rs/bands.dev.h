// A band's way to its owners, as far as both kinds of kernels go it together: permission to write, and the flags.
#pragma once

#include "farwarp/ops/parallel_gemm/gemm_rs/args.h"
#include "farwarp/world/device/entry.dev.h"

namespace farwarp::FARWARP_TARGET::gemm_rs {

using farwarp::gemm_rs::Args;
using farwarp::gemm_rs::Bands;
using farwarp::gemm_rs::OwnerRange;

using Flag = SystemCell<std::uint64_t>;

/// The flag at `owner` of this rank's band that begins at (row, column) of the whole sum.
FARWARP_DEVICE Peer<Flag> flag_at(const Args& args, int owner, int row, int column) {
  const Bands& bands = args.bands;
  return peer_address<Flag>(args.view, owner, args.at.flags) +
         bands.flag(args.view.rank, row / bands.rows - bands.first_of(owner), column / bands.columns);
}

/// [thread] Remembers which owners' memory may be written in this call.
class Permissions {
 public:
  /// Waits for the entry of each owner that has not been seen. False: the call is over.
  template <Failure failure>
  FARWARP_DEVICE bool await(Call& call, const Args& args, OwnerRange owners) {
    for (int owner = owners.first; owner <= owners.last; ++owner) {
      if (entered_ >> owner & 1) continue;
      wait_entry<failure>(call, args.at.entries, owner, farwarp::gemm_rs::kSiteEntry);
      entered_ |= 1u << owner;
    }
    return call.live;
  }

 private:
  std::uint32_t entered_ = 0;
};

}  // namespace farwarp::FARWARP_TARGET::gemm_rs
