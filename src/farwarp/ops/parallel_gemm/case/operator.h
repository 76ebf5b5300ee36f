// The interface between the check that all parallel products share and each operator.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "farwarp/base/status.h"
#include "farwarp/ops/parallel_gemm/desc.h"
#include "farwarp/world/host/world.h"

namespace farwarp::parallel_gemm {

/// One operator of one World, as the check calls it.
class CaseOperator {
 public:
  virtual ~CaseOperator() = default;
  /// Like the operator's own call: asynchronous, and it can be captured.
  virtual Status call(const void* x, const void* w, const void* bias, void* y, Stream stream) = 0;
  /// With ParallelGemmDesc::return_x: sets the buffer that gets x of all ranks, from the next call on.
  virtual void return_x_to(void* /*all_x*/) {}
  /// --fault drop_put:N. From the next call on, this rank does not send its N-th tile or piece (from 1); 0: it sends
  /// all.
  virtual void drop_put(int /*number*/) {}
  /// Collective; the streams that used it must be idle.
  virtual Status close() = 0;
  virtual std::string plan() const = 0;  ///< for people
  /// Replaces CaseKind::roundings; 0: does not.
  virtual int roundings() const { return 0; }
};

struct CaseKind {
  const char* name;  ///< "ag-gemm"
  const char* summary;
  Kind kind;
  /// how often, at most, a term is rounded to the dtype before it is in the result, including the last rounding
  int roundings;
  /// Bytes of the World's heap that create() takes.
  Result<std::int64_t> (*heap_bytes)(const ParallelGemmDesc&, const MachineShape&, int ranks);
  /// Collective; kMismatch on all ranks if their Descs differ.
  Result<std::unique_ptr<CaseOperator>> (*create)(World&, const ParallelGemmDesc&);
};

/// Registers the operator with the harness. Each operator's case.cc calls it during static initialisation.
bool register_case(const CaseKind& kind);

}  // namespace farwarp::parallel_gemm
