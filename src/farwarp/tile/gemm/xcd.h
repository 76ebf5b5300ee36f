// Which XCD (die, with an L2 of its own) computes which works, on AMD's Instinct MI300.
#pragma once

namespace farwarp::tile {

/// Which of `count` works index `index` (0 .. count - 1) stands for. Blocks are assigned to `xcds` dies round robin;
/// each die gets consecutive works, so that its L2 serves neighbours. A permutation for every count.
constexpr int work_on_xcd(int index, int count, int xcds) {
  if (xcds <= 1) return index;
  const int die = index % xcds;
  const int share = count / xcds, larger = count % xcds;  // the first `larger` dies get one more
  return die * share + (die < larger ? die : larger) + index / xcds;
}

}  // namespace farwarp::tile
