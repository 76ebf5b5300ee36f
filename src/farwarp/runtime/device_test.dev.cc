// The kernels of device_test.cc.
#include "farwarp/runtime/device_test.h"

#include "farwarp/substrate/device.h"

namespace farwarp::FARWARP_TARGET {

FARWARP_KERNEL(device_test_add, AddArgs, kDeviceTestThreads) {
  const auto stride = static_cast<std::uint32_t>(num_blocks() * num_threads());
  for (auto i = static_cast<std::uint32_t>(block_index() * num_threads() + thread_index()); i < args.count;
       i += stride) {
    store(args.words + i, load(args.words + i) + args.amount);
  }
}

FARWARP_KERNEL(device_test_sum, SumArgs, kDeviceTestThreads) {
  const Shared<std::uint32_t> numbers(reinterpret_cast<std::uint32_t*>(block_shared().raw));
  store(numbers + thread_index(), static_cast<std::uint32_t>(thread_index()));
  block_sync();
  if (thread_index() == 0) {
    std::uint32_t sum = 0;
    for (int i = 0; i < num_threads(); ++i) sum += load(numbers + i);
    fetch_add<Order::relaxed, Scope::device>(args.total, sum);
  }
}

FARWARP_KERNEL(device_test_put, PutArgs, kDeviceTestThreads) {
  if (thread_index() == 0) store(args.destination, args.value);
}

}  // namespace farwarp::FARWARP_TARGET
