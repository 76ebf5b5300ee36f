// A table of plans: what can be read is written as it was.
#include <vector>

#include "farwarp/ops/parallel_gemm/dispatch/plan_table.h"
#include "folder.h"

namespace farwarp::parallel_gemm {
std::vector<std::string_view> built_in_plans() { return {}; }
}  // namespace farwarp::parallel_gemm

using namespace farwarp;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto table = parallel_gemm::parse_plans(fuzz::text_of(data, size));
  if (!table.ok()) return 0;
  const std::string text = to_json(*table);
  const auto again = parallel_gemm::parse_plans(text);
  if (!again.ok() || to_json(*again) != text) std::abort();
  return 0;
}
