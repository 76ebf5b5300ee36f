// Tensors in safetensors files, read-only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "farwarp/base/status.h"

namespace farwarp {

class MappedFile;

/// The tensors of a model's folder: model.safetensors, or model.safetensors.index.json and the files that it names.
/// Files are mapped, and read where they are touched. The format: https://github.com/huggingface/safetensors.
class Safetensors {
 public:
  struct Tensor {
    std::string dtype;  ///< "BF16", "F32", ...
    std::vector<std::int64_t> shape;
    std::span<const std::byte> data;
  };

  /// kInvalidArgument names the file, what is wrong and what is allowed.
  static Result<Safetensors> open(const std::string& folder);

  /// The tensors of one file, of any name. Likewise.
  static Result<Safetensors> open_file(const std::string& path);

  /// Their names. Reads the index, if there is one and no model.safetensors.
  static Result<std::set<std::string>> files_of(const std::string& folder);

  /// Calls see(name, tensor) for all tensors, in the order of names.
  void each(const std::function<void(const std::string&, const Tensor&)>& see) const {
    for (const auto& [name, tensor] : tensors_) see(name, tensor);
  }
  bool has(const std::string& name) const { return tensors_.contains(name); }
  /// A tensor of this type and shape. kInvalidArgument if there is none: it names the tensor, what it is and what is
  /// allowed. Lives as long as this.
  Result<Tensor> find(const std::string& name, const std::string& dtype, const std::vector<std::int64_t>& shape) const;

 private:
  Status add_file(const std::string& path);

  std::string folder_;
  std::vector<std::shared_ptr<const MappedFile>> files_;
  std::map<std::string, Tensor> tensors_;
};

}  // namespace farwarp
