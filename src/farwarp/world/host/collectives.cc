#include "farwarp/world/host/collectives.h"

#include <fmt/format.h>

#include <string_view>

namespace farwarp {
namespace {

std::vector<std::byte> bytes_of_text(std::string_view text) {
  const auto* first = reinterpret_cast<const std::byte*>(text.data());
  return {first, first + text.size()};
}

// What a peer sent, made printable: it may be in another collective and have sent any bytes.
std::string quote(const std::vector<std::byte>& bytes) {
  std::string text;
  for (const std::byte byte : bytes) {
    const char character = static_cast<char>(byte);
    if (character < ' ' || character > '~' || text.size() == 200)
      return fmt::format("something else ({} bytes)", bytes.size());
    text += character;
  }
  return text.empty() ? "something else (0 bytes)" : text;
}

Status mismatch(int rank, const std::string& what, const std::string& of_rank_0) {
  return {StatusCode::kMismatch,
          fmt::format("rank {} called {}, rank 0 {}: ranks must make the same calls in the same order", rank, what,
                      of_rank_0)};
}

}  // namespace

Status all_ok(Bootstrap& bootstrap, const Status& mine, std::chrono::milliseconds timeout) {
  std::vector<std::byte> outcome = bytes_of_text(mine.message());
  outcome.insert(outcome.begin(), static_cast<std::byte>(mine.code()));
  auto all = bootstrap.allgather(outcome, timeout);
  if (!all.ok()) return all.status();
  for (std::size_t rank = 0; rank < all->size(); ++rank) {
    const std::vector<std::byte>& theirs = (*all)[rank];
    if (theirs.empty()) return mismatch(static_cast<int>(rank), quote(theirs), "the end of a collective call");
    const auto code = static_cast<StatusCode>(theirs.front());
    if (code == StatusCode::kOk) continue;
    const std::string_view message(reinterpret_cast<const char*>(theirs.data()) + 1, theirs.size() - 1);
    return {code, fmt::format("rank {}: {}", rank, message)};
  }
  return {};
}

Status Collectives::number_world(std::uint32_t mine) {
  auto all = gather(mine);
  if (!all.ok()) return all.status();
  world_ = all->front();
  return {};
}

Status Collectives::check_same_call(const std::string& call, std::chrono::milliseconds extra_time) {
  const std::string mine = fmt::format("{} as call {} of world {}", call, ++calls_, world_);
  auto all = bootstrap_->allgather(bytes_of_text(mine), timeout_ + extra_time);
  if (!all.ok()) return all.status();
  for (std::size_t rank = 1; rank < all->size(); ++rank) {
    if ((*all)[rank] != all->front()) return mismatch(static_cast<int>(rank), quote((*all)[rank]), quote(all->front()));
  }
  return {};
}

Result<std::vector<std::vector<std::byte>>> Collectives::gather_bytes(const std::vector<std::byte>& mine,
                                                                      std::size_t expected_bytes) {
  auto all = bootstrap_->allgather(mine, timeout_);
  if (!all.ok()) return all;
  for (std::size_t rank = 0; rank < all->size(); ++rank) {
    if ((*all)[rank].size() != expected_bytes)
      return mismatch(static_cast<int>(rank), quote((*all)[rank]), "another collective");
  }
  return all;
}

}  // namespace farwarp
