#include "group.h"

#include <fmt/format.h>

namespace farwarp::cli {

Result<std::shared_ptr<Bootstrap>> join_group(std::int64_t& ranks, std::chrono::milliseconds timeout) {
  if (!environment_has_ranks()) return std::shared_ptr<Bootstrap>();
  auto group = bootstrap_from_environment(timeout);
  if (!group.ok()) return group.status();
  const int size = (*group)->size();
  if (ranks != 0 && ranks != size)
    return invalid_argument(fmt::format("--ranks is '{}': allowed in a launched group is its size, {}", ranks, size));
  ranks = size;
  return group;
}

}  // namespace farwarp::cli
