#include "farwarp/world/host/nccl_group.h"

#include <fmt/format.h>

#include <chrono>
#include <cstring>
#include <utility>
#include <vector>

#include "farwarp/world/host/collectives.h"

namespace farwarp {

struct NcclGroup::State {
  State(World& its_world, const nccl::Library& its_library) : world(its_world), library(its_library) {}
  ~State();

  World& world;
  const nccl::Library& library;
  nccl::Communicator communicator = nullptr;
  bool stuck = false;
};

NcclGroup::State::~State() {
  if (communicator == nullptr) return;
  (void)world.device().while_current(
      [this] { return library.call(stuck ? library.comm_abort : library.comm_destroy, communicator); });
}

namespace {

/// What each rank sends the others before any of them calls NCCL, which waits for a missing rank without a bound: 1 and
/// then rank 0's id if the rank can go on, else 0 and then the reason.
std::vector<std::byte> message_of(const Status& status, const nccl::UniqueId& id) {
  std::vector<std::byte> message(1 + (status.ok() ? sizeof(id) : status.message().size()));
  message[0] = static_cast<std::byte>(status.ok());
  std::memcpy(message.data() + 1, status.ok() ? id.bytes : status.message().data(), message.size() - 1);
  return message;
}

Result<nccl::UniqueId> agree(World& world, const Status& mine, const nccl::UniqueId& my_id) {
  const auto messages = world.bootstrap().allgather(message_of(mine, my_id), world.options().deadline);
  if (!mine.ok()) return mine;
  if (!messages.ok()) return messages.status();
  for (std::size_t rank = 0; rank < messages->size(); ++rank) {
    const std::vector<std::byte>& message = (*messages)[rank];
    if (message.size() == 1 + sizeof(nccl::UniqueId) && message[0] == std::byte{1}) continue;
    std::string why;
    for (std::size_t i = 1; i < message.size(); ++i) why += static_cast<char>(message[i]);
    return unavailable(fmt::format("rank {} has no NCCL: {}", rank, why));
  }
  nccl::UniqueId id{};
  std::memcpy(id.bytes, messages->front().data() + 1, sizeof(id));
  return id;
}

}  // namespace

Result<NcclGroup> NcclGroup::create(World& world, const Status& mine) {
  if (Status usable = world.check_usable(); !usable.ok()) return usable;
  const TargetKind target = world.device().target();
  Status status;
  std::unique_ptr<State> state;
  nccl::UniqueId id{};
  if (target != TargetKind::kCuda) {
    status = unavailable(fmt::format("NCCL runs on target cuda only; this is {}", name_of(target)));
  } else if (const auto library = nccl::Library::open(); !library.ok()) {
    status = library.status();
  } else if (!mine.ok()) {
    status = mine;
  } else {
    state = std::make_unique<State>(world, **library);
    if (world.rank() == 0) status = state->library.call(state->library.get_unique_id, &id);
  }
  const auto agreed = agree(world, status, id);
  if (!agreed.ok()) return agreed.status();
  const nccl::Library& nccl = state->library;
  status = world.device().while_current(
      [&] { return nccl.call(nccl.comm_init_rank, &state->communicator, world.size(), *agreed, world.rank()); });
  status = all_ok(world.bootstrap(), status, world.options().deadline);
  state->stuck = !status.ok();  // then the communicator is aborted, not destroyed: some rank may have none
  if (!status.ok()) return status;
  return NcclGroup(std::move(state));
}

NcclGroup::NcclGroup(std::unique_ptr<State> state) : state_(std::move(state)) {}
NcclGroup::NcclGroup(NcclGroup&&) noexcept = default;
NcclGroup& NcclGroup::operator=(NcclGroup&&) noexcept = default;
NcclGroup::~NcclGroup() = default;

const nccl::Library& NcclGroup::library() const { return state_->library; }
nccl::Communicator NcclGroup::communicator() const { return state_->communicator; }
bool NcclGroup::stuck() const { return state_ != nullptr && state_->stuck; }

namespace {

Status moved_from() { return {StatusCode::kMisuse, "the NcclGroup was moved from: use the object it was moved to"}; }

}  // namespace

Status NcclGroup::grouped(const std::function<Status()>& calls) {
  if (!state_) return moved_from();
  const nccl::Library& nccl = state_->library;
  return state_->world.device().while_current([&] {
    Status status = nccl.call(nccl.group_start);
    if (!status.ok()) return status;
    status = calls();
    const Status ended = nccl.call(nccl.group_end);  // also after an error: this thread stays in the group until then
    return status.ok() ? ended : status;
  });
}

Status NcclGroup::connect(Stream stream, const std::function<Status()>& calls) {
  if (!state_) return moved_from();
  if (Status status = calls(); !status.ok()) return status;
  const auto patience = std::chrono::nanoseconds(state_->world.options().deadline);
  const Status done = state_->world.device().synchronize(stream, static_cast<std::uint64_t>(patience.count()));
  state_->stuck = !done.ok();
  return done;
}

}  // namespace farwarp
