// gemm-ar as the harness sees it.
#include "farwarp/ops/parallel_gemm/case/operator.h"
#include "farwarp/ops/parallel_gemm/gemm_ar/gemm_ar.h"

namespace farwarp::parallel_gemm {
namespace {

class AllReduceCase : public CaseOperator {
 public:
  explicit AllReduceCase(GemmAllReduce op) : op_(std::move(op)) {}
  Status call(const void* x, const void* w, const void* bias, void* y, Stream stream) override {
    return op_(x, w, bias, y, stream);
  }
  void drop_put(int number) override { op_.drop_put(number); }
  Status close() override { return op_.close(); }
  std::string plan() const override { return op_.plan().to_string(); }

 private:
  GemmAllReduce op_;
};

Result<std::int64_t> heap_bytes(const ParallelGemmDesc& desc, const MachineShape& shape, int ranks) {
  const auto plan = plan_gemm_all_reduce(desc, shape, ranks);
  if (!plan.ok()) return plan.status();
  return plan->heap_bytes();
}

Result<std::unique_ptr<CaseOperator>> create(World& world, const ParallelGemmDesc& desc) {
  auto op = GemmAllReduce::create(world, desc);
  if (!op.ok()) return op.status();
  return std::unique_ptr<CaseOperator>(new AllReduceCase(std::move(*op)));
}

// 2 roundings: of each rank's term, and of their sum.
[[maybe_unused]] const bool kRegistered = register_case(
    {"gemm-ar", "sum over the ranks of products over parts of K, everywhere", Kind::kAllReduce, 2, heap_bytes, create});

}  // namespace
}  // namespace farwarp::parallel_gemm
