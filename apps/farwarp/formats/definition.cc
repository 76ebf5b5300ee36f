// Reads definitions and workloads: only what a case needs, and that strictly.
#include <fmt/format.h>

#include <limits>

#include "farwarp/base/json.h"
#include "flashinfer.h"

namespace farwarp::cli {
namespace {

using nlohmann::json;

constexpr std::int64_t kLargest = std::numeric_limits<std::int32_t>::max();

/// Reads one object; keeps the first error.
class Reader {
 public:
  const Status& status() const { return status_; }

  void reject(std::string_view key, const json& value, std::string_view allowed) {
    if (status_.ok())
      status_ = invalid_argument(fmt::format("{} is {}: allowed is {}", key, shown_json(value), allowed));
  }
  std::string text(std::string_view key, const json& value) {
    if (value.is_string() && !value.get_ref<const std::string&>().empty()) return value.get<std::string>();
    reject(key, value, "a string that is not empty");
    return {};
  }
  std::int64_t integer(std::string_view key, const json& value) {
    const bool fits = value.is_number_unsigned() && value.get<std::uint64_t>() <= kLargest;
    if (fits) return value.get<std::int64_t>();
    reject(key, value, fmt::format("an integer in 0..{}", kLargest));
    return 0;
  }
  /// An object; an empty one in its place after an error.
  json object(std::string_view key, const json& value) {
    if (value.is_object()) return value;
    reject(key, value, "an object");
    return json::object();
  }

 private:
  Status status_;
};

json member(const json& object, const char* key) { return object.is_object() ? object.value(key, json()) : json(); }

std::map<std::string, Definition::Tensor> read_tensors(Reader& reader, const char* what, const json& root,
                                                       const Definition& definition) {
  std::map<std::string, Definition::Tensor> tensors;
  const json objects = reader.object(what, member(root, what));  // items() keeps a reference to it
  for (const auto& [name, value] : objects.items()) {
    const std::string where = fmt::format("{}.{}", what, name);
    Definition::Tensor tensor;
    tensor.dtype = reader.text(where + ".dtype", member(reader.object(where, value), "dtype"));
    const json shape = member(value, "shape");
    if (!shape.is_null()) {
      tensor.shape.emplace();
      if (!shape.is_array()) reader.reject(where + ".shape", shape, "null or a list of axes");
      for (const json& axis : shape.is_array() ? shape : json::array()) {
        if (!axis.is_string() || !definition.axes.contains(axis.get<std::string>())) {
          reader.reject(where + ".shape", axis, "a name in axes");
        } else {
          tensor.shape->push_back(axis.get<std::string>());
        }
      }
    }
    tensors.emplace(name, std::move(tensor));
  }
  return tensors;
}

}  // namespace

Result<Definition> parse_definition(std::string_view text) {
  const auto root = parse_json(text);
  if (!root.ok()) return root.status();
  if (!root->is_object()) return invalid_argument("it is no JSON object");
  Reader reader;
  Definition definition;
  definition.name = reader.text("name", member(*root, "name"));
  definition.op_type = reader.text("op_type", member(*root, "op_type"));
  const json axes = reader.object("axes", member(*root, "axes"));
  for (const auto& [name, axis] : axes.items()) {
    const std::string where = "axes." + name;
    const json type = member(axis, "type");
    auto& value = definition.axes[name];
    if (type == "const") {
      value = reader.integer(where + ".value", member(axis, "value"));
    } else if (type != "var") {
      reader.reject(where + ".type", type, "\"const\" or \"var\"");
    }
  }
  definition.inputs = read_tensors(reader, "inputs", *root, definition);
  definition.outputs = read_tensors(reader, "outputs", *root, definition);
  const json tags = member(*root, "tags");
  if (!tags.is_null() && !tags.is_array()) reader.reject("tags", tags, "a list of strings");
  for (const json& tag : tags.is_array() ? tags : json::array()) definition.tags.push_back(reader.text("tags", tag));
  if (!reader.status().ok()) return reader.status();
  return definition;
}

Result<Workload> parse_workload(std::string_view line, const Definition& definition) {
  const auto root = parse_json(line);
  if (!root.ok()) return root.status();
  Reader reader;
  const json name = member(*root, "definition");
  if (name != definition.name) reader.reject("definition", name, fmt::format("\"{}\"", definition.name));
  const json given = reader.object("workload", member(*root, "workload"));
  Workload workload;
  workload.uuid = reader.text("workload.uuid", member(given, "uuid"));
  const json axes = reader.object("workload.axes", member(given, "axes"));
  for (const auto& [axis, value] : axes.items()) {
    if (!definition.axes.contains(axis)) reader.reject("workload.axes." + axis, value, "an axis of the definition");
  }
  for (const auto& [axis, constant] : definition.axes) {
    const std::string where = "workload.axes." + axis;
    const json value = member(axes, axis.c_str());
    workload.axes[axis] = constant ? *constant : reader.integer(where, value);
    if (constant && !value.is_null() && value != *constant) reader.reject(where, value, std::to_string(*constant));
  }
  const json inputs = reader.object("workload.inputs", member(given, "inputs"));
  for (const auto& [input, value] : inputs.items()) {
    if (!definition.inputs.contains(input))
      reader.reject("workload.inputs." + input, value, "an input of the definition");
    const json type = member(value, "type");
    if (type != "random" && type != "scalar" && type != "safetensors")
      reader.reject(fmt::format("workload.inputs.{}.type", input), type, "\"random\", \"scalar\" or \"safetensors\"");
    workload.inputs[input] = value;
  }
  for (const auto& [input, tensor] : definition.inputs) {
    if (!workload.inputs.contains(input)) reader.reject("workload.inputs." + input, json(), "an object with its type");
  }
  if (!reader.status().ok()) return reader.status();
  return workload;
}

}  // namespace farwarp::cli
