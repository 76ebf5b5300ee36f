// Brings a tensor into the layout that tasks read.
#include "farwarp/fleet/product.dev.h"
#include "farwarp/models/qwen3/weights/pack_args.h"

namespace farwarp::FARWARP_TARGET::qwen3 {

using namespace farwarp::qwen3;

FARWARP_KERNEL(qwen3_pack, PackArgs, kPackThreads) {
  const int fours = args.columns / 4;
  const std::int64_t all = std::int64_t{args.rows} * fours;
  for (std::int64_t i = std::int64_t{block_index()} * num_threads() + thread_index(); i < all;
       i += std::int64_t{num_blocks()} * num_threads()) {
    const auto row = static_cast<int>(i / fours), column = static_cast<int>(i % fours) * 4;
    const std::int64_t element = std::int64_t{row} * args.columns + column;
    std::uint64_t four = 0;
    if (args.source != nullptr) {
      four = load<Cache::streaming>(Global<const std::uint64_t>(reinterpret_cast<const std::uint64_t*>(args.source)) +
                                    element / 4);
    } else {
      const std::int64_t in_tensor = args.first_element + std::int64_t{row} * args.pitch + column;
      for (int k = 0; k < 4; ++k)
        four |= static_cast<std::uint64_t>(round_to<Bf16>(args.random.at(in_tensor + k)).bits) << (16 * k);
    }
    int packed_row = args.first_row + row;
    if (args.paired != 0) packed_row = packed_row / 8 * 16 + packed_row % 8 + (args.paired == 2 ? 8 : 0);
    if (args.shape.tiles == 0) {
      store<Cache::streaming>(Global<std::uint64_t>(reinterpret_cast<std::uint64_t*>(args.to)) + element / 4, four);
    } else {
      const std::int64_t fragment =
          fleet::element_offset(args.shape, Target::kMatrixUnit, args.workers, packed_row / 16 * 16, column / 16 * 16);
      fleet::store_four_of(Global<std::byte>(args.to) + fragment,
                           fleet::fragment_order(Target::kMatrixUnit, args.shape), packed_row % 16, column % 16, four);
    }
  }
}

}  // namespace farwarp::FARWARP_TARGET::qwen3
