#include "export_flashinfer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "export_forms.h"
#include "farwarp/harness/params.h"
#include "farwarp/machine/kept_file.h"
#include "flashinfer.h"

namespace farwarp::cli {
namespace {

using harness::Params;
using harness::SuiteEntry;
using Json = nlohmann::ordered_json;  // a definition's inputs have an order

bool has(const std::vector<std::string_view>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string value_of(const harness::OperatorInfo& op, const Params& params, std::string_view name) {
  if (const auto found = params.find(std::string(name)); found != params.end()) return found->second;
  const auto info = std::find_if(op.params.begin(), op.params.end(), [&](const auto& one) { return one.name == name; });
  return info == op.params.end() ? "" : info->default_value;
}

std::string type_of(std::string_view op) {
  std::string type(op);
  std::replace(type.begin(), type.end(), '-', '_');
  return type;
}

/// Entries with the same parameters, except for those that workloads give.
struct Group {
  Params fixed;
  std::vector<const SuiteEntry*> entries;
};

class Writer {
 public:
  Writer(const ExportForm& form, const harness::OperatorInfo& op) : form_(form), op_(op) {}

  std::string name_of(const Group& group) const {
    std::string name = "farwarp_" + type_of(form_.op);
    const auto add = [&](std::string_view what, const std::string& value) {
      name += fmt::format("_{}{}", what, value);
    };
    for (const std::string_view axis : form_.constant) add(axis, value_of(op_, group.fixed, axis));
    for (const auto& [key, value] : group.fixed) {
      if (!has(form_.constant, key)) add(key == "dtype" ? "" : key + "_", value);
    }
    std::replace_if(
        name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
    return name;
  }

  Json definition(const std::string& name, const Group& group) const {
    Json axes = Json::object(), inputs = Json::object();
    if (ranks_) axes["ranks"] = {{"type", "var"}, {"description", "devices that work together"}};
    for (const std::string_view axis : form_.variable) axes[std::string(axis)] = {{"type", "var"}};
    for (const std::string_view axis : form_.constant)
      axes[std::string(axis)] = {{"type", "const"}, {"value", std::stoll(value_of(op_, group.fixed, axis))}};
    Json constraints = Json::array();
    for (const std::string_view part : form_.parts) {
      axes[fmt::format("{}_of_rank", part)] = {{"type", "var"}};
      constraints.push_back(fmt::format("{0}_of_rank * ranks == {0}", part));
    }
    const bool fp16 = value_of(op_, group.fixed, "dtype") == "fp16",
               fp32 = value_of(op_, group.fixed, "dtype") == "fp32";
    const char* const dtype = fp32 ? "float32" : fp16 ? "float16" : "bfloat16";
    const auto tensor = [&](const ExportTensor& spec) {
      return Json{{"shape", spec.shape}, {"dtype", spec.dtype.empty() ? dtype : spec.dtype}};
    };
    for (const ExportTensor& spec : form_.inputs) inputs[std::string(spec.name)] = tensor(spec);
    if (has_bias(group)) inputs["bias"] = tensor({"bias", form_.bias});
    Json tags = Json::array();
    tags.push_back(fmt::format("{}{}", kOwnTag, form_.op));
    for (const auto& [key, value] : group.fixed) {
      if (!has(form_.constant, key)) tags.push_back(fmt::format("{}{}={}", kOwnTag, key, value));
    }
    Json root = {{"name", name},
                 {"description", form_.description},
                 {"op_type", type_of(form_.op)},
                 {"tags", tags},
                 {"axes", axes}};
    if (!constraints.empty()) root["constraints"] = constraints;
    root["inputs"] = inputs;
    root["outputs"] = {{std::string(form_.output.name), tensor(form_.output)}};
    root["reference"] = reference(group);
    return root;
  }

  Json workload(const std::string& name, const Group& group, const SuiteEntry& entry) const {
    Json axes = Json::object(), inputs = Json::object();
    if (ranks_) axes["ranks"] = entry.ranks;
    for (const std::string_view axis : form_.variable)
      axes[std::string(axis)] = std::stoll(value_of(op_, entry.params, axis));
    for (const std::string_view part : form_.parts)
      axes[fmt::format("{}_of_rank", part)] = std::stoll(value_of(op_, entry.params, part)) / entry.ranks;
    for (const ExportTensor& spec : form_.inputs) inputs[std::string(spec.name)] = {{"type", "random"}};
    if (has_bias(group)) inputs["bias"] = {{"type", "random"}};
    return {{"definition", name},
            {"solution", nullptr},
            {"workload",
             {{"uuid", fmt::format("{}-{}-{}-of-{}", harness::name_of(entry.group), entry.index, type_of(entry.op),
                                   entry.ranks)},
              {"axes", axes},
              {"inputs", inputs}}},
            {"evaluation", nullptr}};
  }

 private:
  bool has_bias(const Group& group) const {
    return !form_.bias.empty() && value_of(op_, group.fixed, "has_bias") == "1";
  }

  /// What the Python text takes from the constants.
  std::string reference(const Group& group) const {
    std::string text(form_.reference);
    constexpr std::string_view kExperts = "NUM_EXPERTS";
    const std::size_t at = text.find(kExperts);
    if (at != std::string::npos) text.replace(at, kExperts.size(), value_of(op_, group.fixed, "num_experts"));
    return text;
  }

  const ExportForm& form_;
  const harness::OperatorInfo& op_;
  bool ranks_ = form_.op != "gemm";
};

std::vector<Group> groups_of(const ExportForm& form, const std::vector<SuiteEntry>& entries) {
  std::map<Params, Group> groups;
  for (const SuiteEntry& entry : entries) {
    Params fixed = entry.params;
    std::erase_if(fixed, [&](const auto& param) { return has(form.variable, param.first); });
    Group& group = groups[fixed];
    group.fixed = fixed;
    group.entries.push_back(&entry);
  }
  std::vector<Group> all;
  for (auto& [fixed, group] : groups) all.push_back(std::move(group));
  return all;
}

}  // namespace

std::string exported_operators() {
  std::string names;
  for (const ExportForm& form : export_forms()) harness::append_to_list(names, ", ", form.op);
  return names;
}

Result<std::vector<std::string>> export_flashinfer(const std::string& op, const std::vector<SuiteEntry>& entries,
                                                   const std::filesystem::path& folder) {
  const auto forms = export_forms();
  const auto form = std::find_if(forms.begin(), forms.end(), [&](const ExportForm& one) { return one.op == op; });
  const harness::OperatorInfo* info = harness::find_operator(op);
  if (form == forms.end() || info == nullptr)
    return invalid_argument(
        fmt::format("--export-flashinfer is '{}': allowed is {}", harness::one_line(op), exported_operators()));
  const Writer writer(*form, *info);
  std::vector<std::string> files;
  for (const Group& group : groups_of(*form, entries)) {
    const std::string name = writer.name_of(group), type = type_of(op);
    std::string lines;
    for (const SuiteEntry* entry : group.entries) lines += writer.workload(name, group, *entry).dump() + "\n";
    const std::filesystem::path definition = folder / "definitions" / type / (name + ".json"),
                                workloads = folder / "workloads" / type / (name + ".jsonl");
    Status status = replace_text(definition, writer.definition(name, group).dump(2) + "\n");
    if (status.ok()) status = replace_text(workloads, lines);
    if (!status.ok()) return status;
    files.push_back(definition.string());
    files.push_back(workloads.string());
  }
  return files;
}

}  // namespace farwarp::cli
