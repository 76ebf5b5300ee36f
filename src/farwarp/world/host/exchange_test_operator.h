// For tests: an operator around the kernel of exchange_test.dev.cc.
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "farwarp/world/host/exchange_test_args.h"
#include "farwarp/world/host/world.h"

namespace farwarp {

class Exchange {
 public:
  /// Collective. `world` outlives it.
  static Result<Exchange> create(World& world, std::uint64_t configuration = 1) {
    auto slot = world.open_operator("exchange", {"number"}, configuration);
    if (!slot.ok()) return slot.status();
    auto cells = world.allocate(2 * sizeof(std::uint64_t) * world.size());
    if (!cells.ok()) return cells.status();
    auto kernel = world.device().kernel("world_test_exchange");
    if (!kernel.ok()) return kernel.status();
    auto out = world.device().allocate(sizeof(std::uint32_t) * kMaxRanks);
    if (!out.ok()) return out.status();
    auto stream = world.device().create_stream();
    if (!stream.ok()) return stream.status();
    return Exchange(world, *slot, *cells, *kernel, static_cast<std::uint32_t*>(*out), *stream);
  }
  Exchange(Exchange&& other) noexcept
      : world_(std::exchange(other.world_, nullptr)),
        slot_(other.slot_),
        cells_(other.cells_),
        kernel_(std::move(other.kernel_)),
        out_(other.out_),
        stream_(other.stream_) {}
  ~Exchange() {
    if (!world_) return;
    world_->device().release(out_);
    world_->device().destroy_stream(stream_);
  }

  /// Collective.
  Status close() {
    if (Status closed = world_->close_operator(slot_); !closed.ok()) return closed;
    return world_->free(cells_);
  }

  /// Releases nothing and waits for nothing. The caller owns the stream then; a few bytes of device memory leak.
  Stream abandon() {
    world_ = nullptr;
    return stream_;
  }

  int slot() const { return slot_; }
  Stream stream() const { return stream_; }

  Status launch(std::uint32_t number) {
    const ExchangeArgs args{world_->view(), static_cast<std::uint32_t>(slot_), number,
                            static_cast<std::int64_t>(cells_.offset), out_};
    return farwarp::launch(world_->device(), kernel_, {1, kExchangeThreads, 0}, args, stream_);
  }

  Status synchronize() { return world_->device().synchronize(stream_, 20'000'000'000); }

  /// Launches a kernel that writes to null, so it ends with a fault.
  Status launch_faulty() {
    std::uint32_t* const out = std::exchange(out_, nullptr);
    Status launched = launch(0);
    out_ = out;
    return launched;
  }

  /// Every rank sends `number` + its rank; expects the numbers of all ranks.
  void expect_works(std::uint32_t number) {
    const Status launched = launch(number + world_->rank());
    ASSERT_TRUE(launched.ok()) << launched.to_string();
    expect_arrived(number);
  }

  /// What expect_works() expects, for a launch that was made elsewhere.
  void expect_arrived(std::uint32_t number) {
    const Status done = synchronize();
    ASSERT_TRUE(done.ok()) << done.to_string();
    const Status status = world_->status();
    ASSERT_TRUE(status.ok()) << status.to_string();
    std::vector<std::uint32_t> got(world_->size());
    const Status copied = world_->device().copy_out(got.data(), out_, got.size() * sizeof(got[0]), stream_);
    ASSERT_TRUE(copied.ok()) << copied.to_string();
    for (int rank = 0; rank < world_->size(); ++rank) EXPECT_EQ(got[rank], number + rank);
  }

  /// This rank's cells, read from the device.
  OperatorCells cells() {
    OperatorCells cells{};
    const auto* control = reinterpret_cast<const WorldControl*>(world_->view().heap[world_->rank()]);
    EXPECT_TRUE(world_->device().copy_out(&cells, &control->operators[slot_], sizeof(cells), stream_).ok());
    return cells;
  }

 private:
  Exchange(World& world, int slot, SymmetricBuffer cells, Kernel kernel, std::uint32_t* out, Stream stream)
      : world_(&world), slot_(slot), cells_(cells), kernel_(std::move(kernel)), out_(out), stream_(stream) {}

  World* world_;
  int slot_;
  SymmetricBuffer cells_;
  Kernel kernel_;
  std::uint32_t* out_;
  Stream stream_;
};

}  // namespace farwarp
