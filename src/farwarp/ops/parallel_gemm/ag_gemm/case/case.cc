// ag-gemm as the harness sees it.
#include "farwarp/ops/parallel_gemm/ag_gemm/ag_gemm.h"
#include "farwarp/ops/parallel_gemm/case/operator.h"

namespace farwarp::parallel_gemm {
namespace {

class AllGatherCase : public CaseOperator {
 public:
  explicit AllGatherCase(AllGatherGemm op) : op_(std::move(op)) {}
  Status call(const void* x, const void* w, const void* bias, void* y, Stream stream) override {
    return op_(x, w, bias, y, stream, all_x_);
  }
  void return_x_to(void* all_x) override { all_x_ = all_x; }
  void drop_put(int number) override { op_.drop_put(number); }
  Status close() override { return op_.close(); }
  std::string plan() const override { return op_.plan().to_string(); }

 private:
  AllGatherGemm op_;
  void* all_x_ = nullptr;
};

Result<std::int64_t> heap_bytes(const ParallelGemmDesc& desc, const MachineShape& shape, int ranks) {
  const auto plan = plan_ag_gemm(desc, shape, ranks);
  if (!plan.ok()) return plan.status();
  return plan->heap_bytes;
}

Result<std::unique_ptr<CaseOperator>> create(World& world, const ParallelGemmDesc& desc) {
  auto op = AllGatherGemm::create(world, desc);
  if (!op.ok()) return op.status();
  return std::unique_ptr<CaseOperator>(new AllGatherCase(std::move(*op)));
}

[[maybe_unused]] const bool kRegistered = register_case(
    {"ag-gemm", "all ranks' rows times each rank's own weights", Kind::kAllGather, 1, heap_bytes, create});

}  // namespace
}  // namespace farwarp::parallel_gemm
