// A Qwen3 in the files of Hugging Face: config.json, and which tensor has which name.
#pragma once

#include <string>

#include "farwarp/models/qwen3/config.h"

namespace farwarp {

/// Of `folder`/config.json. kInvalidArgument names the field, its value and what is allowed.
Result<Qwen3Config> read_qwen3_config(const std::string& folder);

namespace qwen3 {
/// `number`: tensor_number().
std::string tensor_name(int number, int layers);
}  // namespace qwen3

}  // namespace farwarp
