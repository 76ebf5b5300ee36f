// Tensors in safetensors files, read-only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "farwarp/base/status.h"

namespace farwarp {

/// The tensors of a model's folder: model.safetensors, or model.safetensors.index.json and the files that it names. Files are mapped, and read where they
/// are touched. The format: https://github.com/huggingface/safetensors.
class Safetensors {
 public:
  struct Tensor {
    std::string dtype;  ///< "BF16", "F32", ...
    std::vector<std::int64_t> shape;
    std::span<const std::byte> data;
  };

  /// kInvalidArgument names the file, what is wrong and what is allowed.
  static Result<Safetensors> open(const std::string& folder);

  /// A tensor of this type and shape. kInvalidArgument if there is none: it names the tensor, what it is and what is allowed. Lives as long as this.
  Result<Tensor> find(const std::string& name, const std::string& dtype, const std::vector<std::int64_t>& shape) const;

 private:
  struct File;
  Status add_file(const std::string& path);

  std::string folder_;
  std::vector<std::shared_ptr<const File>> files_;
  std::map<std::string, Tensor> tensors_;
};

}  // namespace farwarp
