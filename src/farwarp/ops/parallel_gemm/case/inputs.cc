#include "farwarp/ops/parallel_gemm/case/inputs.h"

#include "farwarp/harness/inputs.h"

namespace farwarp::parallel_gemm {
namespace {

constexpr std::uint64_t kDelayStream = 100;

std::uint64_t wide(int value) { return static_cast<std::uint64_t>(value); }

}  // namespace

void fill_row(const Problem& problem, Operand operand, int call, int rank, int row, std::span<std::uint16_t> values) {
  const bool shared = operand == Operand::kBias && problem.kind != Kind::kAllGather;
  const harness::RandomStream stream(
      problem.seed, {static_cast<std::uint64_t>(operand), wide(call), wide(shared ? 0 : rank), wide(row)});
  gemm::fill_operand(gemm::kind_in_call(problem.inputs, call), operand, problem.desc.dtype, problem.desc.k, stream,
                     values);
}

std::uint64_t delay_before(const Problem& problem, int call, int repeat, int rank, std::uint64_t longest) {
  const harness::RandomStream stream(problem.seed, {kDelayStream, wide(call), wide(repeat), wide(rank)});
  return stream.below(0, longest + 1);
}

}  // namespace farwarp::parallel_gemm
