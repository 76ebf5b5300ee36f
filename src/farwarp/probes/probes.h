// Probes measure what a machine can do at most. README.md says what each one measures and how.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "farwarp/machine/ceilings.h"
#include "farwarp/probes/args.h"
#include "farwarp/world/host/device_barrier.h"
#include "farwarp/world/host/world.h"

namespace farwarp::probes {

struct Sizes {
  std::size_t memory_bytes = std::size_t{1} << 30;  ///< read, or copied; much larger than any cache
  std::size_t link_bytes = std::size_t{256} << 20;  ///< sent by one device, to one peer or to all of them together
  int rounds = 1000;                                ///< of flags, packets or barriers in one kernel
  int launches = 1000;                              ///< of the empty kernel
  int matrix_rounds = 400;                          ///< of 64 K elements in one kernel: about 0.2 ms on an H200
  std::chrono::milliseconds matrix_warm_up{1500};   ///< until power has settled
  int repetitions = 20;                             ///< a figure is their median
  int max_blocks = 0;                               ///< of a kernel that moves memory; 0: as many as are resident

  int weight_layers = 36;   ///< of Qwen3-8B, 386 MB each
  int attention_loads = 2;  ///< of a layer, one after the other

  /// For the emulator, where figures mean nothing and each word takes much time.
  static Sizes tiny() { return {4 * kTileBytes, 14 * kTileBytes, 6, 4, 2, {}, 2, 3, 8, 2}; }
};

/// The WorldOptions::heap_bytes that probes of these sizes need.
std::size_t heap_bytes(const Sizes& sizes, int ranks);

/// Every probe is collective, checks what arrived, and returns the same on all ranks: GB/s, TFLOP/s or microseconds of
/// the slowest rank that took part. 0 if the machine lacks what is measured (peers, bulk copies).
class Probes {
 public:
  /// Collective. The World must outlive it.
  static Result<std::unique_ptr<Probes>> create(World& world, const Sizes& sizes);
  ~Probes();
  Probes(const Probes&) = delete;
  Probes& operator=(const Probes&) = delete;
  /// Collective: gives the World back what create() took from it.
  Status close();

  Result<double> memory_read();
  Result<double> memory_copy();
  Result<double> link_pair_store() { return link_pair_send(kernels_.store, Kind::kPairStore); }
  Result<double> link_pair_load();
  Result<double> link_pair_bulk() { return link_pair_send(kernels_.bulk, Kind::kPairBulk); }
  Result<double> link_all_store() { return link_all_send(kernels_.store, Kind::kAllStore); }
  Result<double> link_all_bulk() { return link_all_send(kernels_.bulk, Kind::kAllBulk); }
  Result<double> packet() { return one_way(kernels_.packet); }
  Result<double> flag() { return one_way(kernels_.flag); }
  Result<double> barrier();
  Result<double> launch();
  Result<double> graph_launch();
  /// GB/s at which the layers of a decoder are read. With edges, no block uses a matrix before all blocks have ended
  /// the one before, and an attention lies between two of a layer's matrices.
  Result<double> weights_alone() { return weights_rate(false); }
  Result<double> weights_with_edges() { return weights_rate(true); }
  /// TFLOP/s in bf16. Short: of kernels with pauses between them. Sustained: of kernels ten times longer, after
  /// matrix_warm_up of work.
  Result<double> matrix_short() { return matrix_rate(sizes_.matrix_rounds, {}); }
  Result<double> matrix_sustained() { return matrix_rate(10 * sizes_.matrix_rounds, sizes_.matrix_warm_up); }

  /// For tests: where memory_copy() copies to, and what peers store to.
  const void* copied() const { return memory_[1]; }
  const SymmetricBuffer& received() const { return link_; }

 private:
  enum class Kind { kFill, kPairStore, kPairBulk, kAllStore, kAllBulk };
  struct Kernels {
    Kernel read, copy, load, store, bulk, check, flag, packet, barrier, matrix, weights, empty;
  };
  using Work = std::function<Status()>;
  using Sample = std::function<Result<double>()>;

  Probes(World& world, const Sizes& sizes) : world_(world), device_(world.device()), sizes_(sizes) {}
  Status open_local();
  Status open_shared();

  Result<double> agree(const Result<double>& mine);
  Status all_ok(const Status& mine) { return agree(mine.ok() ? Result<double>(0.0) : Result<double>(mine)).status(); }
  Result<double> median(const Sample& sample);
  Result<double> timed(const Work& work);
  Status finish();
  Status launch_stream(const Kernel& kernel, const StreamArgs& args, int* warps = nullptr);
  Result<std::uint64_t> sum_of_warps(int warps);

  Result<double> rate(std::size_t bytes, bool takes_part, const Work& work, const std::function<Status()>& check);
  Status fill(void* memory, int tiles, std::uint64_t seed);
  Status check_words(const void* memory, int tiles, std::uint64_t seed, int tile_stride);
  Status check_sum(int warps, int tiles, std::uint64_t seed);
  Result<double> link_pair_send(const Kernel& kernel, Kind kind);
  Result<double> link_all_send(const Kernel& kernel, Kind kind);
  bool has(const Kernel& kernel) const;

  Result<std::uint64_t> counted_nanoseconds(const Kernel& kernel, const std::function<std::uint64_t(int)>& expected);
  Result<double> one_way(const Kernel& kernel);
  Result<double> per_launch(const Work& launch_once);

  Result<double> matrix_rate(int rounds, std::chrono::milliseconds warm_up);

  Result<double> weights_rate(bool edges);
  WeightsArgs weights_args(int blocks, bool edges) const;
  Status check_weights(const WeightsArgs& args, int blocks);

  std::byte* link_memory(int rank) const;

  World& world_;
  Device& device_;
  Sizes sizes_;
  Kernels kernels_;
  Stream stream_;
  std::uint64_t hold_ns_ = 1'000'000;  ///< of the stream, while the host enqueues a sample
  bool has_stream_ = false;
  std::unique_ptr<Event> start_, end_;
  void* memory_[2] = {};          // of memory_bytes each
  std::uint64_t* out_ = nullptr;  // what kernels report
  std::unique_ptr<DeviceBarrier> together_;
  int slot_ = -1;
  SymmetricBuffer link_, packets_, flags_, barriers_, ended_;
};

/// Collective: all probes.
Result<Ceilings> measure(World& world, const Sizes& sizes);

}  // namespace farwarp::probes
