#include "farwarp/models/safetensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <utility>

#include "farwarp/base/file.h"
#include "farwarp/base/json.h"

namespace farwarp {
namespace {

using nlohmann::json;

constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // as in the reference implementation
constexpr std::size_t kLengthBytes = 8;
constexpr const char* kIndex = "model.safetensors.index.json";

Status wrong(const std::string& path, const std::string& what) { return invalid_argument(path + ": " + what); }

/// The bits of an element; 0: unknown.
std::int64_t bits_of(const std::string& dtype) {
  static const std::map<std::string, std::int64_t> kBits = {
      {"BOOL", 8},    {"F4", 4},      {"F6_E2M3", 6},     {"F6_E3M2", 6},    {"U8", 8},   {"I8", 8},
      {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8},     {"I16", 16},       {"U16", 16}, {"F16", 16},
      {"BF16", 16},   {"I32", 32},    {"U32", 32},        {"F32", 32},       {"C64", 64}, {"F64", 64},
      {"I64", 64},    {"U64", 64},    {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}};
  const auto found = kBits.find(dtype);
  return found == kBits.end() ? 0 : found->second;
}

bool is_count(const json& value) { return value.is_number_unsigned() && value.get<std::uint64_t>() < (1ull << 48); }

Status check_metadata(const std::string& path, const json& metadata) {
  bool texts = metadata.is_object() || metadata.is_null();
  for (const auto& [key, value] : metadata.items()) texts = texts && value.is_string();
  return texts ? Status() : wrong(path, "__metadata__ is no object of texts");
}

/// A tensor of a header; its data is not yet known to be in the file.
Status read_entry(const std::string& path, const std::string& name, const json& entry, Safetensors::Tensor& tensor,
                  std::uint64_t& begin, std::uint64_t& end) {
  const auto tensor_is = [&](const std::string& what) {
    return wrong(path, fmt::format("tensor '{}' {}", name, what));
  };
  const json offsets = entry.is_object() ? entry.value("data_offsets", json()) : json();
  if (!offsets.is_array() || offsets.size() != 2 || !is_count(offsets[0]) || !is_count(offsets[1]) ||
      !entry.value("dtype", json()).is_string() || !entry.value("shape", json()).is_array())
    return tensor_is("has no dtype, shape and two data_offsets");
  begin = offsets[0].get<std::uint64_t>();
  end = offsets[1].get<std::uint64_t>();
  tensor.dtype = entry["dtype"].get<std::string>();
  std::int64_t bits = bits_of(tensor.dtype);
  if (bits == 0)
    return tensor_is(fmt::format("has the dtype {}; allowed: those of the format", shown_json(tensor.dtype)));
  std::int64_t elements = 1;
  for (const json& extent : entry["shape"]) {
    if (!is_count(extent)) return tensor_is("has a shape that is no list of counts");
    tensor.shape.push_back(extent.get<std::int64_t>());
    if (__builtin_mul_overflow(elements, tensor.shape.back(), &elements)) return tensor_is("is too large");
  }
  if (__builtin_mul_overflow(bits, elements, &bits)) return tensor_is("is too large");
  if (begin > end) return tensor_is(fmt::format("is at bytes {} to {}", begin, end));
  if (bits % 8 != 0) return tensor_is(fmt::format("has {} bits, which are no whole bytes", bits));
  if (static_cast<std::uint64_t>(bits / 8) != end - begin)
    return tensor_is(fmt::format("has {} bytes; its dtype and shape need {}", end - begin, bits / 8));
  return {};
}

}  // namespace

/// As the reference implementation: the tensors fill the bytes after the header, without a hole and without a byte of
/// two tensors.
Status Safetensors::add_file(const std::string& path) {
  auto opened = MappedFile::open(path);
  if (!opened.ok()) return wrong(path, opened.status().message());
  auto file = std::make_shared<MappedFile>(std::move(*opened));
  const std::span<const std::byte> bytes = file->bytes();
  std::uint64_t header = 0;
  if (bytes.size() < kLengthBytes)
    return wrong(path, fmt::format("has {} bytes; allowed: at least {}", bytes.size(), kLengthBytes));
  std::memcpy(&header, bytes.data(), kLengthBytes);
  const std::uint64_t most = std::min<std::uint64_t>(kMaxHeaderBytes, bytes.size() - kLengthBytes);
  if (header > most) return wrong(path, fmt::format("its header has {} bytes; allowed: up to {}", header, most));
  const auto* text = reinterpret_cast<const char*>(bytes.data()) + kLengthBytes;
  const auto table = parse_json({text, static_cast<std::size_t>(header)});
  if (!table.ok()) return wrong(path, "its header: " + table.status().message());
  if (!table->is_object()) return wrong(path, "its header is no JSON object");
  const std::span<const std::byte> data = bytes.subspan(kLengthBytes + header);
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::string> places;  // of what is not empty
  for (const auto& [name, entry] : table->items()) {
    if (name == "__metadata__") {
      if (Status status = check_metadata(path, entry); !status.ok()) return status;
      continue;
    }
    Tensor tensor;
    std::uint64_t begin = 0, end = 0;
    if (Status status = read_entry(path, name, entry, tensor, begin, end); !status.ok()) return status;
    if (end > data.size())
      return wrong(path, fmt::format("tensor '{}' is at bytes {} to {}; the file has {}: it is truncated", name, begin,
                                     end, data.size()));
    if (!places.emplace(std::pair(begin, end), name).second && begin != end)
      return wrong(path, fmt::format("tensors '{}' and '{}' are at the same bytes, {} to {}", places[{begin, end}],
                                     name, begin, end));
    tensor.data = data.subspan(begin, end - begin);
    if (!tensors_.emplace(name, std::move(tensor)).second)
      return wrong(path, fmt::format("tensor '{}' is in two files", name));
  }
  std::uint64_t filled = 0;
  for (const auto& [place, name] : places) {
    if (place.first != filled)
      return wrong(path, fmt::format("tensor '{}' is at bytes {} to {}; allowed: from {}, where the one before ends",
                                     name, place.first, place.second, filled));
    filled = place.second;
  }
  if (filled != data.size())
    return wrong(path, fmt::format("has {} bytes of data; its tensors end at {}", data.size(), filled));
  files_.push_back(std::move(file));
  return {};
}

Result<Safetensors> Safetensors::open(const std::string& folder) {
  Safetensors tensors;
  tensors.folder_ = folder;
  const auto files = files_of(folder);
  if (!files.ok()) return files.status();
  for (const std::string& file : *files) {
    if (Status status = tensors.add_file(folder + "/" + file); !status.ok()) return status;
  }
  return tensors;
}

Result<Safetensors> Safetensors::open_file(const std::string& path) {
  Safetensors tensors;
  tensors.folder_ = path;
  if (Status status = tensors.add_file(path); !status.ok()) return status;
  return tensors;
}

Result<std::set<std::string>> Safetensors::files_of(const std::string& folder) {
  const std::string whole = "model.safetensors", index = folder + "/" + kIndex;
  std::error_code error;
  using std::filesystem::symlink_status;
  // Of both transformers, too, takes the single file.
  if (exists(symlink_status(folder + "/" + whole, error)) || !exists(symlink_status(index, error)))
    return std::set<std::string>{whole};
  const auto text = read_file(index, kMaxHeaderBytes);
  if (!text.ok()) return wrong(index, text.status().message());
  const auto table = parse_json(*text);
  if (!table.ok()) return wrong(index, table.status().message());
  const json map = table->is_object() ? table->value("weight_map", json()) : json();
  if (!map.is_object()) return wrong(index, "has no object 'weight_map'");
  std::set<std::string> files;
  for (const auto& [name, file] : map.items()) {
    const std::string named = file.is_string() ? file.get<std::string>() : "";
    if (named.empty() || named == "." || named == ".." || named.find_first_of(std::string_view("/\0", 2)) != named.npos)
      return wrong(index, fmt::format("weight_map['{}'] is {}; allowed: the name of a file of this folder", name,
                                      shown_json(file)));
    files.insert(named);
  }
  return files;
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
