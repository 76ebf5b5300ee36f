// Failures in words.
#include <dlfcn.h>
#include <fmt/format.h>

#include <map>
#include <tuple>

#include "farwarp/substrate/emu/engine.h"

namespace farwarp::emu {
namespace {

std::string_view name_of_wait(const Thread& thread) {
  switch (thread.wait) {
    case Wait::block_sync: return "block_sync";
    case Wait::block_any: return "block_any";
    case Wait::parked: return "park";
    case Wait::warp:
      switch (thread.warp_op) {
        case WarpOp::sync: return "warp_sync";
        case WarpOp::shuffle: return "shuffle";
        case WarpOp::ballot: return "ballot";
        case WarpOp::match: return "match_any";
      }
      return "a warp operation";
    case Wait::none:
    case Wait::exited: break;
  }
  return "nothing";
}

/// "binary+0x1234", for addr2line: the call's line if the kernels were compiled with -g.
std::string describe_site(const void* site) {
  Dl_info info;
  if (site == nullptr || dladdr(site, &info) == 0 || info.dli_fname == nullptr) return "unknown code";
  const std::string_view path = info.dli_fname;
  const auto offset = static_cast<const char*>(site) - static_cast<const char*>(info.dli_fbase);
  return fmt::format("{}+{:#x}", path.substr(path.rfind('/') + 1), offset);
}

}  // namespace

std::string Engine::where(const Thread& thread) const {
  return fmt::format("{}: device {}, block {}, thread {}", thread.launch->kernel->name, thread.launch->device->ordinal,
                     thread.block_index, thread.thread_index);
}

void Engine::note_race(const Thread& reader, const void* address, unsigned bytes, Stamp write) {
  if (!race_.empty()) return;
  const LaunchInfo* launch = launch_info(write.uid());
  const Thread* writer = find_thread(write.uid());
  const std::string who = writer   ? where(*writer)
                          : launch ? fmt::format("{}: device {}, in an earlier launch", launch->kernel->name, launch->ordinal)
                                   : "an earlier launch";
  race_ = fmt::format("unordered read: {} reads {} bytes at {}, which {} wrote with {}; nothing orders that write before this read",
                      where(reader), bytes, arena.describe(address), who,
                      write.has(Stamp::kAsync)    ? "a bulk copy"
                      : write.has(Stamp::kStrong) ? "an atomic store"
                                                  : "a plain store");
}

std::string Engine::stall_report() const {
  struct Group {
    int threads = 0;
    const Thread* first = nullptr;
    std::map<std::pair<int, int>, int> blocks;  ///< (device, block) -> threads
  };
  // Threads that wait in the same place of the same kernel, for the same granules or at the same kind of barrier.
  std::map<std::tuple<std::string, std::string, std::string>, Group> groups;
  std::uint64_t now = schedule.nanoseconds();
  for (const auto& [key, device] : devices_) {
    for (const Launch* launch : device->running) {
      for (int i = 0; i < launch->thread_count; ++i) {
        const Thread& thread = launch->threads[static_cast<std::size_t>(i)];
        if (thread.wait == Wait::exited || thread.wait == Wait::none) continue;
        Group& group = groups[{launch->kernel->name, std::string(name_of_wait(thread)), describe_site(thread.site)}];
        if (group.threads++ == 0) group.first = &thread;
        ++group.blocks[{device->ordinal, thread.block_index}];
      }
    }
  }
  std::string text = "nothing can progress and no wait has a deadline:";
  for (const auto& [key, group] : groups) {
    const auto& [kernel, wait, site] = key;
    text +=
        fmt::format("\n  {} threads of {} wait in {} at {}: device/block(threads)", group.threads, kernel, wait, site);
    int listed = 0;
    for (const auto& [place, count] : group.blocks) {
      if (++listed > 8) {
        text += fmt::format(" and {} more blocks", group.blocks.size() - 8);
        break;
      }
      text += fmt::format(" {}/{}({})", place.first, place.second, count);
    }
    const Thread& first = *group.first;
    for (const Watch& watch : first.watches) {
      const void* address = &arena.word_at(watch.granule);
      text += fmt::format("\n    thread {} of block {} on device {} polls {}, which holds {:#x}", first.thread_index,
                          first.block_index, first.launch->device->ordinal, arena.describe(address),
                          arena.word_at(watch.granule));
    }
    text += fmt::format("\n    since {:.1f} us before the end", static_cast<double>(now - first.parked_at_ns) / 1000.0);
  }
  for (const auto& [key, device] : devices_) {
    for (const auto& [id, queue] : device->streams) {
      if (!queue.items.empty() && queue.items.front().kind == WorkItem::Kind::launch && !queue.items.front().started) {
        text += fmt::format("\n  {} on device {} waits for room beside what runs there",
                            queue.items.front().launch->kernel->name, device->ordinal);
      }
    }
  }
  return text;
}

}  // namespace farwarp::emu
