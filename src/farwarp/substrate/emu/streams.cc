// Streams of work items: how launches start, end and fail. Items start in the order (device, stream, position).
#include <fmt/format.h>

#include <bit>
#include <cstring>

#include "farwarp/substrate/emu/engine.h"

namespace farwarp::emu {
namespace {

constexpr int kThreadsPerMultiprocessor = 2048;

int warps_of(const Launch& launch) {
  const int lanes = launch.device->shape.traits.warp_size;
  return (launch.shape.threads + lanes - 1) / lanes;
}

int blocks_per_multiprocessor(const Device& device, const LaunchShape& shape) {
  int most = std::min(kThreadsPerMultiprocessor / shape.threads, Arena::kBlocksPerMultiprocessor);
  if (shape.shared_bytes > 0) {
    most = std::min(most,
                    static_cast<int>(static_cast<std::size_t>(device.shape.traits.shared_bytes) / shape.shared_bytes));
  }
  return most;
}

Status check_shape(const Device& device, const KernelRecord& kernel, const LaunchShape& shape) {
  const auto refuse = [&kernel](const char* what, auto value, auto most) {
    return invalid_argument(
        fmt::format("emulator: launch of {}: {} is {}, must be 1..{}", kernel.name, what, value, most));
  };
  const TargetTraits& traits = device.shape.traits;
  const int most_threads = std::min(kernel.max_threads, traits.max_threads);
  if (shape.threads < 1 || shape.threads > most_threads) return refuse("threads", shape.threads, most_threads);
  if (shape.shared_bytes > static_cast<std::size_t>(traits.shared_bytes)) {
    return refuse("shared_bytes", shape.shared_bytes, traits.shared_bytes);
  }
  if (shape.blocks % shape.cluster != 0) {
    return invalid_argument(fmt::format("emulator: launch of {}: blocks is {}, must be a multiple of its cluster's {}",
                                        kernel.name, shape.blocks, shape.cluster));
  }
  const int most_blocks = blocks_per_multiprocessor(device, shape) * device.shape.multiprocessors;
  if (shape.blocks < 1 || shape.blocks > most_blocks) {
    return invalid_argument(
        fmt::format("emulator: launch of {}: blocks is {}, must be 1..{}: {} multiprocessors hold {} blocks of {} "
                    "threads and {} shared bytes each, and all blocks of a launch must be resident",
                    kernel.name, shape.blocks, most_blocks, device.shape.multiprocessors,
                    blocks_per_multiprocessor(device, shape), shape.threads, shape.shared_bytes));
  }
  return {};
}

}  // namespace

// ---- enqueueing (host threads) --------------------------------------------------------------------------------------

Status Engine::open_device(TargetKind personality, int ordinal, const MachineShape& shape) {
  HostLock held(*this);
  if (!is_emulated(personality)) {
    return invalid_argument(
        fmt::format("emulator: target is {}, must be emu_sm90 or emu_gfx942", name_of(personality)));
  }
  if (ordinal < 0 || ordinal >= Arena::kPerPersonality) {
    return invalid_argument(fmt::format("emulator: device is {}, must be 0..{}", ordinal, Arena::kPerPersonality - 1));
  }
  if (Status reserved = arena.reserve(); !reserved.ok()) return reserved;
  std::unique_ptr<Device>& device = devices_[{personality, ordinal}];
  if (device == nullptr) {
    device = std::make_unique<Device>();
    device->personality = personality;
    device->ordinal = ordinal;
    device->index = ordinal + (personality == TargetKind::kEmuSm90 ? 0 : Arena::kPerPersonality);
    device->streams[0];
  } else if (!device->running.empty()) {
    return {};  // the shape of an idle device may change, as tests do
  }
  if (Status opened = arena.open_shared_slots(device->index, shape.multiprocessors); !opened.ok()) return opened;
  device->shape = shape;
  device->multiprocessors.assign(static_cast<std::size_t>(shape.multiprocessors), {});
  return {};
}

Device* Engine::find_device(TargetKind personality, int ordinal) {
  HostLock held(*this);
  const auto it = devices_.find({personality, ordinal});
  return it == devices_.end() ? nullptr : it->second.get();
}

Status Engine::enqueue_launch(Device& device, StreamId stream, const KernelRecord& kernel, LaunchShape shape,
                              const void* args) {
  if (kernel.personality != device.personality) {
    return invalid_argument(fmt::format("emulator: launch of {}: it is compiled for {}, the device is {}", kernel.name,
                                        name_of(kernel.personality), name_of(device.personality)));
  }
  if (Status fits = check_shape(device, kernel, shape); !fits.ok()) return fits;
  auto launch = std::make_unique<Launch>();
  launch->kernel = &kernel;
  launch->shape = shape;
  launch->device = &device;
  launch->stream = stream;
  launch->args.resize((kernel.args_bytes + sizeof(Launch::ArgumentLine) - 1) / sizeof(Launch::ArgumentLine));
  std::memcpy(launch->args.data(), args, kernel.args_bytes);
  WorkItem item;
  item.kind = WorkItem::Kind::launch;
  item.launch = std::move(launch);
  enqueue(device, stream, std::move(item));
  return {};
}

void Engine::enqueue(Device& device, StreamId stream, WorkItem item) {
  HostLock held(*this);
  note_quiet();
  if (item.launch) {
    item.launch->enqueued = schedule.now();
    item.launch->quiet = quiet_;
    item.launch->host_known = host_known_;
    if (device.tracing) device.traces.push_back(item.launch->trace = std::make_shared<LaunchTrace>());
  }
  device.streams[stream].items.push_back(std::move(item));
  streams_changed_ = true;
}

// ---- starting -------------------------------------------------------------------------------------------------------

void Engine::start_items() {
  while (std::exchange(streams_changed_, false)) {
    for (auto& [key, device] : devices_) {
      for (auto& [id, queue] : device->streams) {
        while (!queue.items.empty() && start_item(queue)) {
        }
      }
    }
  }
  complete_waiters();
}

/// True if the stream's first item is done and has been removed.
bool Engine::start_item(StreamQueue& queue) {
  WorkItem& item = queue.items.front();
  switch (item.kind) {
    case WorkItem::Kind::host: {
      const auto work = std::move(item.host);
      queue.items.pop_front();
      work();
      return true;
    }
    case WorkItem::Kind::delay:
      if (!std::exchange(item.started, true)) item.nanoseconds += schedule.nanoseconds();
      if (schedule.nanoseconds() >= item.nanoseconds) {
        queue.items.pop_front();
        return true;
      }
      expect_deadline(item.nanoseconds);
      return false;
    case WorkItem::Kind::launch:
      if (item.started || !place(*item.launch)) return false;
      item.started = true;
      if (Status started = start_launch(*item.launch); !started.ok()) abort_everything(started);
      return false;
  }
  return false;
}

/// Gives every block a multiprocessor, the one with the fewest threads first. False if the blocks do not all fit beside
/// the running ones.
bool Engine::place(Launch& launch) {
  Device& device = *launch.device;
  std::vector<Multiprocessor> after = device.multiprocessors;
  std::vector<std::pair<int, int>> places;
  for (int block = 0; block < launch.shape.blocks; ++block) {
    const int count = static_cast<int>(after.size());
    int best = -1;
    for (int i = 0; i < count; ++i) {
      const int candidate = (block + i) % count;
      const Multiprocessor& processor = after[static_cast<std::size_t>(candidate)];
      if (processor.threads + launch.shape.threads > kThreadsPerMultiprocessor || ~processor.slots == 0 ||
          processor.shared_bytes + launch.shape.shared_bytes >
              static_cast<std::size_t>(device.shape.traits.shared_bytes)) {
        continue;
      }
      if (best < 0 || processor.threads < after[static_cast<std::size_t>(best)].threads) best = candidate;
    }
    if (best < 0) return false;
    Multiprocessor& processor = after[static_cast<std::size_t>(best)];
    const int slot = std::countr_one(processor.slots);
    processor.slots |= std::uint32_t{1} << slot;
    processor.threads += launch.shape.threads;
    processor.shared_bytes += launch.shape.shared_bytes;
    places.emplace_back(best, slot);
  }
  device.multiprocessors = std::move(after);
  launch.blocks = std::vector<Block>(static_cast<std::size_t>(launch.shape.blocks));
  for (std::size_t i = 0; i < places.size(); ++i) {
    launch.blocks[i].multiprocessor = places[i].first;
    launch.blocks[i].slot = places[i].second;
  }
  return true;
}

void Engine::unplace(Launch& launch) {
  for (const Block& block : launch.blocks) {
    Multiprocessor& processor = launch.device->multiprocessors[static_cast<std::size_t>(block.multiprocessor)];
    processor.slots &= ~(std::uint32_t{1} << block.slot);
    processor.threads -= launch.shape.threads;
    processor.shared_bytes -= launch.shape.shared_bytes;
  }
}

/// Takes the next range of warp numbers that no running launch uses.
bool Engine::number_threads(Launch& launch) {
  const Uid needed = static_cast<Uid>(warps_of(launch) * launch.shape.blocks);
  Uid run = 0;
  for (Uid tried = 0; tried < 2 * kMaxWarps && run < needed; ++tried) {
    if (next_warp_ >= kMaxWarps) {
      next_warp_ = 1;
      run = 0;
    }
    run = warps_[next_warp_].warp == nullptr ? run + 1 : 0;
    ++next_warp_;
  }
  launch.first_uid = (next_warp_ - needed) << 6;
  return run == needed;
}

Status Engine::start_launch(Launch& launch) {
  Device& device = *launch.device;
  constexpr Time kLastStart = (Time{1} << Stamp::kTimeBits) / 4 * 3;
  if (schedule.now() > kLastStart) return internal_error("this process has used up its steps (2^37); start another");
  const int lanes = device.shape.traits.warp_size;
  const int warps = warps_of(launch);
  launch.thread_count = launch.shape.blocks * launch.shape.threads;
  device.running.push_back(&launch);
  if (!number_threads(launch))
    return {StatusCode::kOutOfMemory, fmt::format("more than {} warps run at once", kMaxWarps)};
  if (Status reserved = fibers_.reserve(launch.thread_count); !reserved.ok()) return reserved;

  note_progress();
  launch.info = std::make_shared<LaunchInfo>();
  launch.info->kernel = launch.kernel;
  launch.info->device = device.index;
  launch.info->ordinal = device.ordinal;
  launch.info->start = schedule.now();
  launch.live_blocks = launch.shape.blocks;
  const ClockRef known = known_to(launch);
  launch.threads = std::make_unique<Thread[]>(static_cast<std::size_t>(launch.thread_count));

  Thread* thread = launch.threads.get();
  for (int b = 0; b < launch.shape.blocks; ++b) {
    Block& block = launch.blocks[static_cast<std::size_t>(b)];
    block.launch = &launch;
    block.index = b;
    block.threads = block.live = launch.shape.threads;
    block.uid = launch.first_uid + static_cast<Uid>(b * warps) * 64;
    block.xcc = block.multiprocessor % std::max(device.shape.xcds, 1);
    block.first = thread;
    block.shared = arena.shared_slot(device.index, block.multiprocessor * Arena::kBlocksPerMultiprocessor + block.slot);
    arena.poison_slot(block.shared, launch.shape.shared_bytes);
    block.warps = std::vector<Warp>(static_cast<std::size_t>(warps));
    block.warpgroups = std::vector<Warpgroup>(static_cast<std::size_t>(launch.shape.threads / 128));
    for (std::size_t i = 0; i < block.warpgroups.size(); ++i) block.warpgroups[i].first = thread + 128 * i;
    for (int i = 0; i < launch.shape.threads; ++i, ++thread) {
      Warp& warp = block.warps[static_cast<std::size_t>(i / lanes)];
      if (i % lanes == 0) {
        warp.block = &block;
        warp.threads = thread;
        warps_[(block.uid >> 6) + static_cast<Uid>(i / lanes)] = {&warp, block.uid, block.xcc, launch.info};
      }
      warp.present |= std::uint64_t{1} << (i % lanes);
      warp.live = warp.present;
      static_cast<ThreadIds&>(*thread) = {i,         launch.shape.threads, b,         launch.shape.blocks, i / lanes,
                                          i % lanes, block.multiprocessor, block.xcc, block.shared};
      thread->warp = &warp;
      thread->block = &block;
      thread->launch = &launch;
      thread->uid = block.uid + static_cast<Uid>(i / lanes) * 64 + static_cast<Uid>(i % lanes);
      thread->seen.base = thread->published.base = known;
      thread->seen.self = kForever;
      thread->poll_since = schedule.now();
      thread->fiber = fibers_.create(&Engine::thread_main, thread);
    }
  }
  begin_trace(launch);
  schedule.admit(launch);
  return {};
}

// ---- ending ---------------------------------------------------------------------------------------------------------

void Engine::thread_exited(Thread& thread) {
  Block& block = *thread.block;
  Warp& warp = *thread.warp;
  schedule.make_unready(thread);
  thread.wait = Wait::exited;
  fibers_.destroy(thread.fiber);
  warp.live &= ~(std::uint64_t{1} << thread.lane_index);
  --block.live;
  if (block.arrived > 0 || warp.arrived != 0) {
    fault(*thread.launch, fmt::format("{}: exited while other threads of its {} wait for it at a barrier",
                                      where(thread), warp.arrived != 0 ? "warp" : "block"));
    return;
  }
  if (block.live > 0) return;
  check_block_end(block);
  --thread.launch->live_blocks;
  if (thread.launch->live_blocks == 0 && thread.launch->copies == 0 && !faulted_) finish_launch(*thread.launch);
}

void Engine::finish_launch(Launch& launch) {
  Device& device = *launch.device;
  launch.info->finish = schedule.now();
  device.unsynchronised.push_back(launch.info);
  const Clock* last = nullptr;
  for (int i = 0; i < launch.thread_count; ++i) {
    const ClockRef& base = launch.threads[static_cast<std::size_t>(i)].seen.base;
    if (base.get() != last) device.known = join(device.known, base);
    last = base.get();
  }
  abandon(launch);
  device.streams[launch.stream].items.pop_front();
  streams_changed_ = true;
}

/// Removes the fibers, copies and numbers of a launch that has finished or is aborted.
void Engine::abandon(Launch& launch) {
  drop_copies(launch);
  for (int i = 0; launch.threads && i < launch.thread_count; ++i) {
    Thread& thread = launch.threads[static_cast<std::size_t>(i)];
    if (thread.warp == nullptr) continue;
    unwatch(thread);
    schedule.make_unready(thread);
    fibers_.destroy(thread.fiber);
  }
  for (Block& block : launch.blocks) {
    for (Warp& warp : block.warps) {
      if (warp.threads) warps_[warp.threads->uid >> 6].warp = nullptr;
    }
  }
  unplace(launch);
  if (launch.info && launch.info->finish == kForever) launch.info->finish = schedule.now();
  std::erase(launch.device->running, &launch);
}

/// If a launch cannot start, ends all work on every device, also what has not started. Otherwise peers would wait for
/// the launch until their deadlines, and report the deadline as the cause.
void Engine::abort_everything(const Status& why) {
  for (auto& [key, device] : devices_) abort_device(*device, why.message(), why.code());
}

void Engine::abort_device(Device& device, const std::string& why, StatusCode code) {
  while (!device.running.empty()) {
    Launch& launch = *device.running.back();
    if (launch.info) device.unsynchronised.push_back(launch.info);
    abandon(launch);
  }
  for (auto& [id, queue] : device.streams) {
    if (queue.items.empty()) continue;
    queue.items.clear();
    queue.error = {code, fmt::format("emulator: device {} ({}): {}", device.ordinal, name_of(device.personality), why)};
  }
  streams_changed_ = true;
}

void Engine::complete_waiters() {
  for (auto it = waiters_.begin(); it != waiters_.end();) {
    Waiter& waiter = **it;
    if (!waiter.device->streams[waiter.stream].items.empty()) {
      ++it;
      continue;
    }
    waiter.scope->wake();  // before the engine continues: it must not run while this thread may enqueue more
    host_waiting_.fetch_add(1);
    waiter.done = true;
    waiter.wake.notify_one();
    it = waiters_.erase(it);
    host_changed_ = true;
  }
}

bool Engine::any_running() const {
  for (const auto& [key, device] : devices_) {
    if (!device->running.empty()) return true;
  }
  return false;
}

}  // namespace farwarp::emu
