// The rate at which a decoder's weights can be read, with and without edges between its matrices.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "farwarp/probes/probes.h"

namespace farwarp::probes {
namespace {

// Of a layer of Qwen3-8B, in the order of their use: q, k and v; the attention; its output; gate and up; down.
constexpr std::int64_t kMatrixBytes[kLayerMatrices] = {6144 * 4096 * 2, 0, 4096 * 4096 * 2, 24576 * 4096 * 2,
                                                       4096 * 12288 * 2};
constexpr int kKeptLayers = 2;                           // far larger than any cache
constexpr std::uint64_t kSeed = std::uint64_t{1} << 56;  // no rate has it

/// What the attentions of a block sum.
std::uint64_t attention_sum(const WeightsArgs& args, int block) {
  std::uint64_t sum = 0;
  for (int layer = 0; layer < args.layers; ++layer) {
    std::uint64_t place = first_word(args, layer, block);
    for (int i = 0; i < args.attention_loads; ++i) {
      const std::uint64_t word = word_at(args.seed, place);
      sum += word;
      place = next_word(args, word);
    }
  }
  return sum;
}

}  // namespace

/// Smaller matrices of the same shares, if two layers do not fit into the memory.
WeightsArgs Probes::weights_args(int blocks, bool edges) const {
  WeightsArgs args{};
  args.view = world_.view();
  args.slot = static_cast<std::uint32_t>(slot_);
  args.weights = static_cast<const std::byte*>(memory_[0]);
  args.seed = kSeed;
  args.layers = sizes_.weight_layers;
  args.kept_layers = kKeptLayers;
  std::int64_t all = 0;
  for (const std::int64_t bytes : kMatrixBytes) all += bytes;
  const auto room = static_cast<std::int64_t>(sizes_.memory_bytes) / kKeptLayers;
  const double share = std::min(1.0, static_cast<double>(room) / static_cast<double>(all)) / blocks;
  for (int i = 0; i < kLayerMatrices; ++i) {
    const auto each = static_cast<std::int64_t>(static_cast<double>(kMatrixBytes[i]) * share);
    WeightsArgs::Matrix& matrix = args.matrices[i];
    matrix.begin = args.layer_bytes;
    matrix.copies = static_cast<std::int32_t>((each + kWeightCopyBytes - 1) / kWeightCopyBytes);
    if (matrix.copies > 0) matrix.copy_bytes = static_cast<std::int32_t>(each / matrix.copies / 128 * 128);
    args.layer_bytes += std::int64_t{matrix.copies} * matrix.copy_bytes * blocks;
  }
  args.edges = edges ? 1 : 0;
  args.attention_loads = sizes_.attention_loads;
  args.words = sizes_.memory_bytes / 8;
  args.ended = static_cast<std::int64_t>(ended_.offset);
  args.out = out_;
  return args;
}

/// Every thread has added one word of every copy of its block and, with edges, the data that it has received; thread 0
/// also the words of the attentions.
Status Probes::check_weights(const WeightsArgs& args, int blocks) {
  std::vector<std::uint64_t> sums(static_cast<std::size_t>(blocks) * kWeightThreads);
  const Status status = device_.copy_out(sums.data(), out_, sums.size() * sizeof(sums[0]), stream_);
  if (!status.ok()) return status;
  const int matrices = args.layers * kLayerMatrices;
  for (int block = 0; block < blocks; ++block) {
    for (int thread = 0; thread < kWeightThreads; ++thread) {
      std::uint64_t expected = 0;
      if (args.edges != 0) {
        for (int number = 1; number < matrices; ++number) {
          for (int packet = thread; packet < blocks * kBlockPackets; packet += kWeightThreads)
            expected += ended_data(number, packet);
        }
        if (thread == 0) expected += attention_sum(args, block);
      }
      for (int kept = 0; kept < args.kept_layers; ++kept) {
        const int times = (args.layers - kept + args.kept_layers - 1) / args.kept_layers;
        std::uint64_t of_layer = 0;
        for (const WeightsArgs::Matrix& matrix : args.matrices) {
          if (thread * 8 >= matrix.copy_bytes) continue;
          for (int copy = 0; copy < matrix.copies; ++copy) {
            const std::int64_t at =
                kept * args.layer_bytes + matrix.begin + (std::int64_t{copy} * blocks + block) * matrix.copy_bytes;
            of_layer += word_at(args.seed, static_cast<std::uint64_t>(at / 8 + thread));
          }
        }
        expected += of_layer * static_cast<std::uint64_t>(times);
      }
      const std::uint64_t found =
          sums[static_cast<std::size_t>(block) * kWeightThreads + static_cast<std::size_t>(thread)];
      if (found != expected)
        return internal_error(fmt::format("{}: thread {} of block {} has read {:#x}, expected {:#x}", device_.name(),
                                          thread, block, found, expected));
    }
  }
  return {};
}

/// GB/s of the slowest device, all at once. One block on each multiprocessor: blocks that wait for each other must run
/// at the same time.
Result<double> Probes::weights_rate(bool edges) {
  if (!device_.shape().traits.bulk_copy) return 0.0;
  int blocks = std::min(device_.shape().multiprocessors, kWeightBlocks);
  if (sizes_.max_blocks != 0) blocks = std::min(blocks, sizes_.max_blocks);
  const WeightsArgs args = weights_args(blocks, edges);
  const int tiles = static_cast<int>(sizes_.memory_bytes / kTileBytes);
  if (Status filled = all_ok(fill(memory_[0], tiles, kSeed)); !filled.ok()) return filled;
  const LaunchConfig config{blocks, kWeightThreads + 32, kWeightShared};
  const auto read = [&] { return farwarp::launch(device_, kernels_.weights, config, args, stream_); };
  const auto bytes = static_cast<std::size_t>(args.layer_bytes) * static_cast<std::size_t>(args.layers);
  return rate(bytes, true, read, [&] { return check_weights(args, blocks); });
}

}  // namespace farwarp::probes
