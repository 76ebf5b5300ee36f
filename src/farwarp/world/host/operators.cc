// Operator slots and their epochs.
//
// Tags are compared for equality. So an operator that reuses an earlier one's memory must not find its own tags there,
// and neither must a call after recover() find those of the aborted call. Both start at an epoch that no operator of
// this World has reached on any rank.
#include <fmt/format.h>

#include <algorithm>

#include "farwarp/world/host/world_state.h"

namespace farwarp {

Result<std::uint32_t> World::State::agree_highest_epoch() {
  WorldControl cells{};
  Status read = device->copy_out(&cells, control(), sizeof(cells), *stream);
  if (Status all = note_loss(collectives.all_ok(read)); !all.ok()) return all;
  std::uint32_t highest = highest_epoch;
  for (int slot = 0; slot < kMaxOperators; ++slot) {
    if (operators[slot]) highest = later_epoch(highest, cells.operators[slot].epoch);
  }
  auto everyone = collectives.gather(highest);
  if (!everyone.ok()) return note_loss(everyone.status());
  for (const std::uint32_t theirs : *everyone) highest = later_epoch(highest, theirs);
  return highest;
}

Status World::State::write_cells(int slot, std::uint32_t epoch) {
  const OperatorCells cells{epoch, 0, 0, 0};
  return device->copy_in(&control()->operators[slot], &cells, sizeof(cells), *stream);
}

HostLedger::Names World::State::names(std::uint32_t slot, std::uint32_t site) const {
  if (slot >= kMaxOperators || !operators[slot]) return {"no operator", fmt::format("site {}", site)};
  const OpenOperator& open = *operators[slot];
  if (site < open.site_names.size()) return {open.name, open.site_names[site]};
  if (site == kSiteBegin) return {open.name, "the beginning of a call"};
  return {open.name, fmt::format("site {}", site)};
}

std::string World::wait_name(int slot, int site) const {
  if (!state_) return fmt::format("no operator: site {}", site);
  const auto [name, wait] = state_->names(static_cast<std::uint32_t>(slot), static_cast<std::uint32_t>(site));
  return fmt::format("{}: {}", name, wait);
}

void World::name_steps(int slot, std::vector<std::string> names) {
  if (state_ && state_->is_open(slot)) state_->operators[slot]->step_names = std::move(names);
}

std::string World::step_name(int slot, std::uint64_t step) const {
  const bool named = state_ && state_->is_open(slot) && step < state_->operators[slot]->step_names.size();
  if (!named) return fmt::format("step {}", step);
  return state_->operators[slot]->step_names[step];
}

Result<int> World::open_operator(std::string name, std::vector<std::string> site_names, std::uint64_t configuration,
                                 const Status& mine) {
  if (Status usable = check_usable(); !usable.ok()) return usable;
  State& state = *state_;
  if (Status agreed = state.agree("open_operator", name, configuration, mine); !agreed.ok()) return agreed;
  const auto free_slot = std::find(state.operators.begin(), state.operators.end(), std::nullopt);
  if (free_slot == state.operators.end()) {
    return Status{StatusCode::kOutOfMemory,
                  fmt::format("{} cannot be opened: {} operators are open, and a World has no more slots; close one",
                              name, kMaxOperators)};
  }
  const int slot = static_cast<int>(free_slot - state.operators.begin());
  auto highest = state.agree_highest_epoch();
  if (!highest.ok()) return highest.status();
  const std::uint32_t epoch = fresh_epoch(*highest);
  Status written = state.write_cells(slot, epoch);
  if (written.ok()) written = state.synchronize();
  if (Status all = state.note_loss(state.collectives.all_ok(written)); !all.ok()) return all;
  state.highest_epoch = epoch;
  free_slot->emplace(State::OpenOperator{std::move(name), std::move(site_names), {}});
  return slot;
}

Status World::close_operator(int slot) {
  if (Status usable = check_usable(); !usable.ok()) return usable;
  State& state = *state_;
  if (Status entered = state.enter(fmt::format("close_operator({})", slot)); !entered.ok()) return entered;
  if (!state.is_open(slot))
    return invalid_argument(fmt::format("slot is {}; allowed: a slot that open_operator returned", slot));
  auto highest = state.agree_highest_epoch();  // counts the one that is being closed
  if (!highest.ok()) return highest.status();
  state.highest_epoch = *highest;
  state.operators[slot].reset();
  return {};
}

}  // namespace farwarp
