// An example of a user's program: a World of 4 ranks on the emulator, and a call of every operator.
#include <farwarp/world/host/bootstrap.h>

#include <cstdio>
#include <memory>
#include <utility>

#include "consumer.h"

namespace {

using farwarp::Status;

constexpr int kRanks = 4;

Status run_rank(std::shared_ptr<farwarp::Bootstrap> bootstrap, farwarp::TargetKind target) {
  auto created = farwarp::World::create(bootstrap, {.target = target, .heap_bytes = std::size_t{16} << 20});
  if (!created.ok()) return created.status();
  farwarp::World world = std::move(created).value();
  Status status = call_moe_all_to_all(world);
  if (status.ok()) status = call_moe_layer(world);
  if (status.ok()) status = call_products(world);
  if (status.ok()) status = call_attention(world);
  if (status.ok()) status = call_all_reduce(world);
  return status.ok() ? call_flash_decode(world) : status;
}

}  // namespace

int main() {
  for (const auto target : {farwarp::TargetKind::kEmuSm90, farwarp::TargetKind::kEmuGfx942}) {
    const Status status = farwarp::run_ranks(
        kRanks, [target](std::shared_ptr<farwarp::Bootstrap> bootstrap) { return run_rank(bootstrap, target); });
    const auto name = farwarp::name_of(target);
    std::printf("%.*s: %s\n", static_cast<int>(name.size()), name.data(), status.to_string().c_str());
    if (!status.ok()) return 1;
  }
  return 0;
}
