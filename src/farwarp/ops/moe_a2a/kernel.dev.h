// The kernels of the MoE all-to-all, read top-down. In every block, sends come before waits.
#pragma once

#include "farwarp/ops/moe_a2a/wire_bulk.dev.h"
#include "farwarp/ops/moe_a2a/wire_packet.dev.h"

namespace farwarp::FARWARP_TARGET::moe {

// Stages of a call, in OperatorCells::stage. The fused form runs from kIdle to kIdle in one launch.
inline constexpr std::uint32_t kIdle = 0, kSent = 1, kReceived = 2, kReturning = 3;

/// [block] Sums what the owners return for this block's tokens.
template <class T, class Wire>
FARWARP_DEVICE void receive_returns(Wire& wire, const OwnTokens& own) {
  if (!wire.await_returns()) return;
  const std::int64_t segments = wire.args.segments;
  const std::int64_t vectors = wire.args.hidden / kPerVector;
  for (std::int64_t unit = own.first_unit + warp_index(); unit < own.last_unit; unit += warps_per_block()) {
    const std::int64_t segment = unit % segments;
    sum_returns<T>(wire, static_cast<int>(unit / segments), static_cast<int>(vectors * segment / segments),
                   static_cast<int>(vectors * (segment + 1) / segments));
  }
  wire.refresh_idle_returns(own.tokens);
}

/// dispatch -> expert -> combine in one launch.
template <class T, class Expert, class Wire>
FARWARP_DEVICE void fused(const Args& args) {
  Call call = begin_call(args.view, args.slot, kIdle);
  if (!call.live) return;
  Wire wire(call, args);
  const OwnTokens own = own_tokens(args, token_count(call, args));
  wire.send(own);
  const Expert expert(args);
  wire.for_each_row([&](const Row& row) { apply_experts<T>(wire, row, expert); }, true);
  receive_returns<T>(wire, own);
  if (block_index() == 0 && await_headers(call, args, false)) wire.refresh_idle_rows();
  end_call(call, kIdle);
}

template <class Wire>
FARWARP_DEVICE void dispatch_send(const Args& args) {
  Call call = begin_call(args.view, args.slot, kIdle);
  if (!call.live) return;
  Wire wire(call, args);
  wire.send(own_tokens(args, token_count(call, args)));
  end_call(call, kSent);
}

template <class Wire>
FARWARP_DEVICE void dispatch_recv(const Args& args) {
  Call call = begin_call(args.view, args.slot, kSent);
  if (!call.live) return;
  Wire wire(call, args);
  if (await_headers(call, args, true)) {
    wire.refresh_idle_rows();
    if (lay_out_rows(call, args)) {
      mark_padding(args);
      wire.for_each_row([&](const Row& row) { unpack_row(wire, row); }, false);
    }
  }
  end_call(call, kReceived);
}

template <class T, class Wire>
FARWARP_DEVICE void combine_send(const Args& args) {
  Call call = begin_call(args.view, args.slot, kReceived);
  if (!call.live) return;
  Wire wire(call, args);
  wire.for_each_row([&](const Row& row) { reduce_row<T>(wire, row); }, true);
  end_call(call, kReturning);
}

template <class T, class Wire>
FARWARP_DEVICE void combine_recv(const Args& args) {
  Call call = begin_call(args.view, args.slot, kReturning);
  if (!call.live) return;
  Wire wire(call, args);
  receive_returns<T>(wire, own_tokens(args, token_count(call, args)));
  end_call(call, kIdle);
}

}  // namespace farwarp::FARWARP_TARGET::moe
