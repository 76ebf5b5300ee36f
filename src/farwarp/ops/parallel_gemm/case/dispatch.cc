#include "farwarp/ops/parallel_gemm/case/dispatch.h"

#include <fmt/format.h>

#include <utility>

#include "farwarp/ops/parallel_gemm/dispatch/parallel_gemm.h"

namespace farwarp::parallel_gemm {
namespace {

class DispatchedCase : public CaseOperator {
 public:
  explicit DispatchedCase(ParallelGemm op) : op_(std::move(op)) {}
  Status call(const void* x, const void* w, const void* bias, void* y, Stream stream) override {
    return op_(x, w, bias, y, stream, all_x_);
  }
  void return_x_to(void* all_x) override { all_x_ = all_x; }
  void drop_put(int number) override { op_.drop_put(number); }
  Status close() override { return op_.close(); }
  std::string plan() const override {
    return fmt::format("dispatcher: {} ({}); {}", name_of(op_.path()), op_.why(), op_.plan());
  }
  int roundings() const override { return op_.roundings(); }

 private:
  ParallelGemm op_;
  void* all_x_ = nullptr;
};

}  // namespace

Result<std::unique_ptr<CaseOperator>> create_dispatched(World& world, Kind kind, const ParallelGemmDesc& desc,
                                                        Path path) {
  auto op = ParallelGemm::create(world, kind, desc, path);
  if (!op.ok()) return op.status();
  return std::unique_ptr<CaseOperator>(new DispatchedCase(std::move(*op)));
}

}  // namespace farwarp::parallel_gemm
