#include "flashinfer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "farwarp/base/json.h"
#include "farwarp/harness/params.h"
#include "farwarp/harness/problem.h"
#include "farwarp/models/safetensors.h"

namespace farwarp::cli {
namespace {

using harness::Params;
using nlohmann::json;

constexpr const char* kAllowedTypes = "gemm, gqa_paged or gqa_ragged";

bool starts_with(const std::string& text, std::string_view prefix) { return text.starts_with(prefix); }

/// Turns one workload of a definition into a case; keeps the first error.
class Importer {
 public:
  Importer(const Definition& definition, const Workload& workload, const std::filesystem::path& root)
      : definition_(definition), workload_(workload), root_(root) {}

  Result<Imported> run(const std::string& op) {
    imported_.op = op;
    if (!own_tags().empty()) {
      read_own();
    } else if (op == "gemm") {
      read_gemm();
    } else {
      read_attention();
    }
    if (!status_.ok()) return status_;
    return std::move(imported_);
  }

 private:
  void fail(const std::string& what) {
    if (status_.ok()) status_ = invalid_argument(harness::one_line(what));
  }
  void set(const char* name, std::int64_t value) { imported_.params[name] = std::to_string(value); }

  std::vector<std::string> own_tags() const {
    std::vector<std::string> tags;
    for (const std::string& tag : definition_.tags) {
      if (starts_with(tag, kOwnTag)) tags.push_back(tag.substr(kOwnTag.size()));
    }
    return tags;
  }

  /// A definition that farwarp wrote: its parameters are axes and tags by their names.
  void read_own() {
    const harness::OperatorInfo* op = harness::find_operator(imported_.op);
    for (const std::string& tag : own_tags()) {
      const std::size_t equals = tag.find('=');
      if (equals != std::string::npos) imported_.params[tag.substr(0, equals)] = tag.substr(equals + 1);
    }
    for (const auto& [axis, value] : workload_.axes) {
      const bool parameter = std::any_of(op->params.begin(), op->params.end(),
                                         [&, name = axis](const auto& info) { return info.name == name; });
      if (parameter) set(axis.c_str(), value);
    }
    const auto ranks = workload_.axes.find("ranks");
    if (ranks == workload_.axes.end()) return;
    if (ranks->second < 1 || ranks->second > harness::kMaxSuiteRanks)
      return fail(fmt::format("workload.axes.ranks is {}: allowed is an integer in 1..{}", ranks->second,
                              harness::kMaxSuiteRanks));
    imported_.ranks = static_cast<int>(ranks->second);
    constexpr std::string_view kPart = "_of_rank";
    for (const auto& [axis, value] : workload_.axes) {
      if (!axis.ends_with(kPart)) continue;
      const auto whole = workload_.axes.find(axis.substr(0, axis.size() - kPart.size()));
      if (whole != workload_.axes.end() && whole->second != value * ranks->second)
        fail(fmt::format("workload.axes.{} is {}: allowed is {} divided by ranks", axis, value, whole->first));
    }
  }

  const Definition::Tensor* tensor(const char* name, std::size_t rank) {
    const auto found = definition_.inputs.find(name);
    if (found == definition_.inputs.end()) {
      fail(fmt::format("inputs.{} is missing", name));
    } else if (!found->second.shape || found->second.shape->size() != rank) {
      fail(fmt::format("inputs.{}.shape has other than {} axes", name, rank));
    } else {
      return &found->second;
    }
    return nullptr;
  }
  std::int64_t extent(const Definition::Tensor* of, std::size_t dimension) const {
    return of == nullptr ? 0 : workload_.axes.at((*of->shape)[dimension]);
  }
  void read_dtype(const char* name) {
    const std::string& dtype = definition_.inputs.at(name).dtype;
    if (dtype != "bfloat16" && dtype != "float16")
      return fail(fmt::format("inputs.{}.dtype is {}: allowed is float16 or bfloat16", name, shown_json(dtype)));
    const std::string value = dtype == "bfloat16" ? "bf16" : "fp16";
    const auto known = imported_.params.find("dtype");
    if (known != imported_.params.end() && known->second != value)
      return fail(
          fmt::format("inputs.{}.dtype is {}: allowed is the dtype of the other inputs", name, shown_json(dtype)));
    imported_.params["dtype"] = value;
  }
  void only_inputs(std::initializer_list<std::string_view> allowed) {
    for (const auto& [name, spec] : definition_.inputs) {
      if (std::find(allowed.begin(), allowed.end(), name) != allowed.end()) continue;
      std::string names;
      for (const std::string_view one : allowed) harness::append_to_list(names, ", ", one);
      return fail(fmt::format("inputs has {}: allowed is {}", shown_json(json(name)), names));
    }
  }

