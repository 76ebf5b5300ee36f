// What makes the calls of a check in the operator's place: somebody else's kernel. The Case makes inputs and judges
// outputs as for the operator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "farwarp/base/status.h"
#include "farwarp/harness/case.h"
#include "farwarp/harness/device_buffer.h"
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

class Substitute {
 public:
  virtual ~Substitute() = default;
  /// One call as a rank of `bootstrap`: reads `inputs` and writes `outputs` before it returns. Collective. The tensors
  /// are the same in each call, except for `shape` and `data`.
  virtual Status call(Bootstrap& bootstrap, Device& device, Stream stream, const std::vector<Argument>& inputs,
                      const std::vector<Argument>& outputs) = 0;
};

/// Who makes the calls of the cases that run now; nullptr: the operators. A bench has no contenders then, and its calls
/// are those of a check.
Substitute* substitute();
void set_substitute(Substitute* substitute);

/// Says that a substitute can make the calls of this operator's cases, if these parameters have these values. Returns
/// true. For initialisers.
bool allow_substitutes(const std::string& op, Params fixed);
/// nullptr: it cannot.
const Params* fixed_for_substitutes(const std::string& op);

}  // namespace farwarp::harness
