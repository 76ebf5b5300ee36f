// FlashInfer-Bench's data: a definition (JSON), whose axes are constant or given by each workload (a line of JSON), and
// tensors of workloads (safetensors). Its folders: definitions/TYPE/NAME.json, workloads/TYPE/NAME.jsonl. The format:
// https://github.com/flashinfer-ai/flashinfer-bench, docs/flashinfer-trace.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "any_suite.h"
#include "farwarp/base/status.h"
#include "farwarp/harness/case.h"

namespace farwarp::cli {

/// What definitions of ours have before names in tags: "farwarp:gemm-rs" is the operator, "farwarp:dtype=bf16" a
/// parameter.
inline constexpr std::string_view kOwnTag = "farwarp:";

struct Definition {
  struct Tensor {
    std::optional<std::vector<std::string>> shape;  ///< names of axes; nullopt: a scalar
    std::string dtype;
  };
  std::string name, op_type;
  std::vector<std::string> tags;
  std::map<std::string, std::optional<std::int64_t>> axes;  ///< nullopt: each workload gives it
  std::map<std::string, Tensor> inputs, outputs;
};

/// An error is one line, without the file's name.
Result<Definition> parse_definition(std::string_view text);

struct Workload {
  std::string uuid;
  std::map<std::string, std::int64_t> axes;  ///< those of the definition, constant ones included
  std::map<std::string, nlohmann::json> inputs;
};

/// A line of a file of workloads. Likewise.
Result<Workload> parse_workload(std::string_view line, const Definition& definition);

/// The operator of ours for it, with its parameters for this workload, the ranks (0: not stated). Tensors that decide
/// lengths are read from files in `root`.
struct Imported {
  std::string op;
  harness::Params params;
  int ranks = 0;
};
Result<Imported> import_workload(const Definition& definition, const Workload& workload,
                                 const std::filesystem::path& root);

/// The operator of ours for all its workloads; kInvalidArgument says what is allowed.
Result<std::string> operator_of(const Definition& definition);

/// A definition, its workloads, or a folder of both. In a folder, definitions without an operator of ours are skipped.
Result<LoadedSuite> load_flashinfer(const std::filesystem::path& path);

}  // namespace farwarp::cli
