// config.json and generation_config.json, one after the other with a zero byte between them.
#include "farwarp/models/qwen3/weights/files.h"
#include "folder.h"

using namespace farwarp;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = fuzz::text_of(data, size);
  const std::size_t end = text.find('\0');
  fuzz::write("config.json", text.substr(0, end));
  if (end == std::string_view::npos) {
    std::filesystem::remove(fuzz::folder() + "/generation_config.json");
  } else {
    fuzz::write("generation_config.json", text.substr(end + 1));
  }
  Qwen3Config config;
  config.vocabulary = 1000;
  if (const auto read = read_qwen3_config(fuzz::folder()); read.ok()) {
    if (!read->check().ok()) std::abort();
    config = *read;
  }
  if (const auto generation = read_qwen3_generation(fuzz::folder(), config); generation.ok()) {
    for (const std::int32_t token : generation->end_tokens) {
      if (token < 0 || token >= config.vocabulary) std::abort();
    }
  }
  return 0;
}
