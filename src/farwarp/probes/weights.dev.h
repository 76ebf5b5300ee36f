// A stream of weights as a decoder reads them. Every block copies its part of each matrix into a ring of stages, and no
// block uses a matrix before all blocks have ended the one before. The copies of the next matrix run ahead meanwhile.
#pragma once

#include "farwarp/probes/args.h"
#include "farwarp/tile/ring.dev.h"
#include "farwarp/world/device/wait.dev.h"

namespace farwarp::FARWARP_TARGET::probes {

using namespace farwarp::probes;

using WeightPosition = tile::RingPosition<kWeightStages>;

FARWARP_DEVICE tile::Ring<kWeightStages> weight_ring() {
  return tile::Ring<kWeightStages>(block_shared() + kWeightStages * kWeightCopyBytes);
}
FARWARP_DEVICE Shared<std::byte> weight_stage(int stage) { return block_shared() + stage * kWeightCopyBytes; }

/// Where the block's copy number `copy` of a matrix begins: neighbouring blocks read neighbouring memory.
FARWARP_DEVICE std::int64_t copy_at(const WeightsArgs& args, int layer, int matrix, int copy) {
  return layer % args.kept_layers * args.layer_bytes + args.matrices[matrix].begin +
         (std::int64_t{copy} * num_blocks() + block_index()) * args.matrices[matrix].copy_bytes;
}

/// [thread] Issues all copies. At most kWeightsInFlight copies are in flight: with more, some multiprocessors get more
/// of the memory's rate than others.
FARWARP_DEVICE void load_weights(const WeightsArgs& args, BlockWaits& waits) {
  const auto ring = weight_ring();
  WeightPosition next, landed;
  int in_flight = 0;
  for (int layer = 0; layer < args.layers; ++layer) {
    for (int matrix = 0; matrix < kLayerMatrices; ++matrix) {
      for (int copy = 0; copy < args.matrices[matrix].copies; ++copy, next.advance()) {
        wait_mbarrier(waits, args.view, ring.empty(next.stage), next.parity ^ 1);
        if (in_flight == kWeightsInFlight) {
          wait_mbarrier(waits, args.view, ring.full(landed.stage), landed.parity);
          landed.advance();
        } else {
          ++in_flight;
        }
        if (waits.expired) return;
        mbarrier_arrive_expect(ring.full(next.stage), args.matrices[matrix].copy_bytes);
        bulk_load(weight_stage(next.stage), Global<const std::byte>(args.weights) + copy_at(args, layer, matrix, copy),
                  args.matrices[matrix].copy_bytes, ring.full(next.stage));
      }
    }
  }
}

/// [thread] Loads one after the other, each of an address that the one before has given: the time of an attention over
/// few keys (in memory of real size, other words in each layer). Returns the sum of the words.
FARWARP_DEVICE std::uint64_t follow_words(const WeightsArgs& args, int layer) {
  std::uint64_t sum = 0, place = first_word(args, layer, block_index());
  for (int i = 0; i < args.attention_loads; ++i) {
    const std::uint64_t word = load(Global<const std::uint64_t>(reinterpret_cast<const std::uint64_t*>(args.weights)) +
                                    static_cast<std::int64_t>(place));
    sum += word;
    place = next_word(args, word);
  }
  return sum;
}

/// [kWeightThreads threads] Waits until every block has ended the matrix before number `number`: thread t for packets
/// t, t + kWeightThreads, ... of all blocks. Returns the sum of their data. If a block is missing, the ledger does not
/// say which: all threads wait to the same deadline.
FARWARP_DEVICE std::uint64_t wait_for_blocks(Call& call, const WeightsArgs& args, int number) {
  constexpr int kPackets = kWeightBlocks * kBlockPackets / kWeightThreads;  // of a thread, at most
  const int packets = num_blocks() * kBlockPackets;
  Global<Packet> ended[kPackets];
  std::uint64_t data[kPackets] = {};
  std::uint32_t wanted = 0;
#pragma unroll
  for (int i = 0; i < kPackets; ++i) {
    const int packet = thread_index() + i * kWeightThreads;
    ended[i] = own_address<Packet>(args.view, args.ended) + (number * packets + packet);
    if (packet < packets) wanted |= 1u << i;
  }
  wait_packets<1>(call, ended, wanted, data, Wait{.site = kSiteWeights, .peer = args.view.rank});
  std::uint64_t sum = 0;
#pragma unroll
  for (int i = 0; i < kPackets; ++i) sum += data[i];
  return sum;
}

/// [kWeightThreads threads] Says that the block has ended the matrix before number `number`.
FARWARP_DEVICE void send_ended(const Call& call, const WeightsArgs& args, int number) {
  if (thread_index() >= kBlockPackets) return;
  const int packet = block_index() * kBlockPackets + thread_index();
  store_packet(
      peer_address<Packet>(args.view, args.view.rank, args.ended) + (number * num_blocks() * kBlockPackets + packet),
      ended_data(number, packet), call.epoch);
}

/// [kWeightThreads threads] Uses all copies in order: each thread adds one word of each to a sum.
FARWARP_DEVICE std::uint64_t use_weights(Call& call, const WeightsArgs& args, BlockWaits& waits) {
  std::uint64_t sum = 0;
  const auto ring = weight_ring();
  WeightPosition next;
  for (int layer = 0; layer < args.layers; ++layer) {
    for (int matrix = 0; matrix < kLayerMatrices; ++matrix) {
      const int number = layer * kLayerMatrices + matrix;
      if (args.edges != 0 && number > 0) sum += wait_for_blocks(call, args, number);
      if (args.edges != 0 && matrix == kAttention && thread_index() == 0) sum += follow_words(args, layer);
      for (int copy = 0; copy < args.matrices[matrix].copies; ++copy, next.advance()) {
        wait_mbarrier(waits, args.view, ring.full(next.stage), next.parity);
        const Shared<std::uint64_t> words(reinterpret_cast<std::uint64_t*>(weight_stage(next.stage).raw));
        if (thread_index() * 8 < args.matrices[matrix].copy_bytes) sum += load(words + thread_index());
        warp_sync();
        if (lane_index() == 0) mbarrier_arrive(ring.empty(next.stage));
      }
      if (args.edges == 0 || number + 1 == args.layers * kLayerMatrices) continue;
      group_sync(1, kWeightThreads);
      send_ended(call, args, number + 1);
    }
  }
  return sum;
}

/// [block] out[block * kWeightThreads + thread]: what the thread has summed.
FARWARP_DEVICE void stream_weights(const WeightsArgs& args) {
  if constexpr (Target::kHasBulkCopy) {
    if (thread_index() == 0) weight_ring().initialise(kWeightThreads / Target::kWarpSize);
    Call call = begin_call(args.view, args.slot, 0);
    if (!call.live) return;
    block_sync();
    BlockWaits waits;
    if (thread_index() < kWeightThreads) {
      const std::uint64_t sum = use_weights(call, args, waits);
      store(Global<std::uint64_t>(args.out) + (block_index() * kWeightThreads + thread_index()), sum);
    } else if (thread_index() == kWeightThreads) {
      load_weights(args, waits);
    }
    report_expired(waits, args.view, args.slot, kSiteWeights);
    end_call(call, 0);
  }
}

}  // namespace farwarp::FARWARP_TARGET::probes
