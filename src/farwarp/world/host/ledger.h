// The ledger as the host reads it: memory that kernels write and the host loads without synchronising.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "farwarp/base/status.h"
#include "farwarp/runtime/device.h"
#include "farwarp/world/host/world.h"
#include "farwarp/world/view.h"

namespace farwarp {

class HostLedger {
 public:
  /// The names of an operator slot and of a wait site.
  struct Names {
    std::string operator_name;
    std::string site;
  };
  using NameLookup = std::function<Names(std::uint32_t slot, std::uint32_t site)>;

  static Result<std::unique_ptr<HostLedger>> create(std::shared_ptr<Device> device);
  ~HostLedger();
  HostLedger(const HostLedger&) = delete;
  HostLedger& operator=(const HostLedger&) = delete;

  Ledger* device_address() const { return device_address_; }

  /// Two relaxed loads.
  bool clean() const;
  /// The records that are complete, in the order in which kernels claimed them.
  std::vector<WaitRecord> records(const NameLookup& names) const;
  /// The first failure in words; ok if clean().
  Status first_failure(const NameLookup& names) const;

  /// `rank` raised the abort from the host.
  void note_abort(int rank);
  /// No kernel of this rank may be running.
  void clear();

 private:
  HostLedger(std::shared_ptr<Device> device, Ledger* ledger, Ledger* device_address)
      : device_(std::move(device)), ledger_(ledger), device_address_(device_address) {}

  std::shared_ptr<Device> device_;
  Ledger* ledger_;
  Ledger* device_address_;
};

}  // namespace farwarp
