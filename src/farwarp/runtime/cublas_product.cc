#include "farwarp/runtime/cublas_product.h"

#include <fmt/format.h>

#include <utility>

namespace farwarp {
namespace {

constexpr std::size_t kWorkspace = std::size_t{32} << 20;  // the size that cuBLAS itself uses on Hopper

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
  auto workspace = DeviceMemory::create(device, kWorkspace);
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

std::string CublasProduct::describe() const {
  return fmt::format("{}, algorithm {} of {}", library_->describe(), algorithm_ + 1, matmul_->algorithms());
}

}  // namespace farwarp