  void read_gemm() {
    only_inputs({"A", "B"});
    const Definition::Tensor *a = tensor("A", 2), *b = tensor("B", 2);
    if (!status_.ok()) return;
    read_dtype("A");
    read_dtype("B");
    set("m", extent(a, 0));
    set("n", extent(b, 0));
    set("k", extent(a, 1));
    if (extent(b, 1) != extent(a, 1)) fail("inputs.B.shape has another second axis than inputs.A.shape");
  }

  /// q is [rows, heads, head_dim]; k and v are [rows, kv_heads, head_dim], or in pages.
  void read_attention() {
    const bool paged = definition_.op_type == "gqa_paged", decode = imported_.op == "flash-decode";
    const char* const keys = paged ? "k_cache" : "k";
    only_inputs(
        {"q", keys, paged ? "v_cache" : "v", "qo_indptr", "kv_indptr", "kv_indices", "kv_last_page_len", "sm_scale"});
    const Definition::Tensor *q = tensor("q", 3), *k = tensor(keys, paged ? 4 : 3);
    if (!status_.ok()) return;
    for (const char* name : {"q", keys}) read_dtype(name);
    const std::size_t heads = paged ? 2 : 1;
    const std::int64_t head_dim = extent(q, 2), page_size = paged ? extent(k, 1) : 0;
    if (extent(k, heads + 1) != head_dim) fail("k has another head_dim than q");
    read_scale(head_dim);
    const auto spans = lengths_of("kv_indptr");
    if (!status_.ok()) return;
    auto key_lengths = spans;
    std::int64_t most_pages = 1;
    if (paged) {
      if (page_size == 0) return fail("the axis page_size is 0: allowed is 1 or more");
      most_pages = std::max<std::int64_t>(1, *std::max_element(spans.begin(), spans.end()));
      for (std::int64_t& length : key_lengths) length *= page_size;
      if (definition_.inputs.contains("kv_last_page_len")) shorten(page_size, spans, key_lengths);
    }
    set(decode ? "query_heads" : "heads", extent(q, 1));
    set("kv_heads", extent(k, heads));
    set("head_dim", head_dim);
    set("batch", static_cast<std::int64_t>(spans.size()));
    if (paged) set("page_size", page_size);
    if (decode) {
      if (extent(q, 0) != static_cast<std::int64_t>(spans.size()))
        return fail(fmt::format("q has {} rows: allowed is the number of sequences of kv_indptr, {}", extent(q, 0),
                                spans.size()));
      set("max_keys", most_pages * page_size);
      imported_.params["lengths"] = list_of(key_lengths);
      return;
    }
    const auto query_lengths = lengths_of("qo_indptr");
    if (!status_.ok()) return;
    if (query_lengths.size() != spans.size()) return fail("qo_indptr and kv_indptr have other numbers of sequences");
    set("queries", std::max<std::int64_t>(1, *std::max_element(query_lengths.begin(), query_lengths.end())));
    set("keys", std::max<std::int64_t>(1, *std::max_element(key_lengths.begin(), key_lengths.end())));
    imported_.params["query_lengths"] = list_of(query_lengths);
    imported_.params["key_lengths"] = list_of(key_lengths);
    imported_.params["causal"] = definition_.name.find("causal") != std::string::npos ? "1" : "0";
  }

  /// Our kernels scale by the root of head_dim.
  void read_scale(std::int64_t head_dim) {
    const auto given = workload_.inputs.find("sm_scale");
    if (given == workload_.inputs.end() || !status_.ok()) return;
    const double allowed = 1 / std::sqrt(static_cast<double>(head_dim));
    const json value = given->second.value("value", json());
    if (given->second.value("type", "") == "scalar" && value.is_number() &&
        std::abs(value.get<double>() - allowed) <= 1e-3 * allowed)
      return;
    fail(fmt::format("workload.inputs.sm_scale is {}: allowed is the scalar {:.6g} (1 / sqrt(head_dim))",
                     shown_json(given->second), allowed));
  }

