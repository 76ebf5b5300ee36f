// A submission: somebody else's kernel, which makes the calls of a check in the operator's place. The Case makes inputs
// and judges outputs as for the operator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "farwarp/base/half.h"
#include "farwarp/base/status.h"
#include "farwarp/runtime/device.h"
#include "farwarp/world/host/bootstrap.h"

namespace farwarp::harness {

enum class ElementType : std::uint8_t { kF16, kBf16, kF32, kI32, kI64, kF8 };
/// "float16", "bfloat16", ...
std::string_view name_of(ElementType type);
std::size_t bytes_of(ElementType type);
ElementType element_type(DType type);

/// A tensor of the Case, row-major and contiguous.
struct Argument {
  std::string name;
  ElementType type = ElementType::kF32;
  std::vector<std::int64_t> shape;      ///< of this call
  std::vector<std::int64_t> most = {};  ///< the largest of any call; empty: `shape`
  void* data = nullptr;                 ///< device memory
  std::size_t bytes() const;
  std::size_t most_bytes() const;
};

/// Who makes the calls of a submission.
class Submission {
 public:
  virtual ~Submission() = default;
  /// One call as a rank of `bootstrap`: reads `inputs` and writes `outputs` before it returns. Collective. The tensors
  /// are the same in each call, except for `shape` and `data`.
  virtual Status call(Bootstrap& bootstrap, Device& device, Stream stream, const std::vector<Argument>& inputs,
                      const std::vector<Argument>& outputs) = 0;
};

/// The submission whose calls the Cases judge from now on; nullptr: they judge the operators. The bench of a submission
/// makes the calls of a check, has no contenders, and gives floors.
Submission* submission();
void set_submission(Submission* submission);

}  // namespace farwarp::harness
