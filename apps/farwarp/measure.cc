// farwarp doctor --measure: measures the ceilings of this machine's devices and links, and keeps them.
#include "measure.h"

#include <fmt/format.h>

#include <algorithm>

#include "commands.h"
#include "farwarp/harness/params.h"
#include "farwarp/harness/runner.h"
#include "farwarp/probes/probes.h"
#include "farwarp/world/host/bootstrap.h"
#include "print.h"
#include "target.h"

namespace farwarp::cli {
namespace {

constexpr int kEmulatedRanks = 2;

/// The user's number of ranks, or else the number of devices.
Result<int> ranks_of(const DoctorOptions& options) {
  if (!options.ranks.empty()) {
    const auto ranks = harness::parse_integer("--ranks", options.ranks, 1, kMaxRanks);
    if (!ranks.ok()) return ranks.status();
    return static_cast<int>(*ranks);
  }
  for (const TargetKind target : kTargets) {
    if (options.target != "auto" && options.target != name_of(target)) continue;
    if (is_emulated(target)) return options.target == "auto" ? 1 : kEmulatedRanks;
    if (const int devices = Device::count(target); devices > 0) return std::min(devices, kMaxRanks);
  }
  return 1;
}

Result<Ceilings> measure_on(TargetKind target, int ranks) {
  const probes::Sizes sizes = is_emulated(target) ? probes::Sizes::tiny() : probes::Sizes{};
  Ceilings ceilings;
  const Status status = run_ranks(ranks, [&](std::shared_ptr<Bootstrap> bootstrap) -> Status {
    const bool first = bootstrap->rank() == 0;
    WorldOptions options;
    options.target = target;
    options.heap_bytes = probes::heap_bytes(sizes, ranks);
    auto world = World::create(std::move(bootstrap), options);
    if (!world.ok()) return world.status();
    const auto measured = probes::measure(*world, sizes);
    if (first && measured.ok()) ceilings = *measured;  // the same on all ranks
    return measured.status();
  });
  if (!status.ok()) return status;
  return ceilings;
}

}  // namespace

std::string ceilings_table(const Ceilings& ceilings) {
  std::string table = fmt::format("{}, {} rank{}, {}\n", ceilings.device, ceilings.ranks,
                                  ceilings.ranks == 1 ? "" : "s", ceilings.source);
  for (const CeilingField& field : ceiling_fields()) {
    const double value = ceilings.*field.value;
    const std::string shown = value > 0 ? fmt::format("{:.{}f}", value, value < 100 ? 2 : 0) : "-";
    table += fmt::format("  {:<50} {:>8} {}\n", field.title, shown, field.unit);
  }
  return table;
}

int measure_command(const DoctorOptions& options) {
  const auto ranks = ranks_of(options);
  if (!ranks.ok()) return fail(ranks.status());
  // Times on the emulator mean nothing, so "auto" does not fall back to it.
  const bool automatic = options.target == "auto";
  const auto target = automatic ? choose_real_target(*ranks) : choose_target(options.target, *ranks);
  if (!target.ok()) {
    usage_error(fmt::format("{}{}", automatic ? "nothing to measure: " : "", target.status().message()));
    return harness::exit_code(target.status());
  }
  if (!target->why.empty()) print_text(stderr, "{}\n", target->why);
  const auto measured = measure_on(target->target, *ranks);
  if (!measured.ok()) return fail(measured.status());
  print_text("{}", ceilings_table(*measured));
  if (is_emulated(target->target)) {
    print_text(
        "these figures are of the emulator's virtual clock and of tiny sizes: they say nothing and are not kept\n");
    return 0;
  }
  if (Status saved = save_ceilings(*measured); !saved.ok()) return fail(saved);
  print_text("kept in {}\n", ceilings_file(measured->device, measured->ranks)->string());
  return 0;
}

}  // namespace farwarp::cli
