#include "farwarp/ops/parallel_gemm/dispatch/parallel_gemm.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "farwarp/base/arguments.h"
#include "farwarp/ops/parallel_gemm/ag_gemm/ag_gemm.h"
#include "farwarp/ops/parallel_gemm/dispatch/plan_table.h"
#include "farwarp/ops/parallel_gemm/gemm_ar/gemm_ar.h"
#include "farwarp/ops/parallel_gemm/gemm_rs/gemm_rs.h"
#include "farwarp/ops/parallel_gemm/operands.h"
#include "farwarp/ops/parallel_gemm/unfused.h"

namespace farwarp {
namespace {

using parallel_gemm::Choice;
using parallel_gemm::Kind;
using parallel_gemm::Path;
using parallel_gemm::Unfused;

using Operator = std::variant<AllGatherGemm, GemmReduceScatter, GemmAllReduce, Unfused>;

Result<std::int64_t> own_heap_bytes(Kind kind, const ParallelGemmDesc& desc, const MachineShape& shape, int ranks) {
  switch (kind) {
    case Kind::kAllGather: {
      const auto plan = plan_ag_gemm(desc, shape, ranks);
      return plan.ok() ? Result<std::int64_t>(plan->heap_bytes) : plan.status();
    }
    case Kind::kReduceScatter: {
      const auto plan = plan_gemm_reduce_scatter(desc, shape, ranks);
      return plan.ok() ? Result<std::int64_t>(plan->heap_bytes()) : plan.status();
    }
    case Kind::kAllReduce: {
      const auto plan = plan_gemm_all_reduce(desc, shape, ranks);
      return plan.ok() ? Result<std::int64_t>(plan->heap_bytes()) : plan.status();
    }
  }
  return internal_error("no such kind of product");
}

/// The descriptor for our own kernels. A width from the table replaces the plan's choice, but not the user's, and only
/// if it has a kernel.
ParallelGemmDesc own_desc(Kind kind, const ParallelGemmDesc& desc, const Choice& choice, const MachineShape& shape,
                          int ranks) {
  ParallelGemmDesc own = desc;
  if (desc.tile_columns == 0) own.tile_columns = choice.tile_columns;
  return own_heap_bytes(kind, own, shape, ranks).ok() ? own : desc;
}

template <class Created>
Result<Operator> as_operator(Created created) {
  if (!created.ok()) return created.status();
  return Operator(std::move(*created));
}

Result<Operator> create_own(World& world, Kind kind, const ParallelGemmDesc& desc) {
  switch (kind) {
    case Kind::kAllGather: return as_operator(AllGatherGemm::create(world, desc));
    case Kind::kReduceScatter: return as_operator(GemmReduceScatter::create(world, desc));
    case Kind::kAllReduce: return as_operator(GemmAllReduce::create(world, desc));
  }
  return internal_error("no such kind of product");
}

/// Fails unless all ranks were asked for the same. A rank with invalid arguments takes part, so that the others get its
/// error.
Status agree(World& world, Kind kind, const ParallelGemmDesc& desc, Path path) {
  const Status mine = first_failure({parallel_gemm::check(kind, desc, world.size()), parallel_gemm::check_path(path)});
  const Status agreed = world.agree(fmt::format("{} by path {}", name_of(kind), name_of(path)),
                                    mine.ok() ? parallel_gemm::configuration_of(kind, desc, world.size()) : 0, mine);
  return mine.ok() ? agreed : mine;
}

struct PackedChoice {
  std::int32_t path, tile_columns, algorithm;
};

/// Sends rank 0's choice to all ranks, because their tables may differ.
Result<Choice> choice_of_rank_0(World& world, const Choice& mine) {
  const PackedChoice packed{static_cast<std::int32_t>(mine.path), mine.tile_columns, mine.algorithm};
  std::vector<std::byte> message(sizeof(packed) + mine.why.size());
  std::memcpy(message.data(), &packed, sizeof(packed));
  std::memcpy(message.data() + sizeof(packed), mine.why.data(), mine.why.size());
  const auto all = world.bootstrap().allgather(message, world.options().deadline);
  if (!all.ok()) return all.status();
  const std::vector<std::byte>& first = all->front();
  PackedChoice theirs{};
  if (first.size() < sizeof(theirs)) return Status{StatusCode::kMismatch, "rank 0 is in another collective call"};
  std::memcpy(&theirs, first.data(), sizeof(theirs));
  std::string why(first.size() - sizeof(theirs), ' ');
  std::memcpy(why.data(), first.data() + sizeof(theirs), why.size());
  return Choice{static_cast<Path>(theirs.path), theirs.tile_columns, theirs.algorithm, std::move(why)};
}

}  // namespace

struct ParallelGemm::State {
  State(Operator its_op, ParallelGemmDesc its_desc, std::string its_why)
      : op(std::move(its_op)), desc(its_desc), why(std::move(its_why)) {}
  Operator op;
  ParallelGemmDesc desc;
  std::string why;
  bool is_open = true;
};

Result<std::int64_t> ParallelGemm::heap_bytes(const Device& device, int ranks, Kind kind, const ParallelGemmDesc& desc,
                                              Path path) {
  const Status status = first_failure({parallel_gemm::check(kind, desc, ranks), parallel_gemm::check_path(path)});
  if (!status.ok()) return status;
  if (path == Path::kUnfused) return 0;
  const auto plain = own_heap_bytes(kind, desc, device.shape(), ranks);
  if (!plain.ok() || path == Path::kOwn) return plain;
  const Choice choice = choose(parallel_gemm::plans_of(device.model(), ranks), kind, desc);
  const auto chosen = own_heap_bytes(kind, own_desc(kind, desc, choice, device.shape(), ranks), device.shape(), ranks);
  return chosen.ok() ? std::max(*plain, *chosen) : chosen;
}

Result<ParallelGemm> ParallelGemm::create(World& world, Kind kind, const ParallelGemmDesc& desc, Path path) {
  if (Status usable = world.check_usable(); !usable.ok()) return usable;
  if (Status agreed = agree(world, kind, desc, path); !agreed.ok()) return agreed;
  Choice choice{path, 0, 0, "asked for"};
  if (path == Path::kBest) {
    const auto chosen =
        choice_of_rank_0(world, choose(parallel_gemm::plans_of(world.device().model(), world.size()), kind, desc));
    if (!chosen.ok()) return chosen.status();
    choice = *chosen;
  }
  if (choice.path == Path::kUnfused) {
    auto unfused = Unfused::create(world, kind, desc, choice.algorithm);
    if (unfused.ok())
      return ParallelGemm(std::make_unique<State>(Operator(std::move(*unfused)), desc, std::move(choice.why)));
    if (path == Path::kUnfused) return unfused.status();
    choice.why = fmt::format("unfused is to be faster ({}), but {}", choice.why, unfused.status().message());
  }
  auto own = create_own(world, kind, own_desc(kind, desc, choice, world.device().shape(), world.size()));
  if (!own.ok()) return own.status();
  return ParallelGemm(std::make_unique<State>(std::move(*own), desc, std::move(choice.why)));
}

ParallelGemm::ParallelGemm(std::unique_ptr<State> state) : state_(std::move(state)) {}
ParallelGemm::ParallelGemm(ParallelGemm&&) noexcept = default;
ParallelGemm& ParallelGemm::operator=(ParallelGemm&&) noexcept = default;
ParallelGemm::~ParallelGemm() = default;

Status ParallelGemm::check_open() const {
  if (!state_) return {StatusCode::kMisuse, "ParallelGemm was moved from: call the object it was moved to"};
  return state_->is_open ? Status() : Status(StatusCode::kMisuse, "ParallelGemm was called after close()");
}

Status ParallelGemm::close() {
  if (Status open = check_open(); !open.ok()) return open;
  state_->is_open = false;
  return std::visit([](auto& op) { return op.close(); }, state_->op);
}

ParallelGemm::Path ParallelGemm::path() const {
  return state_ && std::holds_alternative<Unfused>(state_->op) ? Path::kUnfused : Path::kOwn;
}

const std::string& ParallelGemm::why() const {
  static const std::string kNone;
  return state_ ? state_->why : kNone;
}

std::string ParallelGemm::plan() const {
  if (!state_) return {};
  if (const auto* const unfused = std::get_if<Unfused>(&state_->op))
    return fmt::format("{} and {}", unfused->describe_exchange(), unfused->describe_product());
  if (const auto* const op = std::get_if<AllGatherGemm>(&state_->op)) return op->plan().to_string();
  if (const auto* const op = std::get_if<GemmReduceScatter>(&state_->op)) return op->plan().to_string();
  return std::get<GemmAllReduce>(state_->op).plan().to_string();
}

int ParallelGemm::roundings() const {
  if (!state_) return 0;
  if (const auto* const unfused = std::get_if<Unfused>(&state_->op)) return unfused->roundings();
  return std::holds_alternative<AllGatherGemm>(state_->op) ? 1 : 2;
}

Status ParallelGemm::operator()(const void* x, const void* w, const void* bias, void* y, Stream stream, void* all_x) {
  if (Status open = check_open(); !open.ok()) return open;
  Status status = parallel_gemm::check_operands(state_->desc, x, w, bias, y, parallel_gemm::kUnfusedAlignment);
  if (status.ok()) status = parallel_gemm::check_returned_x(state_->desc, all_x, parallel_gemm::kUnfusedAlignment);
  if (!status.ok()) return status;
  if (auto* const op = std::get_if<AllGatherGemm>(&state_->op)) return (*op)(x, w, bias, y, stream, all_x);
  if (auto* const op = std::get_if<Unfused>(&state_->op)) return (*op)(x, w, bias, y, stream, all_x);
  if (auto* const op = std::get_if<GemmReduceScatter>(&state_->op)) return (*op)(x, w, bias, y, stream);
  return std::get<GemmAllReduce>(state_->op)(x, w, bias, y, stream);
}

void ParallelGemm::drop_put(int number) {
  if (!state_) return;
  if (auto* const op = std::get_if<AllGatherGemm>(&state_->op)) op->drop_put(number);
  if (auto* const op = std::get_if<GemmReduceScatter>(&state_->op))
    op->inject({.drop_put = static_cast<std::uint32_t>(number)});
  if (auto* const op = std::get_if<GemmAllReduce>(&state_->op)) op->drop_put(number);
}

}  // namespace farwarp
