#include "farwarp/world/host/world.h"

#include <fmt/format.h>

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "farwarp/world/host/split_bootstrap.h"
#include "farwarp/world/host/testing.h"
#include "farwarp/world/host/world_state.h"

namespace farwarp {
namespace {

// For threads on the emulator. A kernel takes thousands of times its virtual time there, and ranks that are done wait
// for the others in host calls, which use the host's clock. Between processes the emulator uses the host's clock, too.
constexpr int kEmulatedHostPatience = 6;
// Ranks that complete a kernel or a call together begin the next one when their host schedules them.
constexpr std::chrono::milliseconds kHostSlack{500};

std::atomic<std::uint32_t> next_world = 1;
std::atomic<std::uint32_t> first_epoch = fresh_epoch(0);

/// Keeps what a kernel may still use when its World is destroyed. It stays reachable until the process ends, so that no
/// leak is reported.
void keep_for_good(std::unique_ptr<HeapMemory> heap, std::unique_ptr<HostLedger> ledger) {
  struct Kept {
    std::mutex mutex;
    std::vector<std::pair<std::unique_ptr<HeapMemory>, std::unique_ptr<HostLedger>>> memory;
  };
  static Kept* const kept = new Kept;
  std::lock_guard lock(kept->mutex);
  kept->memory.emplace_back(std::move(heap), std::move(ledger));
}

Status check_options(const WorldOptions& options) {
  constexpr std::chrono::milliseconds kLongest = std::chrono::hours(24);
  if (options.deadline < std::chrono::milliseconds(1) || options.deadline > kLongest) {
    return invalid_argument(fmt::format("WorldOptions::deadline is {} ms; allowed: 1 to {} ms",
                                        options.deadline.count(), kLongest.count()));
  }
  constexpr std::size_t kMaxHeapBytes = std::size_t{1} << 47;  // more than any device can address
  if (options.heap_bytes > kMaxHeapBytes) {
    return invalid_argument(
        fmt::format("WorldOptions::heap_bytes is {}; allowed: at most {}", options.heap_bytes, kMaxHeapBytes));
  }
  return {};
}

}  // namespace

void testing::set_first_epoch(std::uint32_t epoch) { first_epoch = epoch; }

struct WorldAccess {
  static Result<World> create(std::shared_ptr<Bootstrap> bootstrap, const WorldOptions& options,
                              std::shared_ptr<Device> device) {
    return World::State::create(std::move(bootstrap), options, std::move(device));
  }
};

Result<World> testing::create_world(std::shared_ptr<Bootstrap> bootstrap, const WorldOptions& options,
                                    std::shared_ptr<Device> device) {
  return WorldAccess::create(std::move(bootstrap), options, std::move(device));
}

// ---- creation ------------------------------------------------------------------------------------------------------

Result<World> World::create(std::shared_ptr<Bootstrap> bootstrap, const WorldOptions& options) {
  return State::create(std::move(bootstrap), options, nullptr);
}

Result<World> World::State::create(std::shared_ptr<Bootstrap> bootstrap, const WorldOptions& options,
                                   std::shared_ptr<Device> device) {
  if (!bootstrap) return invalid_argument("bootstrap is null");
  if (bootstrap->size() < 1 || bootstrap->size() > kMaxRanks) {
    return invalid_argument(fmt::format("the bootstrap has {} ranks; allowed: 1 to {}", bootstrap->size(), kMaxRanks));
  }
  auto state = std::make_unique<State>();
  state->bootstrap = std::move(bootstrap);
  state->options = options;
  state->device = std::move(device);
  // Even if the deadline is not allowed, ranks need one to agree on that.
  const auto deadline = check_options(options).ok() ? options.deadline : WorldOptions{}.deadline;
  const bool on_virtual_clock = is_emulated(options.target) && state->bootstrap->same_process();
  state->host_timeout = deadline * (on_virtual_clock ? kEmulatedHostPatience : 1) + kHostSlack;
  state->bootstrap->set_longest_silence(deadline);
  state->collectives = Collectives(state->bootstrap, state->host_timeout);
  state->highest_epoch = first_epoch - 2;

  if (Status numbered = state->collectives.number_world(next_world++); !numbered.ok()) return numbered;
  const std::string call =
      fmt::format("World::create(target {}, deadline {} ms, heap of {} bytes, first epoch {})", name_of(options.target),
                  options.deadline.count(), options.heap_bytes, fresh_epoch(state->highest_epoch));
  if (Status same = state->collectives.check_same_call(call); !same.ok()) return same;
  if (Status valid = check_options(options); !valid.ok()) return valid;  // the same on all ranks, as the options are
  if (Status opened = state->collectives.all_ok(state->open_local_resources()); !opened.ok()) return opened;

  auto heap = HeapMemory::create(state->device, *state->bootstrap, state->collectives,
                                 kControlBytes + options.heap_bytes, state->host_timeout);
  if (!heap.ok()) return heap.status();
  state->heap = std::move(*heap);
  state->offsets = OffsetAllocator(kControlBytes + options.heap_bytes);
  state->offsets.reserve_front(kControlBytes);
  state->view.rank = state->bootstrap->rank();
  state->view.size = state->bootstrap->size();
  for (int rank = 0; rank < state->view.size; ++rank) state->view.heap[rank] = state->heap->base(rank);
  state->view.ledger = state->ledger->device_address();

  // No rank returns before every control block is written: a peer's first kernel may write to it.
  if (Status written = state->collectives.all_ok(state->write_control()); !written.ok()) return written;
  return World(std::move(state));
}

Status World::State::open_local_resources() {
  if (!device) {
    const bool by_rank = options.device < 0;
    auto opened = Device::open(options.target, by_rank ? bootstrap->rank() : options.device);
    if (!opened.ok()) {
      const std::string why(opened.status().message());
      const std::size_t allowed = why.find(", allowed for ");
      if (allowed == std::string::npos) return opened.status();
      const std::string of_rank = by_rank ? fmt::format(", here {}, the rank", bootstrap->rank()) : "";
      return invalid_argument(
          fmt::format("WorldOptions::device is {}{}{}", options.device, of_rank, why.substr(allowed)));
    }
    device = *opened;
  }
  auto created = device->create_stream();
  if (!created.ok()) return created.status();
  stream = *created;
  auto memory = HostLedger::create(device);
  if (!memory.ok()) return memory.status();
  ledger = std::move(*memory);
  return {};
}

Status World::State::write_control() {
  if (Status zeroed = device->fill(control(), 0, kControlBytes, *stream); !zeroed.ok()) return zeroed;
  const auto deadline_ns = static_cast<std::uint64_t>(std::chrono::nanoseconds(options.deadline).count());
  if (Status copied = device->copy_in(&control()->deadline_ns, &deadline_ns, sizeof(deadline_ns), *stream);
      !copied.ok())
    return copied;
  return synchronize();
}

World::State::~State() {
  if (heap && !drain().ok()) {
    keep_for_good(std::move(heap), std::move(ledger));
  } else if (stream) {
    device->destroy_stream(*stream);
  }
}

World::World(std::unique_ptr<State> state)
    : state_(std::move(state)), device_(state_->device), bootstrap_(state_->bootstrap) {}
// device_ and bootstrap_ are copied, since an object that was moved from still returns them by reference.
World::World(World&& other) noexcept
    : state_(std::move(other.state_)), device_(other.device_), bootstrap_(other.bootstrap_) {}
World& World::operator=(World&& other) noexcept {
  if (this == &other) return *this;
  state_ = std::move(other.state_);
  device_ = other.device_;
  bootstrap_ = other.bootstrap_;
  return *this;
}
World::~World() = default;

int World::rank() const { return state_ ? state_->view.rank : -1; }
int World::size() const { return state_ ? state_->view.size : 0; }
Device& World::device() { return *device_; }
Bootstrap& World::bootstrap() { return *bootstrap_; }
const WorldOptions& World::options() const {
  static const WorldOptions kNone;
  return state_ ? state_->options : kNone;
}
const WorldView& World::view() const {
  static constexpr WorldView kNone{.rank = -1, .size = 0, .heap = {}, .ledger = nullptr};
  return state_ ? state_->view : kNone;
}
Status World::check_usable() const {
  return state_ ? Status() : Status(StatusCode::kMisuse, "the World was moved from: use the object it was moved to");
}

// ---- collective calls ----------------------------------------------------------------------------------------------

Status World::State::enter(const std::string& call) {
  if (lost.load(std::memory_order_acquire)) return lost_status;
  return note_loss(collectives.check_same_call(call));
}

Status World::State::agree(const char* call, const std::string& what, std::uint64_t configuration, const Status& mine) {
  if (Status entered = enter(fmt::format("{}({})", call, what)); !entered.ok()) return entered;
  if (Status all = note_loss(collectives.all_ok(mine)); !all.ok()) return all;
  return enter(fmt::format("{}({}, configuration {:#x})", call, what, configuration));
}

Status World::agree(const std::string& what, std::uint64_t configuration, const Status& mine) {
  if (Status usable = check_usable(); !usable.ok()) return usable;
  return state_->agree("agree", what, configuration, mine);
}

Status World::State::note_loss(Status status) {
  return status.code() == StatusCode::kPeerLost ? lose(status.message()) : status;
}

Status World::State::lose(const std::string& why) {
  if (!lost.load(std::memory_order_acquire)) {
    lost_status = {StatusCode::kPeerLost, why};
    lost.store(true, std::memory_order_release);
  }
  return lost_status;
}

// ---- symmetric heap ------------------------------------------------------------------------------------------------

Result<SymmetricBuffer> World::allocate(std::size_t bytes, std::size_t alignment, std::uint8_t fill) {
  if (Status usable = check_usable(); !usable.ok()) return usable;
  State& state = *state_;
  const std::string call = fmt::format("allocate({} bytes, alignment {}, fill {})", bytes, alignment, fill);
  if (Status entered = state.enter(call); !entered.ok()) return entered;
  auto offset = state.offsets.allocate(bytes, alignment);  // the same on all ranks, failures included
  if (!offset.ok()) return offset.status();
  const SymmetricBuffer buffer{*offset, bytes, state.heap->base(rank()) + *offset};
  Status filled = state.device->fill(buffer.local, fill, bytes, *state.stream);
  if (filled.ok()) filled = state.synchronize();
  // No rank returns before every rank's memory is filled: a peer's kernel may write to it from then on.
  if (Status all = state.note_loss(state.collectives.all_ok(filled)); !all.ok()) {
    (void)state.offsets.free(buffer.offset, buffer.bytes);
    return all;
  }
  if (fill != 0) state.refilled.push_back({buffer, fill});
  return buffer;
}

Status World::free(const SymmetricBuffer& buffer) {
  if (Status usable = check_usable(); !usable.ok()) return usable;
  State& state = *state_;
  if (Status entered = state.enter(fmt::format("free({} bytes at offset {})", buffer.bytes, buffer.offset));
      !entered.ok())
    return entered;
  if (buffer.offset < kControlBytes) {
    return invalid_argument(
        fmt::format("buffer has offset {}; allowed: a buffer that allocate returned", buffer.offset));
  }
  const Status freed = state.offsets.free(buffer.offset, buffer.bytes);
  if (freed.ok())
    std::erase_if(state.refilled, [&](const auto& filled) { return filled.buffer.offset == buffer.offset; });
  return freed;
}

// ---- subgroups -----------------------------------------------------------------------------------------------------

Result<World> World::split(int colour, std::size_t heap_bytes) {
  if (Status usable = check_usable(); !usable.ok()) return usable;
  State& state = *state_;
  if (Status entered = state.enter("split"); !entered.ok()) return entered;
  auto group = split_bootstrap(*state.bootstrap, colour, state.host_timeout);
  if (!group.ok()) return state.note_loss(group.status());
  WorldOptions options = state.options;
  options.device = state.device->ordinal();
  options.heap_bytes = heap_bytes;
  return State::create(*group, options, state.device);
}

}  // namespace farwarp
