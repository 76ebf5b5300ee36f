// gemm-rs as the harness sees it. The check is shared by all parallel products.
#include <utility>

#include "farwarp/ops/parallel_gemm/case/operator.h"
#include "farwarp/ops/parallel_gemm/gemm_rs/gemm_rs.h"

namespace farwarp::parallel_gemm {
namespace {

class GemmReduceScatterCase : public CaseOperator {
 public:
  explicit GemmReduceScatterCase(GemmReduceScatter op) : op_(std::move(op)) {}
  Status call(const void* x, const void* w, const void* bias, void* y, Stream stream) override {
    return op_(x, w, bias, y, stream);
  }
  void drop_put(int number) override { op_.inject({.drop_put = static_cast<std::uint32_t>(number)}); }
  Status close() override { return op_.close(); }
  std::string plan() const override { return op_.plan().to_string(); }

 private:
  GemmReduceScatter op_;
};

Result<std::int64_t> heap_bytes(const ParallelGemmDesc& desc, const MachineShape& shape, int ranks) {
  const auto plan = plan_gemm_reduce_scatter(desc, shape, ranks);
  if (!plan.ok()) return plan.status();
  return plan->heap_bytes();
}

Result<std::unique_ptr<CaseOperator>> create(World& world, const ParallelGemmDesc& desc) {
  auto op = GemmReduceScatter::create(world, desc);
  if (!op.ok()) return op.status();
  return std::unique_ptr<CaseOperator>(new GemmReduceScatterCase(std::move(*op)));
}

constexpr int kRoundings = 2;  // of each rank's term, and of their sum

[[maybe_unused]] const bool registered =
    register_case({"gemm-rs", "matrix product whose sum over ranks is scattered: GEMM and reduce-scatter",
                   Kind::kReduceScatter, kRoundings, heap_bytes, create});

}  // namespace
}  // namespace farwarp::parallel_gemm
