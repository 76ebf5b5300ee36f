#include "farwarp/models/safetensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <boost/interprocess/file_mapping.hpp>
#include <boost/interprocess/mapped_region.hpp>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "farwarp/base/arguments.h"

namespace farwarp {
namespace {

using nlohmann::json;

constexpr std::uint64_t kMostHeaderBytes = 100'000'000;  // as in the reference implementation
constexpr std::size_t kLengthBytes = 8;

Status wrong(const std::string& path, const std::string& what) { return invalid_argument(path + ": " + what); }

/// -1: unknown.
std::int64_t bytes_of(const std::string& dtype) {
  static const std::map<std::string, std::int64_t> kBytes = {{"F64", 8}, {"F32", 4}, {"F16", 2},     {"BF16", 2},
                                                             {"I64", 8}, {"I32", 4}, {"F8_E4M3", 1}, {"F8_E5M2", 1},
                                                             {"I8", 1},  {"U8", 1}};
  const auto found = kBytes.find(dtype);
  return found == kBytes.end() ? -1 : found->second;
}

bool is_count(const json& value) { return value.is_number_unsigned() && value.get<std::uint64_t>() < (1ull << 48); }

}  // namespace

struct Safetensors::File {
  boost::interprocess::file_mapping mapping;
  boost::interprocess::mapped_region region;
};

Status Safetensors::add_file(const std::string& path) {
  auto file = std::make_shared<File>();
  try {
    file->mapping = {path.c_str(), boost::interprocess::read_only};
    file->region = {file->mapping, boost::interprocess::read_only};
  } catch (const boost::interprocess::interprocess_exception& error) {
    return wrong(path, fmt::format("cannot be read: {}", error.what()));
  }
  const auto* bytes = static_cast<const std::byte*>(file->region.get_address());
  const std::size_t size = file->region.get_size();
  std::uint64_t header = 0;
  if (size < kLengthBytes) return wrong(path, fmt::format("has {} bytes; allowed: at least {}", size, kLengthBytes));
  std::memcpy(&header, bytes, kLengthBytes);
  if (header > kMostHeaderBytes || header > size - kLengthBytes)
    return wrong(path, fmt::format("its header has {} bytes; allowed: up to {}", header,
                                   std::min<std::uint64_t>(kMostHeaderBytes, size - kLengthBytes)));
  const auto* text = reinterpret_cast<const char*>(bytes) + kLengthBytes;
  const json table = json::parse(text, text + header, nullptr, false);
  if (!table.is_object()) return wrong(path, "its header is no JSON object");
  const std::span<const std::byte> data(bytes + kLengthBytes + header, size - kLengthBytes - header);
  for (const auto& [name, entry] : table.items()) {
    if (name == "__metadata__") continue;
    const auto tensor_is = [&](const std::string& what) {
      return wrong(path, fmt::format("tensor '{}' {}", name, what));
    };
    const json offsets = entry.is_object() ? entry.value("data_offsets", json()) : json();
    if (!offsets.is_array() || offsets.size() != 2 || !is_count(offsets[0]) || !is_count(offsets[1]) ||
        !entry.value("dtype", json()).is_string() || !entry.value("shape", json()).is_array())
      return tensor_is("has no dtype, shape and two data_offsets");
    const auto begin = offsets[0].get<std::uint64_t>(), end = offsets[1].get<std::uint64_t>();
    if (begin > end || end > data.size())
      return tensor_is(fmt::format("is at bytes {} to {}; the file has {}: it is truncated", begin, end, data.size()));
    Tensor tensor{entry["dtype"].get<std::string>(), {}, data.subspan(begin, end - begin)};
    std::int64_t expected = bytes_of(tensor.dtype);
    for (const json& extent : entry["shape"]) {
      if (!is_count(extent)) return tensor_is("has a shape that is no list of counts");
      tensor.shape.push_back(extent.get<std::int64_t>());
      if (__builtin_mul_overflow(expected, tensor.shape.back(), &expected)) return tensor_is("is too large");
    }
    if (expected >= 0 && expected != static_cast<std::int64_t>(end - begin))
      return tensor_is(fmt::format("has {} bytes; its dtype and shape need {}", end - begin, expected));
    if (!tensors_.emplace(name, std::move(tensor)).second) return tensor_is("is in two files");
  }
  files_.push_back(std::move(file));
  return {};
}

Result<Safetensors> Safetensors::open(const std::string& folder) {
  Safetensors tensors;
  tensors.folder_ = folder;
  const std::string index = folder + "/model.safetensors.index.json";
  std::set<std::string> files = {"model.safetensors"};
  if (std::filesystem::exists(index)) {
    std::ifstream stream(index);
    const json table = json::parse(stream, nullptr, false);
    const json map = table.is_object() ? table.value("weight_map", json()) : json();
    if (!map.is_object()) return wrong(index, "has no object 'weight_map'");
    files.clear();
    for (const auto& [name, file] : map.items()) {
      if (!file.is_string() || file.get<std::string>().find('/') != std::string::npos)
        return wrong(index, fmt::format("weight_map['{}'] is {}; allowed: the name of a file of this folder", name,
                                        file.dump()));
      files.insert(file.get<std::string>());
    }
  }
  for (const std::string& file : files) {
    if (Status status = tensors.add_file(folder + "/" + file); !status.ok()) return status;
  }
  return tensors;
}

Result<Safetensors::Tensor> Safetensors::find(const std::string& name, const std::string& dtype,
                                              const std::vector<std::int64_t>& shape) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) return wrong(folder_, fmt::format("tensor '{}' is missing", name));
  const Tensor& tensor = found->second;
  if (tensor.dtype != dtype || tensor.shape != shape)
    return wrong(folder_, fmt::format("tensor '{}' is {} [{}]; allowed: {} [{}]", name, tensor.dtype,
                                      fmt::join(tensor.shape, ", "), dtype, fmt::join(shape, ", ")));
  return tensor;
}

}  // namespace farwarp
