// The gang dispatcher: steps are handed out on the device, chiplet by chiplet. GANG.md has the protocol and why it is
// ordered.
//
//   scheduler    wait done = all XCDs (device) -> started + 1 (release, chiplet)
//   worker       wait started (acquire, chiplet) -> its tiles -> arrived + 1 (acq_rel, chiplet)
//   last worker of the XCD                      -> done + 1 (release, device)
//
// The scheduler of an XCD is the first block that claims a number there. It is a worker, too: a step begins when the
// one before has ended, so a block that only schedules would be idle meanwhile.
#pragma once

#include "farwarp/fleet/gang.h"
#include "farwarp/fleet/launch.h"
#include "farwarp/fleet/sites.h"
#include "farwarp/fleet/tasks.dev.h"
#include "farwarp/fleet/worker.dev.h"

namespace farwarp::FARWARP_TARGET::fleet {

class Gang {
 public:
  FARWARP_DEVICE Gang(GangCells* cells, PlainBuffers buffers) : cells_(cells), buffers_(buffers) {}

  /// [block] Claims a number, and waits until all blocks have done so. False on all threads if that failed: then the
  /// block must do no task. `memory`: kGangPlaceBytes, the gang's until the launch ends.
  FARWARP_DEVICE bool join(Call& call, Shared<std::byte> memory) {
    memory_ = Shared<Vec16>(reinterpret_cast<Vec16*>(memory.raw));
    if (thread_index() == 0) set_place(claim(call));
    return !block_any(!call.live);
  }
  template <int columns>
  FARWARP_DEVICE Worker<columns> worker() const {
    if constexpr (streams(columns)) {
      return {number(), buffers_};
    } else {
      return {number(), {true, buffers_.memory}};
    }
  }
  /// Of the worker.
  FARWARP_DEVICE int number() const { return uniform(place().worker); }

  /// [block] Returns when all workers have ended the step before.
  FARWARP_DEVICE void begin_step(Call& call) const {
    if (thread_index() == 0) {
      Place next = place();
      ++next.started;
      if (next.index == 0) {
        schedule(call, next);
      } else {
        wait_count<Scope::chiplet>(call, started_of(next.xcd), next.started, wait(kSiteStepStart));
      }
      next.done += next.xcds;
      next.arrived += next.workers;
      set_place(next);
    }
    block_sync();
  }
  /// [block] The block's tasks of the step have ended.
  FARWARP_DEVICE void end_step(const Call& call) const {
    drain_stores();
    block_sync();
    if (thread_index() != 0 || !call.live) return;
    const Place now = place();
    if (fetch_add<Order::acq_rel, Scope::chiplet>(arrived_of(now.xcd), 1u) + 1 == now.arrived)
      fetch_add<Order::release, Scope::device>(done(), 1u);
  }
  /// [thread] One thread of the first worker, after the last step: all blocks have long claimed their numbers.
  FARWARP_DEVICE void end_launch() const {
    for (std::uint32_t xcd = 0; xcd < kMaxXcds; ++xcd)
      store(claimed_before(xcd), load<Order::relaxed, Scope::device>(claimed_of(xcd)));
  }

 private:
  /// A block's place among the workers, and what the counters are when the present step has ended. In shared memory:
  /// only one thread uses it.
  struct Place {
    std::int32_t worker;         ///< its number among all: those of an XCD are consecutive
    std::uint16_t index, xcds;   ///< its number among those of its XCD; XCDs that have workers
    std::uint32_t workers, xcd;  ///< of its XCD; its XCD
    std::uint32_t done, started, arrived;
    std::uint32_t unused;
  };
  struct PlaceWords {
    Vec16 of[2];
  };
  static_assert(sizeof(Place) == sizeof(PlaceWords) && sizeof(Place) == kGangPlaceBytes);

  FARWARP_DEVICE Place place() const { return std::bit_cast<Place>(PlaceWords{{load(memory_), load(memory_ + 1)}}); }
  FARWARP_DEVICE void set_place(const Place& place) const {
    const auto words = std::bit_cast<PlaceWords>(place);
    store(memory_, words.of[0]);
    store(memory_ + 1, words.of[1]);
  }

  FARWARP_DEVICE Global<std::uint32_t> entered() const { return Global<std::uint32_t>(&cells_->entered.word); }
  FARWARP_DEVICE Global<std::uint32_t> done() const { return Global<std::uint32_t>(&cells_->done.word); }
  FARWARP_DEVICE Global<std::uint32_t> claimed_of(std::uint32_t xcd) const {
    return Global<std::uint32_t>(&cells_->claimed[xcd].word);
  }
  FARWARP_DEVICE Global<std::uint32_t> started_of(std::uint32_t xcd) const {
    return Global<std::uint32_t>(&cells_->started[xcd].word);
  }
  FARWARP_DEVICE Global<std::uint32_t> arrived_of(std::uint32_t xcd) const {
    return Global<std::uint32_t>(&cells_->arrived[xcd].word);
  }
  FARWARP_DEVICE Global<std::uint32_t> claimed_before(std::uint32_t xcd) const {
    return Global<std::uint32_t>(&cells_->claimed_before[xcd]);
  }
  static FARWARP_DEVICE Wait wait(std::uint32_t site) { return {.site = site, .peer = -1}; }

  /// [thread] Counters are read before the block enters: only `claimed` and `entered` move before all blocks have
  /// entered.
  FARWARP_DEVICE Place claim(Call& call) const {
    Place place{};
    place.xcd = static_cast<std::uint32_t>(xcc());
    place.done = load(done());
    place.started = load(started_of(place.xcd));
    place.arrived = load(arrived_of(place.xcd));
    auto all = static_cast<std::uint32_t>(num_blocks());
#pragma unroll 1
    for (std::uint32_t xcd = 0; xcd < kMaxXcds; ++xcd) all += load(claimed_before(xcd));
    const std::uint32_t number = fetch_add<Order::relaxed, Scope::device>(claimed_of(place.xcd), 1u);
    place.index = static_cast<std::uint16_t>(number - load(claimed_before(place.xcd)));
    fetch_add<Order::release, Scope::device>(entered(), 1u);
    wait_count<Scope::device>(call, entered(), all, wait(kSiteWorkers));
#pragma unroll 1
    for (std::uint32_t xcd = 0; xcd < kMaxXcds; ++xcd) {
      const std::uint32_t claimed = load<Order::relaxed, Scope::device>(claimed_of(xcd)) - load(claimed_before(xcd));
      if (claimed > 0) ++place.xcds;
      if (xcd < place.xcd) place.worker += static_cast<std::int32_t>(claimed);
      if (xcd == place.xcd) place.workers = claimed;
    }
    place.worker += place.index;
    return place;
  }

  /// [thread] Hands a step to the XCD's workers once all XCDs have ended the one before.
  FARWARP_DEVICE void schedule(Call& call, const Place& next) const {
    if (wait_count<Scope::device>(call, done(), next.done, wait(kSiteStepEnd)))
      store<Order::release, Scope::chiplet>(started_of(next.xcd), next.started);
  }

  GangCells* cells_;
  PlainBuffers buffers_;
  Shared<Vec16> memory_{};
};

FARWARP_DEVICE Gang gang_of(const Launch& launch) { return {launch.gang, {launch.plain}}; }

}  // namespace farwarp::FARWARP_TARGET::fleet
