// The kernels of the MoE all-to-all, compiled once per target. variants.h lists them.
#include "farwarp/ops/moe_a2a/combine_rows.dev.h"
#include "farwarp/ops/moe_a2a/dispatch_rows.dev.h"
#include "farwarp/ops/moe_a2a/kernel.dev.h"
#include "farwarp/ops/moe_a2a/row_weights.dev.h"
#include "farwarp/ops/moe_a2a/variants.h"
#include "farwarp/substrate/kernel_of.h"

namespace {
namespace target = farwarp::FARWARP_TARGET;
using namespace farwarp;
using farwarp::moe::Args;
using farwarp::moe::kThreads;
using Bulk = target::moe::BulkWire<target::moe::Unquantised>;
using Fp8Bulk = target::moe::BulkWire<target::moe::AsFp8>;
using target::moe::RankScale;
using target::moe::TableExpert;
using Words = target::moe::WordWire<target::moe::Unquantised>;
using Fp8Words = target::moe::WordWire<target::moe::AsFp8>;
using Fp8BulkColumns = target::moe::BulkWire<target::moe::AsFp8Columns>;
using Fp8WordsColumns = target::moe::WordWire<target::moe::AsFp8Columns>;
}  // namespace

#define FARWARP_FUSED(name, id, Wire, T, Expert) \
  FARWARP_KERNEL_OF(moe_a2a, name, Args, kThreads) { target::moe::fused<T, Expert, Wire>(args); }
#define FARWARP_DISPATCH(name, id, Wire) \
  FARWARP_KERNEL_OF(moe_a2a, name, Args, kThreads) { target::moe::dispatch<Wire>(args); }
#define FARWARP_DISPATCH_ROWS(name, id, Wire) \
  FARWARP_KERNEL_OF(moe_a2a, name, Args, kThreads) { target::moe::dispatch_rows<Wire>(args); }
#define FARWARP_COMBINE(name, id, T) \
  FARWARP_KERNEL_OF(moe_a2a, name, Args, kThreads) { target::moe::combine<T>(args); }
#define FARWARP_COMBINE_ROWS(name, id, T) \
  FARWARP_KERNEL_OF(moe_a2a, name, Args, kThreads) { target::moe::combine_rows<T>(args); }
#define FARWARP_COMBINE_WEIGHTS(name, id, T) \
  FARWARP_KERNEL_OF(moe_a2a, name, Args, kThreads) { target::moe::combine_with_weights<T>(args); }
#define FARWARP_BETWEEN(name, id) \
  FARWARP_KERNEL_OF(moe_a2a, name, Args, kThreads) { target::moe::name(args); }

FARWARP_MOE_A2A_FUSED(FARWARP_FUSED)
FARWARP_MOE_A2A_DISPATCH(FARWARP_DISPATCH)
FARWARP_MOE_A2A_DISPATCH_ROWS(FARWARP_DISPATCH_ROWS)
FARWARP_MOE_A2A_COMBINE(FARWARP_COMBINE)
FARWARP_MOE_A2A_COMBINE_ROWS(FARWARP_COMBINE_ROWS)
FARWARP_MOE_A2A_COMBINE_WEIGHTS(FARWARP_COMBINE_WEIGHTS)
FARWARP_MOE_A2A_BETWEEN(FARWARP_BETWEEN)
