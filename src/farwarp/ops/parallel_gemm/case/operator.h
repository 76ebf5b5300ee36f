// The door between the check that parallel products share and each of the operators.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "farwarp/base/status.h"
#include "farwarp/ops/parallel_gemm/desc.h"
#include "farwarp/world/host/world.h"

namespace farwarp::parallel_gemm {

/// One operator of one World, as its check calls it.
class CaseOperator {
 public:
  virtual ~CaseOperator() = default;
  /// As the operator's own call: asynchronous, and it can be captured.
  virtual Status call(const void* x, const void* w, const void* bias, void* y, Stream stream) = 0;
  /// With ParallelGemmDesc::return_x: where x of all ranks goes, from the next call on.
  virtual void return_x_to(void* /*all_x*/) {}
  /// --fault drop_put:N. From the next call on, the N-th tile (from 1) that this rank would send is not sent; 0: all are.
  virtual void drop_put(int /*number*/) {}
  /// Collective; the streams that used it are idle.
  virtual Status close() = 0;
  virtual std::string plan() const = 0;  ///< for people
  /// CaseKind::roundings of this one, where they differ; 0: they do not.
  virtual int roundings() const { return 0; }
};

struct CaseKind {
  const char* name;  ///< "ag-gemm"
  const char* summary;
  Kind kind;
  int roundings;  ///< how often, at most, a term is rounded to the dtype on its way into the result, the last time included
  /// Bytes of the World's heap that create() takes.
  Result<std::int64_t> (*heap_bytes)(const ParallelGemmDesc&, const MachineShape&, int ranks);
  /// Collective. kMismatch on all ranks where their Descs differ.
  Result<std::unique_ptr<CaseOperator>> (*create)(World&, const ParallelGemmDesc&);
};

/// Registers the operator with the harness; each operator's case.cc calls it at static initialisation.
bool register_case(const CaseKind& kind);

}  // namespace farwarp::parallel_gemm