  /// A list of integers in a file of tensors.
  std::vector<std::int64_t> integers(const char* name) {
    const auto given = workload_.inputs.find(name);
    if (given == workload_.inputs.end()) {
      fail(fmt::format("inputs.{} is missing", name));
      return {};
    }
    const json& spec = given->second;
    const json path = spec.value("path", json()), key = spec.value("tensor_key", json());
    if (spec.value("type", "") != "safetensors" || !path.is_string() || !key.is_string()) {
      fail(fmt::format("workload.inputs.{} is {}: allowed is a safetensors file with path and tensor_key", name,
                       shown_json(spec)));
      return {};
    }
    const std::string file = (root_ / path.get<std::string>()).string();
    const auto tensors = Safetensors::open_file(file);
    if (!tensors.ok()) {
      fail(tensors.status().message());
      return {};
    }
    std::vector<std::int64_t> values;
    const std::string wanted = key.get<std::string>();
    bool found = false;
    tensors->each([&](const std::string& each, const Safetensors::Tensor& tensor) {
      if (each != wanted || tensor.shape.size() != 1 || (tensor.dtype != "I32" && tensor.dtype != "I64")) return;
      found = true;
      const std::size_t bytes = tensor.dtype == "I32" ? 4 : 8;
      for (std::size_t at = 0; at + bytes <= tensor.data.size(); at += bytes) {
        std::int32_t narrow = 0;
        std::int64_t wide = 0;
        std::memcpy(bytes == 4 ? static_cast<void*>(&narrow) : &wide, tensor.data.data() + at, bytes);
        values.push_back(bytes == 4 ? narrow : wide);
      }
    });
    if (!found) fail(fmt::format("{}: tensor '{}' is missing: allowed is a list of int32 or int64", file, wanted));
    return values;
  }

  /// Differences of a list of starts that begins with 0.
  std::vector<std::int64_t> lengths_of(const char* name) {
    const auto starts = integers(name);
    if (!status_.ok()) return {};
    if (starts.size() < 2 || starts[0] != 0 || !std::is_sorted(starts.begin(), starts.end()) ||
        starts.back() > (std::int64_t{1} << 31)) {
      fail(fmt::format("{}: allowed are two or more numbers from 0 on that do not decrease", name));
      return {};
    }
    std::vector<std::int64_t> lengths;
    for (std::size_t i = 1; i < starts.size(); ++i) lengths.push_back(starts[i] - starts[i - 1]);
    return lengths;
  }

  void shorten(std::int64_t page_size, const std::vector<std::int64_t>& pages, std::vector<std::int64_t>& lengths) {
    const auto last = integers("kv_last_page_len");
    if (!status_.ok()) return;
    for (std::size_t i = 0; i < pages.size(); ++i) {
      if (pages[i] == 0) continue;
      if (i >= last.size() || last[i] < 1 || last[i] > page_size)
        return fail(fmt::format("kv_last_page_len[{}]: allowed is 1..{}", i, page_size));
      lengths[i] += last[i] - page_size;
    }
  }

  static std::string list_of(const std::vector<std::int64_t>& values) {
    std::string list;
    for (const std::int64_t value : values) harness::append_to_list(list, "+", std::to_string(value));
    return list;
  }

  const Definition& definition_;
  const Workload& workload_;
  const std::filesystem::path& root_;
  Status status_;
  Imported imported_;
};

}  // namespace

Result<std::string> operator_of(const Definition& definition) {
  std::string op;
  for (const std::string& tag : definition.tags) {
    if (starts_with(tag, kOwnTag) && tag.find('=') == std::string::npos) op = tag.substr(kOwnTag.size());
  }
  const bool own = !op.empty();
  if (definition.op_type == "gemm" && !own) op = "gemm";
  if (definition.op_type == "gqa_paged" && !own)
    op = definition.inputs.contains("qo_indptr") ? "attention" : "flash-decode";
  if (definition.op_type == "gqa_ragged" && !own) op = "attention";
  if (op.empty())
    return invalid_argument(
        fmt::format("op_type is {}: allowed is {}", shown_json(json(definition.op_type)), kAllowedTypes));
  if (harness::find_operator(op) == nullptr)
    return invalid_argument(
        fmt::format("the definition is of operator '{}', which is not in this build", harness::one_line(op)));
  return op;
}

Result<Imported> import_workload(const Definition& definition, const Workload& workload,
                                 const std::filesystem::path& root) {
  const auto op = operator_of(definition);
  if (!op.ok()) return op.status();
  auto imported = Importer(definition, workload, root).run(*op);
  if (!imported.ok()) return imported.status();
  const auto made = harness::find_operator(*op)->make(imported->params);
  if (!made.ok()) return made.status();
  return imported;
}

}  // namespace farwarp::cli
