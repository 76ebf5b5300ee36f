#include "farwarp/harness/cublas_product.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

namespace farwarp::harness {
namespace {

constexpr std::size_t kWorkspace = std::size_t{32} << 20;  // what cuBLAS takes on Hopper
constexpr int kTries = 5;

}  // namespace

void CublasProduct::Release::operator()(cublas_lt::Matmul* matmul) const {
  (void)device->while_current([matmul] {
    delete matmul;
    return Status();
  });
}

Result<CublasProduct> CublasProduct::create(Device& device, const ProductShape& shape) {
  if (device.target() != TargetKind::kCuda) return unavailable("cuBLASLt runs on NVIDIA's devices");
  const auto library = cublas_lt::Library::open();
  if (!library.ok()) return library.status();
  CublasProduct product(device, **library);
  Status status = device.while_current([&] {
    auto made =
        cublas_lt::Matmul::create(**library, shape.m, shape.n, shape.k, shape.dtype, shape.has_bias, kWorkspace);
    if (made.ok()) product.matmul_ = {new cublas_lt::Matmul(std::move(*made)), Release{&device}};
    return made.status();
  });
  if (!status.ok()) return status;
  auto workspace = DeviceBuffer::create(device, kWorkspace);
  if (!workspace.ok()) return workspace.status();
  product.workspace_ = std::move(*workspace);
  return product;
}

Status CublasProduct::enqueue(const void* x, const void* w, const void* bias, void* y, Stream stream) {
  return device_->while_current([&] {
    return matmul_->run(algorithm_, x, w, bias, y, workspace_.get(),
                        static_cast<cublas_lt::StreamHandle>(stream.handle));
  });
}

Status CublasProduct::choose_fastest(DeviceTimer& timer, const void* x, const void* w, const void* bias, void* y,
                                     Stream stream) {
  double best_us = 0;
  int best = 0;
  for (algorithm_ = 0; algorithm_ < matmul_->algorithms(); ++algorithm_) {
    std::vector<double> samples;
    for (int i = -1; i < kTries; ++i) {
      const auto us = timer.sample([] { return Status(); }, [&] { return enqueue(x, w, bias, y, stream); }, true);
      if (!us.ok()) return us.status();
      if (i >= 0) samples.push_back(*us);
    }
    const double median = summarise(std::move(samples)).median;
    if (algorithm_ == 0 || median < best_us) {
      best_us = median;
      best = algorithm_;
    }
  }
  algorithm_ = best;
  return {};
}

std::string CublasProduct::describe() const {
  return fmt::format("{}, algorithm {} of {}", library_->describe(), algorithm_ + 1, matmul_->algorithms());
}

}  // namespace farwarp::harness
