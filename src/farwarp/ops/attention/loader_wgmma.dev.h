// The loader: one thread that claims works and copies their queries, keys and values into shared memory, ahead of the
// warpgroups that attend. The steps of a work run from its last keys to its first, so that the only step with keys
// after the sequence's end comes first.
//
//   copies: K(last) Q K(last - 1) V(last) K(last - 2) V(last - 1) ... V(first), then K(last) Q ... of the next work
#pragma once

#include "farwarp/ops/attention/block_wgmma.dev.h"
#include "farwarp/ops/attention/sequence.dev.h"
#include "farwarp/world/device/wait.dev.h"

namespace farwarp::FARWARP_TARGET::attention {

/// [thread] The next work that no block has claimed, or a number from `works` on. A block's first work is its own
/// number. Between calls the counter is all ones. Every block claims until there are no more works, so a call makes as
/// many claims as it has works; the last one restores the counter. After an aborted call World::recover() does, as it
/// refills the buffer.
FARWARP_DEVICE int claim_work(const Args& args) {
  const Global<std::uint32_t> counter = own_address<std::uint32_t>(args.view, args.counter);
  const auto claims = static_cast<int>(fetch_add<Order::relaxed, Scope::device>(counter, 1u) + 1);
  if (claims == args.grid.works - 1) store<Order::relaxed, Scope::device>(counter, ~0u);
  return num_blocks() + claims;
}

template <class Block, class WaitBarrier>
class Loader {
 public:
  FARWARP_DEVICE Loader(const Args& args, const Block& block, const WaitBarrier& wait)
      : args_(args), block_(block), wait_(wait) {}

  /// [thread] Copies what a work needs. The rings' positions go on from the work before.
  FARWARP_DEVICE void load(int number, const BlockWork& work) {
    const TraceStart start = trace_start();
    const int first = work.keys.first / Block::kKeys, end = (work.keys.end + Block::kKeys - 1) / Block::kKeys;
    const bool any = work.keys.end > work.keys.first;
    if (any)
      load_step(work, args_.k, block_.k_ring(), k_at_, end - 1,
                [&](int stage, int panel) { return block_.k(stage, panel); });
    load_queries(number, work, any);
    for (int step = end - 1; any && step >= first; --step) {
      if (step > first)
        load_step(work, args_.k, block_.k_ring(), k_at_, step - 1,
                  [&](int stage, int panel) { return block_.k(stage, panel); });
      load_step(work, args_.v, block_.v_ring(), v_at_, step,
                [&](int stage, int panel) { return block_.v(stage, panel); });
    }
    trace_work(start, TraceWork::kLoad, number);
  }

  /// [thread] Tells the attending warpgroups that there are no more works.
  FARWARP_DEVICE void finish() {
    wait_(block_.q_ring().empty(q_at_.stage), q_at_.parity ^ 1);
    store(block_.number(q_at_.stage), -1);
    mbarrier_arrive(block_.q_ring().full(q_at_.stage));
  }

  BadInput bad;  ///< of the block table: the first that was found

 private:
  FARWARP_DEVICE void load_queries(int number, const BlockWork& work, bool any) {
    const int stage = q_at_.stage;
    const Shared<Mbarrier> full = block_.q_ring().full(stage);
    wait_(block_.q_ring().empty(stage), q_at_.parity ^ 1);  // as for keys
    q_at_.advance();
    store(block_.number(stage), number);
    if (!any) return mbarrier_arrive(full);
    mbarrier_arrive_expect(full, Block::kQBytes);
    for (int panel = 0; panel < Block::kPanels; ++panel) {
      tensor_load(block_.q(stage, panel), args_.q, {work.place.head, work.sequence.query_batch},
                  work.sequence.first_query + work.row, 64 * panel, full);
    }
  }

  template <class Ring, class At>
  FARWARP_DEVICE void load_step(const BlockWork& work, const TensorMap& map, const Ring& ring, Position& position,
                                int step, const At& at) {
    const int stage = position.stage;
    const Shared<Mbarrier> full = ring.full(stage);
    wait_(ring.empty(stage), position.parity ^ 1);  // in the first round every stage is empty
    mbarrier_arrive_expect(full, Block::kStageBytes);
    if (args_.page_size == 0) {
      for (int panel = 0; panel < Block::kPanels; ++panel) {
        tensor_load(at(stage, panel), map, {work.kv_head, work.sequence.key_batch},
                    work.sequence.first_key + step * Block::kKeys, 64 * panel, full);
      }
    } else {
      load_pages(work, map, full, step, [&](int panel) { return at(stage, panel); });
    }
    position.advance();
  }

  /// A step has several pages, or is a part of one. Pages that the work does not see, before its window or after the
  /// sequence's end, are not looked up: no page has number -1, so the copies write zeros.
  template <class At>
  FARWARP_DEVICE void load_pages(const BlockWork& work, const TensorMap& map, Shared<Mbarrier> full, int step,
                                 const At& at) {
    const int rows = args_.page_size < Block::kKeys ? args_.page_size : Block::kKeys;
    for (int row = 0; row < Block::kKeys; row += rows) {
      const int key = step * Block::kKeys + row;
      const int in_sequence = key / args_.page_size;
      int page = -1;
      if (key + rows > work.keys.first && key < work.sequence.keys) {
        page = farwarp::FARWARP_TARGET::load(Global<const std::int32_t>(
            args_.block_table + (std::int64_t{work.place.batch} * args_.table_pitch + in_sequence)));
        if (page < 0 || page >= args_.pages)
          bad = {kSitePage, static_cast<std::uint64_t>(args_.pages - 1),
                 static_cast<std::uint64_t>(std::int64_t{page})};
      }
      for (int panel = 0; panel < Block::kPanels; ++panel) {
        tensor_load(at(panel) + row * 128, map, {work.kv_head, page}, key - in_sequence * args_.page_size, 64 * panel,
                    full);
      }
    }
  }

  const Args& args_;
  const Block& block_;
  const WaitBarrier& wait_;
  typename Block::QPosition q_at_;
  Position k_at_, v_at_;
};

/// [thread] The role of the loader. Reads the operator's cells only after the first work's copies have started.
template <class Block, class WaitBarrier>
FARWARP_DEVICE void load_role(const Args& args, const Block& block, const WaitBarrier& wait) {
  Loader<Block, WaitBarrier> loader(args, block, wait);
  BadInput bad;
  int number = block_index();
  loader.load(number, work_of(args, number, Block::kQueries, bad));
  std::uint32_t phase = 0;
  Call call = read_call(args.view, args.slot, phase);
  if (call.live && block_index() == 0) claim_call(call);
  while (call.live) {
    number = claim_work(args);
    if (number >= args.grid.works) break;
    loader.load(number, work_of(args, number, Block::kQueries, bad));
  }
  loader.finish();
  if (!call.live) return;
  if (bad.site == kSites) bad = loader.bad;
  if (bad.site != kSites) give_up_inlined(call, StatusCode::kBadInput, bad.site, -1, bad.allowed, bad.found);
  leave_call(call, 0);
}

}  // namespace farwarp::FARWARP_TARGET::attention
