// The memory of a rank's device that the judge shares with a submission: all tensors of a call, with poison around
// them, and room for copies of the outputs.
#pragma once

#include <cstddef>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "farwarp/harness/submission.h"
#include "farwarp/runtime/device.h"

namespace farwarp::judge {

/// Move-only. Keeps its Device open.
class Arena {
 public:
  /// Room for the largest tensors, and for them to lie at other places in each call.
  /// `copied`: the rank copies outputs, when a call's work ends, to places of their own.
  static Result<Arena> create(Device& device, const std::vector<harness::Argument>& inputs,
                              const std::vector<harness::Argument>& outputs, bool copied);
  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&&) = delete;
  ~Arena();

  const MemoryHandle& handle() const { return handle_; }

  /// Chooses new places, fills everything with poison, then, unless `withhold`, copies the inputs there. Returns when
  /// that is done.
  Status prepare(Stream stream, const std::vector<harness::Argument>& inputs,
                 const std::vector<harness::Argument>& outputs, bool withhold);
  /// Copies the inputs of prepare() to their places.
  Status release_inputs(Stream stream);
  /// Where prepare() put the tensors: inputs, outputs, then copies of outputs.
  const std::vector<std::size_t>& offsets() const { return offsets_; }
  /// Copies the outputs, or their copies, back to the Case's. `difference` says which byte outside the outputs was
  /// written, or is empty.
  Status collect(Stream stream, const std::vector<harness::Argument>& inputs,
                 const std::vector<harness::Argument>& outputs, std::string& difference);

 private:
  Arena(Device& device, void* memory, const MemoryHandle& handle, bool copied)
      : device_(device.shared_from_this()), memory_(memory), handle_(handle), copied_(copied) {}
  std::vector<const harness::Argument*> all_of(const std::vector<harness::Argument>& inputs,
                                               const std::vector<harness::Argument>& outputs) const;
  void place(const std::vector<const harness::Argument*>& tensors);
  std::string first_difference(const std::vector<const harness::Argument*>& tensors, std::size_t input_count) const;

  std::shared_ptr<Device> device_;
  void* memory_;
  MemoryHandle handle_;
  bool copied_;
  std::vector<std::size_t> offsets_;
  std::vector<std::size_t> input_bytes_;
  std::vector<std::byte> before_, after_;  ///< the whole arena
  std::random_device random_;              // not a generator whose state could be guessed from earlier places
};

}  // namespace farwarp::judge
