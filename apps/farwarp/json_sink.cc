#include "json_sink.h"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "commands.h"
#include "farwarp/base/file.h"
#include "farwarp/machine/kept_file.h"

namespace farwarp::cli {
namespace {

std::atomic<bool> replacing = false, interrupted = false;

void on_interrupt(int) {
  interrupted = true;
  if (replacing) return;
  constexpr char kText[] = "\nfarwarp: interrupted\n";
  [[maybe_unused]] const auto written = write(STDERR_FILENO, kText, sizeof(kText) - 1);
  _exit(kExitInterrupted);
}

}  // namespace

void report_interrupts() { std::signal(SIGINT, on_interrupt); }

Status check_output(const char* option, const std::string& path, const std::vector<std::string>& read) {
  for (const std::string& input : read) {
    if (same_file(path, input)) return invalid_argument(fmt::format("{} is '{}': the command reads it", option, path));
  }
  const auto kept = kept_file("ceilings", "any", 1);
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (kept.ok() && same_file(folder.empty() ? "." : folder, kept->parent_path()))
    return invalid_argument(fmt::format("{} is '{}': farwarp keeps what it has measured in that folder", option, path));
  return {};
}

Status JsonSink::open(const std::string& path, const std::vector<std::string>& read, const char* option) {
  path_ = path;
  if (path.empty() || to_stdout()) return {};
  if (Status status = check_output(option, path, read); !status.ok()) return status;
  std::error_code error;
  const auto type = std::filesystem::status(path, error).type();
  const bool file = type == std::filesystem::file_type::regular, fresh = type == std::filesystem::file_type::not_found;
  device_ = type == std::filesystem::file_type::character;
  const std::string folder = std::filesystem::path(path).parent_path().string();
  const bool replaceable = (file || fresh) && access(folder.empty() ? "." : folder.c_str(), W_OK) == 0;
  if (!(device_ || replaceable) || (!fresh && access(path.c_str(), W_OK) != 0))
    return invalid_argument(fmt::format("{} is '{}': cannot be written", option, path));
  if (!file) return {};
  path_ = std::filesystem::canonical(path, error).string();  // replaces the file that a link points to, not the link
  return error ? invalid_argument(fmt::format("{} is '{}': {}", option, path, error.message())) : Status();
}

void JsonSink::keep(const std::string& text) const {
  if (!path_.empty() && !to_stdout() && !device_) (void)replace(text);  // the last write reports errors
}

Status JsonSink::write(const std::string& text) const {
  if (path_.empty()) return {};
  if (!to_stdout() && !device_) return replace(text);
  std::FILE* const stream = to_stdout() ? stdout : std::fopen(path_.c_str(), "w");
  bool written = stream != nullptr && std::fwrite(text.data(), 1, text.size(), stream) == text.size();
  if (stream != nullptr) written = (to_stdout() ? std::fflush(stream) : std::fclose(stream)) == 0 && written;
  return written || to_stdout() ? Status()  // main() reports errors of stdout
                                : unavailable(fmt::format("cannot write {}: {}", path_, std::strerror(errno)));
}

Status JsonSink::replace(const std::string& text) const {
  replacing = true;
  Status replaced = replace_text(path_, text);
  replacing = false;
  if (interrupted) on_interrupt(SIGINT);
  return replaced;
}

}  // namespace farwarp::cli
