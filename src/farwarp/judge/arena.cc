#include "farwarp/judge/arena.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>
#include <utility>

#include "farwarp/harness/compare.h"

namespace farwarp::judge {
namespace {

using harness::Argument;

constexpr std::size_t kAlignment = 256;
constexpr std::size_t kLeastSlack = 1 << 16;
constexpr std::uint64_t kPatienceNs = 60'000'000'000;
constexpr std::byte kPoison{harness::kPoisonByte};

/// With at least kAlignment bytes of poison behind it.
std::size_t room_of(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment + kAlignment; }

}  // namespace

Result<Arena> Arena::create(Device& device, const std::vector<Argument>& inputs, const std::vector<Argument>& outputs,
                            bool copied) {
  std::size_t used = kAlignment;
  for (const Argument& input : inputs) used += room_of(input.most_bytes());
  for (const Argument& output : outputs) used += (copied ? 2 : 1) * room_of(output.most_bytes());
  const std::size_t bytes = used + std::max(kLeastSlack, used / 4);
  MemoryHandle handle;
  auto memory = device.allocate_shareable(bytes, &handle);
  if (!memory.ok()) return memory.status();
  Arena arena(device, *memory, handle, copied);
  if (handle.kind != MemoryHandle::Kind::kPosixFd && handle.kind != MemoryHandle::Kind::kIpc)
    return unavailable("device memory of this machine cannot be shared with a submission's process");
  arena.before_.resize(bytes);
  arena.after_.resize(bytes);
  return arena;
}

Arena::Arena(Arena&& other) noexcept
    : device_(std::move(other.device_)),
      memory_(std::exchange(other.memory_, nullptr)),
      handle_(other.handle_),
      copied_(other.copied_),
      before_(std::move(other.before_)),
      after_(std::move(other.after_)) {}

Arena::~Arena() {
  if (memory_ != nullptr) device_->release_shareable(memory_, handle_);
}

std::vector<const Argument*> Arena::all_of(const std::vector<Argument>& inputs,
                                           const std::vector<Argument>& outputs) const {
  std::vector<const Argument*> tensors;
  for (const Argument& tensor : inputs) tensors.push_back(&tensor);
  for (int copy = 0; copy < (copied_ ? 2 : 1); ++copy) {
    for (const Argument& tensor : outputs) tensors.push_back(&tensor);
  }
  return tensors;
}

/// In a random order, with random gaps.
void Arena::place(const std::vector<const Argument*>& tensors) {
  std::vector<std::size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::shuffle(order.begin(), order.end(), random_);
  std::size_t used = kAlignment;
  for (const Argument* tensor : tensors) used += room_of(tensor->bytes());
  const std::size_t most_gap = (before_.size() - used) / kAlignment / (tensors.size() + 1);
  std::size_t at = kAlignment;
  offsets_.assign(tensors.size(), 0);
  for (const std::size_t i : order) {
    at += kAlignment * std::uniform_int_distribution<std::size_t>(0, most_gap)(random_);
    offsets_[i] = at;
    at += room_of(tensors[i]->bytes());
  }
}

Status Arena::prepare(Stream stream, const std::vector<Argument>& inputs, const std::vector<Argument>& outputs,
                      bool withhold) {
  const auto tensors = all_of(inputs, outputs);
  for (const Argument* tensor : tensors) {
    if (tensor->bytes() > tensor->most_bytes()) return internal_error("a call's tensor is larger than the largest");
  }
  place(tensors);
  std::fill(before_.begin(), before_.end(), kPoison);
  Status status;
  for (std::size_t i = 0; i < inputs.size() && status.ok(); ++i) {
    if (inputs[i].bytes() > 0)
      status = device_->copy_out(before_.data() + offsets_[i], inputs[i].data, inputs[i].bytes(), stream);
  }
  input_bytes_.clear();
  for (const Argument& input : inputs) input_bytes_.push_back(input.bytes());
  const std::vector<std::byte>& image = withhold ? after_ : before_;
  std::fill(after_.begin(), after_.end(), kPoison);
  if (status.ok()) status = device_->copy_in(memory_, image.data(), image.size(), stream);
  return status.ok() ? device_->synchronize(stream, kPatienceNs) : status;
}

Status Arena::release_inputs(Stream stream) {
  Status status;
  for (std::size_t i = 0; i < input_bytes_.size() && status.ok(); ++i) {
    if (input_bytes_[i] > 0)
      status = device_->copy_in(static_cast<std::byte*>(memory_) + offsets_[i], before_.data() + offsets_[i],
                                input_bytes_[i], stream);
  }
  return status;
}

Status Arena::collect(Stream stream, const std::vector<Argument>& inputs, const std::vector<Argument>& outputs,
                      std::string& difference) {
  Status status = device_->copy_out(after_.data(), memory_, after_.size(), stream);
  for (std::size_t i = 0; i < outputs.size() && status.ok(); ++i) {
    const std::size_t bytes = outputs[i].bytes();
    if (bytes == 0) continue;
    for (std::size_t at = inputs.size() + i; at < offsets_.size(); at += outputs.size()) {  // the copy is the last one
      status = device_->copy_in(outputs[i].data, after_.data() + offsets_[at], bytes, stream);
      std::memcpy(before_.data() + offsets_[at], after_.data() + offsets_[at], bytes);
    }
  }
  difference = first_difference(all_of(inputs, outputs), inputs.size());
  return status;
}

std::string Arena::first_difference(const std::vector<const Argument*>& tensors, std::size_t input_count) const {
  const auto found = std::mismatch(before_.begin(), before_.end(), after_.begin()).first;
  if (found == before_.end()) return {};
  const auto at = static_cast<std::size_t>(found - before_.begin());
  std::size_t nearest = 0;
  bool behind = false;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (i < input_count && at >= offsets_[i] && at < offsets_[i] + tensors[i]->bytes())
      return fmt::format("input {} was changed: byte {}", tensors[i]->name, at - offsets_[i]);
    if (offsets_[i] <= at && (!behind || offsets_[i] > offsets_[nearest])) {
      nearest = i;
      behind = true;
    }
  }
  if (!behind) return fmt::format("memory before the first tensor was written");
  return fmt::format("memory outside the tensors was written: {} bytes after the beginning of {}, which has {}",
                     at - offsets_[nearest], tensors[nearest]->name, tensors[nearest]->bytes());
}

}  // namespace farwarp::judge
