#include "farwarp/vendor/kernel_info.h"

#include <elf.h>
#include <fmt/format.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>

namespace farwarp {
namespace {

using Bytes = std::span<const std::byte>;

struct Section {
  std::string_view name;
  std::uint32_t type;
  Bytes bytes;
};

template <class T>
bool read_at(Bytes image, std::size_t offset, T* value) {
  if (offset > image.size() || image.size() - offset < sizeof(T)) return false;
  std::memcpy(value, image.data() + offset, sizeof(T));
  return true;
}

// All sections that have a name and bytes, or an empty list if the image is no 64-bit ELF file.
std::vector<Section> sections_of(Bytes image) {
  std::vector<Section> sections;
  Elf64_Ehdr header;
  if (!read_at(image, 0, &header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return sections;
  const auto header_at = [&](std::size_t index, Elf64_Shdr* section) {
    return read_at(image, header.e_shoff + index * sizeof(Elf64_Shdr), section) &&
           (section->sh_type == SHT_NOBITS ||
            (section->sh_offset <= image.size() && section->sh_size <= image.size() - section->sh_offset));
  };
  Elf64_Shdr names;
  if (!header_at(header.e_shstrndx, &names)) return sections;
  const std::string_view name_table(reinterpret_cast<const char*>(image.data() + names.sh_offset), names.sh_size);
  for (std::size_t index = 0; index < header.e_shnum; ++index) {
    Elf64_Shdr section;
    if (!header_at(index, &section) || section.sh_type == SHT_NOBITS || section.sh_name >= name_table.size()) continue;
    const std::string_view rest = name_table.substr(section.sh_name);
    sections.push_back(
        {rest.substr(0, rest.find('\0')), section.sh_type, image.subspan(section.sh_offset, section.sh_size)});
  }
  return sections;
}

// ptxas gives each entry function, and no other function, a section of constant bank 0, which holds its parameters.
std::vector<KernelInfo> kernels_of_cubin(const std::vector<Section>& sections) {
  constexpr std::string_view kPrefix = ".nv.constant0.";
  std::vector<KernelInfo> kernels;
  for (const Section& section : sections) {
    if (!section.name.starts_with(kPrefix)) continue;
    const std::string_view symbol = section.name.substr(kPrefix.size());
    kernels.push_back({.name = kernel_name_of(symbol), .symbol = std::string(symbol)});
  }
  return kernels;
}

// The descriptor of the note of type NT_AMDGPU_METADATA: MessagePack (LLVM, User Guide for AMDGPU Backend, "Code Object
// V5 Metadata").
Bytes amdgpu_metadata(Bytes notes) {
  constexpr std::uint32_t kAmdgpuMetadata = 32;
  const auto aligned = [](std::size_t bytes) { return (bytes + 3) & ~std::size_t{3}; };
  Elf64_Nhdr note;
  for (std::size_t offset = 0; read_at(notes, offset, &note);) {
    const std::size_t descriptor = offset + sizeof(note) + aligned(note.n_namesz);
    if (descriptor > notes.size() || note.n_descsz > notes.size() - descriptor) break;
    if (note.n_type == kAmdgpuMetadata) return notes.subspan(descriptor, note.n_descsz);
    offset = descriptor + aligned(note.n_descsz);
  }
  return {};
}

// args_bytes is the end of the source's last argument: .kernarg_segment_size also counts hidden arguments after it. An
// argument block of one pointer has no "by_value" argument: the compiler passes the pointer.
KernelInfo kernel_from_metadata(const nlohmann::json& metadata) {
  KernelInfo kernel{.name = metadata.at(".name"),
                    .symbol = metadata.at(".name"),
                    .shared_bytes = metadata.at(".group_segment_fixed_size"),
                    .max_threads = metadata.at(".max_flat_workgroup_size")};
  for (const nlohmann::json& argument : metadata.value(".args", nlohmann::json::array())) {
    if (argument.at(".value_kind").get<std::string_view>().starts_with("hidden_")) continue;
    const std::size_t end = argument.at(".offset").get<std::size_t>() + argument.at(".size").get<std::size_t>();
    kernel.args_bytes = std::max(kernel.args_bytes, end);
  }
  return kernel;
}

Result<std::vector<KernelInfo>> kernels_of_amd(const CodeObject& object, const std::vector<Section>& sections) {
  for (const Section& section : sections) {
    if (section.type != SHT_NOTE) continue;
    const Bytes metadata = amdgpu_metadata(section.bytes);
    if (metadata.empty()) continue;
    try {  // the library throws on malformed input; we do not
      const auto* begin = reinterpret_cast<const std::uint8_t*>(metadata.data());
      const nlohmann::json document = nlohmann::json::from_msgpack(begin, begin + metadata.size());
      std::vector<KernelInfo> kernels;
      for (const nlohmann::json& kernel : document.at("amdhsa.kernels"))
        kernels.push_back(kernel_from_metadata(kernel));
      return kernels;
    } catch (const nlohmann::json::exception& error) {
      return internal_error(
          fmt::format("the metadata of {} ({}) cannot be read: {}", object.name, object.arch, error.what()));
    }
  }
  return internal_error(fmt::format("{} ({}) has no AMDGPU metadata", object.name, object.arch));
}

}  // namespace

// Itanium C++ ABI: a nested name is _ZN, for each part its length and the part, E.
std::string kernel_name_of(std::string_view symbol) {
  constexpr std::string_view kPrefix = "_ZN7farwarp";
  if (!symbol.starts_with(kPrefix)) return std::string(symbol);
  std::string name;
  for (std::string_view rest = symbol.substr(kPrefix.size()); !rest.starts_with('E');) {
    std::size_t length = 0, digits = 0;
    for (; digits < rest.size() && rest[digits] >= '0' && rest[digits] <= '9'; ++digits)
      length = 10 * length + static_cast<std::size_t>(rest[digits] - '0');
    if (digits == 0 || digits > 3 || length == 0 || length > rest.size() - digits) return std::string(symbol);
    if (!name.empty()) name += '_';
    name += rest.substr(digits, length);
    rest.remove_prefix(digits + length);
  }
  return name;
}

Result<std::vector<KernelInfo>> kernels_of(const CodeObject& object) {
  const auto image = object.image();
  if (!image.ok()) return image.status();
  const std::vector<Section> sections = sections_of(*image);
  if (sections.empty()) return internal_error(fmt::format("{} ({}) is no ELF image", object.name, object.arch));
  if (object.target == TargetKind::kHip) return kernels_of_amd(object, sections);
  return kernels_of_cubin(sections);
}

}  // namespace farwarp
