// A file of tensors; if the first byte is 'i', the rest is an index instead.
#include "farwarp/models/safetensors.h"
#include "folder.h"

using namespace farwarp;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const bool kOther = [] {
    fuzz::write("a.safetensors", std::string("\x02\0\0\0\0\0\0\0{}", 10));
    return true;
  }();
  (void)kOther;
  const std::string_view bytes = fuzz::text_of(data, size);
  if (bytes.starts_with('i')) {
    std::filesystem::remove(fuzz::folder() + "/model.safetensors");
    fuzz::write("model.safetensors.index.json", bytes.substr(1));
  } else {
    fuzz::write("model.safetensors", bytes);
  }
  const auto tensors = Safetensors::open(fuzz::folder());
  if (!tensors.ok()) return 0;
  std::size_t all = 0;
  unsigned sum = 0;  // every byte of every tensor is in the file
  tensors->each([&](const std::string&, const Safetensors::Tensor& tensor) {
    all += tensor.data.size();
    for (const std::byte byte : tensor.data) sum += static_cast<unsigned>(byte);
  });
  static volatile unsigned keep;
  keep = sum;
  if (all > size) std::abort();
  return 0;
}
