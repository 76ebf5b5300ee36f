// What a definition says of each operator, in FlashInfer-Bench's terms.
#pragma once

#include <span>
#include <string_view>
#include <vector>

namespace farwarp::cli {

struct ExportTensor {
  std::string_view name;
  std::vector<std::string_view> shape;  ///< axes
  std::string_view dtype = "";          ///< empty: that of the case
};

struct ExportForm {
  std::string_view op;
  std::vector<std::string_view> variable;  ///< parameters that each workload gives
  std::vector<std::string_view> constant;  ///< parameters that are constant axes
  std::vector<std::string_view> parts;     ///< of these parameters each rank has a part: an axis NAME_of_rank
  std::vector<ExportTensor> inputs;
  std::vector<std::string_view> bias;  ///< the shape of the input `bias`, of a case with has_bias=1
  ExportTensor output;
  std::string_view description;
  std::string_view reference;  ///< Python; without bias, `bias` is None
};

std::span<const ExportForm> export_forms();

}  // namespace farwarp::cli
