// The messages of failures.
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "farwarp/substrate/emu/engine.h"

namespace farwarp::emu {
namespace {

std::string_view name_of_wait(const Thread& thread) {
  switch (thread.wait) {
    case Wait::block_sync: return "block_sync";
    case Wait::block_any: return "block_any";
    case Wait::parked: return "park";
    case Wait::group_sync: return "group_sync";
    case Wait::cluster: return "cluster_wait";
    case Wait::wgmma: return "wgmma_wait";
    case Wait::warp:
      switch (thread.warp_op) {
        case WarpOp::sync: return "warp_sync";
        case WarpOp::shuffle: return "shuffle";
        case WarpOp::ballot: return "ballot";
        case WarpOp::match: return "match_any";
        case WarpOp::mma: return "mma";
      }
      return "a warp operation";
    case Wait::none:
    case Wait::exited: break;
  }
  return "nothing";
}

/// "binary+0x1234" for addr2line, which names the call's line if the kernels were compiled with -g. `site` is a return
/// address; the call is before it.
std::string describe_site(const void* site) {
  Dl_info info;
  if (site == nullptr || dladdr(site, &info) == 0 || info.dli_fname == nullptr) return "unknown code";
  const std::string_view path = info.dli_fname;
  const auto offset = static_cast<const char*>(site) - 1 - static_cast<const char*>(info.dli_fbase);
  return fmt::format("{}+{:#x}", path.substr(path.rfind('/') + 1), offset);
}

}  // namespace

std::string Engine::where(const Thread& thread) const {
  return fmt::format("{}: device {}, block {}, thread {}", thread.launch->kernel->name, thread.launch->device->ordinal,
                     thread.block_index, thread.thread_index);
}

void Engine::note_race(const Thread& reader, Reading how, const void* address, unsigned bytes, Stamp write) {
  if (!race_.empty()) return;
  const LaunchInfo* launch = launch_info(write.uid());
  const Thread* writer = find_thread(write.uid());
  const std::string who =
      writer   ? where(*writer)
      : launch ? fmt::format("{}: device {}, in an earlier launch", launch->kernel->name, launch->ordinal)
               : "an earlier launch";
  const char* wrote = write.has(Stamp::kAsync)    ? "a bulk copy"
                      : write.has(Stamp::kStrong) ? "an atomic store"
                                                  : "a plain store";
  race_ = fmt::format(
      "unordered read: {} reads {} bytes at {}{}, which {} wrote with {}; nothing orders that write before this read",
      where(reader), bytes, arena.describe(address),
      how == Reading::bulk_copy ? " by a bulk copy"
      : how == Reading::wgmma   ? " by wgmma"
                                : "",
      who, wrote);
}

/// Threads that wait at the same place in the same kernel.
struct Engine::WaitingGroup {
  int threads = 0;
  std::uint64_t since_ns = kForever;
  std::map<std::pair<int, int>, int> blocks;  ///< (device, block) -> threads
  std::set<Granule> polled;

  void add(const Thread& thread) {
    ++threads;
    since_ns = std::min(since_ns, thread.waiting_since_ns);
    ++blocks[{thread.launch->device->ordinal, thread.block_index}];
    for (const Watch& watch : thread.watches) polled.insert(watch.granule);
  }
};

std::string Engine::describe_group(const WaitingGroup& group) const {
  constexpr std::size_t kMaxBlocks = 8;
  constexpr std::size_t kMaxAddresses = 4;
  std::string text = fmt::format("the first for {:.1f} us; device/block(threads):",
                                 static_cast<double>(schedule.nanoseconds() - group.since_ns) / 1000.0);
  std::size_t listed = 0;
  for (const auto& [place, count] : group.blocks) {
    if (listed++ == kMaxBlocks) break;
    text += fmt::format(" {}/{}({})", place.first, place.second, count);
  }
  if (group.blocks.size() > kMaxBlocks) text += fmt::format(" and {} more blocks", group.blocks.size() - kMaxBlocks);
  listed = 0;
  for (const Granule granule : group.polled) {
    if (listed++ == kMaxAddresses) break;
    const std::uint64_t& word = arena.word_at(granule);
    text += fmt::format("\n    polls {}, which holds {:#x}", arena.describe(&word), word);
  }
  if (group.polled.size() > kMaxAddresses) {
    text += fmt::format("\n    and {} more addresses", group.polled.size() - kMaxAddresses);
  }
  return text;
}

std::string Engine::name_active_host_threads() {
  std::string text;
  for (const HostThread& thread : list_active_host_threads()) {
    if (!text.empty()) text += ", ";
    text += fmt::format("{} (thread {})", thread.name.empty() ? "a host thread" : thread.name, thread.id);
  }
  return text;
}

std::string Engine::stall_report() const {
  std::map<std::tuple<std::string, std::string, std::string>, WaitingGroup> groups;
  std::string text;
  for (const auto& [key, device] : devices_) {
    for (const Launch* launch : device->running) {
      for (int i = 0; i < launch->thread_count; ++i) {
        const Thread& thread = launch->threads[static_cast<std::size_t>(i)];
        if (thread.wait == Wait::exited || thread.wait == Wait::none) continue;
        groups[{launch->kernel->name, std::string(name_of_wait(thread)), describe_site(thread.site)}].add(thread);
      }
    }
    for (const auto& [id, queue] : device->streams) {
      if (queue.items.empty() || !queue.items.front().launch || queue.items.front().started) continue;
      text += fmt::format("\n  {} on device {} waits for room beside what runs there",
                          queue.items.front().launch->kernel->name, device->ordinal);
    }
  }
  for (const auto& [key, group] : groups) {
    const auto& [kernel, wait, site] = key;
    text += fmt::format("\n  {} threads of {} wait in {} at {}, {}", group.threads, kernel, wait, site,
                        describe_group(group));
  }
  return text;
}

}  // namespace farwarp::emu
