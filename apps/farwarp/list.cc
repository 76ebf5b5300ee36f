// farwarp list: operators with their parameters, and kernels per target.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "commands.h"
#include "farwarp/harness/case.h"
#include "farwarp/harness/params.h"
#include "farwarp/runtime/device.h"
#include "print.h"
#include "target.h"

namespace farwarp::cli {
namespace {

void print_operators() {
  for (const harness::OperatorInfo& op : harness::registered_ops()) {
    print_text("{}: {}\n", op.name, op.summary);
    for (const harness::ParamInfo& param : op.params) {
      print_text("  {:<18} {:<12} {}\n", param.name, param.default_value, param.allowed);
    }
    const std::string faults = harness::forms_of(op.faults);
    print_text("  {:<18} {:<12} {}\n", "--fault", "none", faults.empty() ? "none" : faults);
  }
}

// Prints a line for each kernel and a column for each target; the last line has the number of kernels of each target.
void print_kernels() {
  std::set<std::string> all;
  for (const TargetKind target : kTargets) {
    for (const std::string& name : Device::kernel_names(target)) all.insert(name);
  }
  std::string header = fmt::format("{:<40}", "kernel");
  std::string totals = fmt::format("{:<40}", fmt::format("{} in all", all.size()));
  for (const TargetKind target : kTargets) {
    header += fmt::format(" {:>10}", name_of(target));
    totals += fmt::format(" {:>10}", Device::kernel_names(target).size());
  }
  print_text("{}\n", header);
  for (const std::string& name : all) {
    std::string row = fmt::format("{:<40}", name);
    for (const TargetKind target : kTargets) {
      const auto names = Device::kernel_names(target);
      row += fmt::format(" {:>10}", std::binary_search(names.begin(), names.end(), name) ? "yes" : "-");
    }
    print_text("{}\n", row);
  }
  print_text("{}\n", totals);
}

}  // namespace

int list_command(bool kernels) {
  if (kernels) {
    print_kernels();
  } else {
    print_operators();
  }
  return 0;
}

}  // namespace farwarp::cli
