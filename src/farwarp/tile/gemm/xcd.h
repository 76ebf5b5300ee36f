// Which XCD (die, with an L2 of its own) works on what, on AMD's Instinct MI300.
#pragma once

namespace farwarp::tile {

/// Which of `count` works the block in turn `index` (0 .. count - 1) takes, if blocks are dealt to `xcds` dies round robin: each
/// die gets consecutive works, so that its L2 serves neighbours. A permutation for every count.
constexpr int work_on_xcd(int index, int count, int xcds) {
  if (xcds <= 1) return index;
  const int die = index % xcds;
  const int share = count / xcds, larger = count % xcds;  // the first `larger` dies get one more
  return die * share + (die < larger ? die : larger) + index / xcds;
}

}  // namespace farwarp::tile
