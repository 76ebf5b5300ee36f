#include "farwarp/probes/probes.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>

namespace farwarp::probes {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kLongestHoldNs = 200'000'000;
// How long ranks wait for each other on the host: longer than a rank's device may take to give up.
constexpr std::chrono::minutes kHostPatience{10};
constexpr std::size_t kMaxBytes = std::size_t{64} << 30;

Status check_bytes(const char* name, std::size_t bytes, int least_tiles) {
  const std::size_t least = static_cast<std::size_t>(least_tiles) * kTileBytes;
  if (bytes % kTileBytes == 0 && bytes >= least && bytes <= kMaxBytes) return {};
  return invalid_argument(
      fmt::format("{} is {}: allowed is a multiple of {} in {}..{}", name, bytes, kTileBytes, least, kMaxBytes));
}

Status check_count(const char* name, int value, int low, int high) {
  if (value >= low && value <= high) return {};
  return invalid_argument(fmt::format("{} is {}: allowed is {}..{}", name, value, low, high));
}

Status check_sizes(const Sizes& sizes) {
  Status status = check_bytes("memory_bytes", sizes.memory_bytes, 1);
  if (status.ok()) status = check_bytes("link_bytes", sizes.link_bytes, kMaxRanks - 1);
  if (status.ok()) status = check_count("rounds", sizes.rounds, kLeastRounds, 1'000'000);
  if (status.ok()) status = check_count("matrix_rounds", sizes.matrix_rounds, 1, 400);  // the sums stay exact
  if (status.ok()) status = check_count("launches", sizes.launches, 1, 1'000'000);
  if (status.ok()) status = check_count("repetitions", sizes.repetitions, 1, 1000);
  if (status.ok()) status = check_count("weight_layers", sizes.weight_layers, 1, 1000);
  if (status.ok()) status = check_count("attention_loads", sizes.attention_loads, 0, 1000);
  if (status.ok()) status = check_count("max_blocks", sizes.max_blocks, 0, 1'000'000);
  return status;
}

std::size_t ended_bytes(const Sizes& sizes) {
  return static_cast<std::size_t>(sizes.weight_layers) * kLayerMatrices * kWeightBlocks * kBlockPackets *
         sizeof(Packet);
}

}  // namespace

std::size_t heap_bytes(const Sizes& sizes, int ranks) {
  constexpr std::size_t kSpare = 64 << 10;  // the barrier's cells, and what alignment takes
  const std::size_t round = sizeof(Packet) + (1 + static_cast<std::size_t>(ranks)) * sizeof(std::uint64_t);
  return sizes.link_bytes + static_cast<std::size_t>(sizes.rounds) * round + ended_bytes(sizes) + kSpare;
}

// ---- creation ------------------------------------------------------------------------------------------------------

Result<std::unique_ptr<Probes>> Probes::create(World& world, const Sizes& sizes) {
  std::unique_ptr<Probes> probes(new Probes(world, sizes));
  if (Status local = probes->all_ok(probes->open_local()); !local.ok()) return local;
  if (Status shared = probes->open_shared(); !shared.ok()) return shared;
  return probes;
}

Status Probes::open_local() {
  if (Status status = check_sizes(sizes_); !status.ok()) return status;
  const std::pair<const char*, Kernel*> wanted[] = {
      {"probe_memory_read", &kernels_.read}, {"probe_memory_copy", &kernels_.copy},
      {"probe_link_load", &kernels_.load},   {"probe_link_store", &kernels_.store},
      {"probe_link_bulk", &kernels_.bulk},   {"probe_check", &kernels_.check},
      {"probe_flag", &kernels_.flag},        {"probe_packet", &kernels_.packet},
      {"probe_barrier", &kernels_.barrier},  {"probe_empty", &kernels_.empty},
      {"probe_matrix", &kernels_.matrix},    {"probe_weights", &kernels_.weights}};
  for (const auto& [name, kernel] : wanted) {
    auto found = device_.kernel(name);
    if (!found.ok()) return found.status();
    *kernel = *found;
  }
  auto stream = device_.create_stream();
  if (!stream.ok()) return stream.status();
  stream_ = *stream;
  has_stream_ = true;
  auto start = device_.create_event(), end = device_.create_event();
  if (!start.ok()) return start.status();
  if (!end.ok()) return end.status();
  start_ = std::move(*start);
  end_ = std::move(*end);
  for (void*& memory : memory_) {
    auto allocated = device_.allocate(sizes_.memory_bytes);
    if (!allocated.ok()) return allocated.status();
    memory = *allocated;
  }
  const TargetTraits& traits = device_.shape().traits;
  const int sums_each = kBlocksPerMultiprocessor * kStreamThreads / traits.warp_size;
  const int sums = std::max(device_.shape().multiprocessors * std::max(sums_each, kWeightThreads), 1 + kMaxRanks);
  auto out = device_.allocate(sizeof(std::uint64_t) * static_cast<std::size_t>(sums));
  if (!out.ok()) return out.status();
  out_ = static_cast<std::uint64_t*>(*out);
  return {};
}

Status Probes::open_shared() {
  auto together = DeviceBarrier::create(world_);
  if (!together.ok()) return together.status();
  together_ = std::make_unique<DeviceBarrier>(std::move(*together));
  auto slot =
      world_.open_operator("probes", {kSiteNames, kSiteNames + kSites}, static_cast<std::uint64_t>(sizes_.rounds));
  if (!slot.ok()) return slot.status();
  slot_ = *slot;
  const auto rounds = static_cast<std::size_t>(sizes_.rounds);
  const auto ranks = static_cast<std::size_t>(world_.size());
  const std::pair<SymmetricBuffer*, std::size_t> wanted[] = {{&link_, sizes_.link_bytes},
                                                             {&packets_, rounds * sizeof(Packet)},
                                                             {&flags_, rounds * sizeof(std::uint64_t)},
                                                             {&barriers_, rounds * ranks * sizeof(std::uint64_t)},
                                                             {&ended_, ended_bytes(sizes_)}};
  for (const auto& [buffer, bytes] : wanted) {
    auto allocated = world_.allocate(bytes);
    if (!allocated.ok()) return allocated.status();
    *buffer = *allocated;
  }
  return {};
}

Probes::~Probes() {
  for (void* memory : memory_) {
    if (memory != nullptr) device_.release(memory);
  }
  if (out_ != nullptr) device_.release(out_);
  start_.reset();
  end_.reset();
  if (has_stream_) device_.destroy_stream(stream_);
}

Status Probes::close() {
  Status status = together_->close();
  if (status.ok()) status = world_.close_operator(slot_);
  for (const SymmetricBuffer* buffer : {&link_, &packets_, &flags_, &barriers_, &ended_}) {
    if (status.ok()) status = world_.free(*buffer);
  }
  return status;
}

// ---- samples -------------------------------------------------------------------------------------------------------

/// Every rank gets the largest value, or the failure of the first rank that has one.
Result<double> Probes::agree(const Result<double>& mine) {
  const double value = mine.ok() ? *mine : 0;
  const std::string message = mine.status().message();
  std::vector<std::byte> bytes(1 + sizeof(value) + message.size());
  bytes[0] = static_cast<std::byte>(mine.status().code());
  std::memcpy(&bytes[1], &value, sizeof(value));
  std::memcpy(bytes.data() + 1 + sizeof(value), message.data(), message.size());
  const auto all = world_.bootstrap().allgather(bytes, kHostPatience);
  if (!all.ok()) return mine.ok() ? all.status() : mine.status();
  double largest = 0;
  Status aborted;  // less informative than the failure of the rank that raised the abort
  for (const std::vector<std::byte>& theirs : *all) {
    if (theirs.size() < 1 + sizeof(value)) return internal_error("a rank's outcome cannot be read");
    const auto code = static_cast<StatusCode>(theirs[0]);
    const auto* text = reinterpret_cast<const char*>(theirs.data()) + 1 + sizeof(value);
    const Status status(code, std::string(text, theirs.size() - 1 - sizeof(value)));
    if (code == StatusCode::kAborted) aborted = status;
    if (!status.ok() && code != StatusCode::kAborted) return status;
    double other = 0;
    std::memcpy(&other, &theirs[1], sizeof(other));
    largest = std::max(largest, other);
  }
  if (!aborted.ok()) return aborted;
  return largest;
}

/// The median of the repetitions. A first sample, with cold caches and page tables, is not counted.
Result<double> Probes::median(const Sample& sample) {
  std::vector<double> samples;
  for (int i = 0; i <= sizes_.repetitions; ++i) {
    const auto taken = sample();
    if (!taken.ok()) return taken;
    if (i > 0) samples.push_back(*taken);
  }
  const auto middle = samples.begin() + static_cast<std::ptrdiff_t>(samples.size() / 2);
  std::nth_element(samples.begin(), middle, samples.end());
  return *middle;
}

/// Waits for the stream. ok if everything enqueued has run and no wait has failed.
Status Probes::finish() {
  const auto patience = std::chrono::nanoseconds(hold_ns_) + 2 * world_.options().deadline;
  const Status done = device_.synchronize(stream_, static_cast<std::uint64_t>(patience.count()));
  if (Status status = world_.status(); !status.ok()) return status;
  return done;
}

/// Microseconds that `work` takes on the device. All ranks start together, after every host has enqueued everything. If
/// a host needed longer than its stream was held back, the sample is taken again.
Result<double> Probes::timed(const Work& work) {
  for (; hold_ns_ <= kLongestHoldNs; hold_ns_ *= 2) {
    Status status = device_.enqueue_delay(stream_, hold_ns_);
    const Clock::time_point began = Clock::now();  // after the delay's enqueue: the delay may have begun by then
    if (status.ok()) status = together_->enqueue(stream_);
    if (status.ok()) status = device_.record(*start_, stream_);
    if (status.ok()) status = work();
    if (status.ok()) status = device_.record(*end_, stream_);
    // The emulator starts no stream while a host thread could still enqueue.
    const bool late = !is_emulated(device_.target()) && Clock::now() - began >= std::chrono::nanoseconds(hold_ns_);
    if (Status done = finish(); status.ok()) status = done;
    const Result<double> anybody_late = agree(status.ok() ? Result<double>(late ? 1.0 : 0.0) : Result<double>(status));
    if (!anybody_late.ok()) return anybody_late;
    if (*anybody_late == 0) return device_.microseconds_between(*start_, *end_);
  }
  return Status{StatusCode::kDeadline,
                fmt::format("the host needs more than {} ms to enqueue one sample", kLongestHoldNs / 1'000'000)};
}

// ---- all -----------------------------------------------------------------------------------------------------------

Result<Ceilings> measure(World& world, const Sizes& sizes) {
  const std::pair<double Ceilings::*, Result<double> (Probes::*)()> figures[] = {
      {&Ceilings::hbm_read_gb_s, &Probes::memory_read},
      {&Ceilings::hbm_copy_gb_s, &Probes::memory_copy},
      {&Ceilings::link_pair_store_gb_s, &Probes::link_pair_store},
      {&Ceilings::link_pair_load_gb_s, &Probes::link_pair_load},
      {&Ceilings::link_pair_bulk_gb_s, &Probes::link_pair_bulk},
      {&Ceilings::link_all_store_gb_s, &Probes::link_all_store},
      {&Ceilings::link_all_bulk_gb_s, &Probes::link_all_bulk},
      {&Ceilings::packet_us, &Probes::packet},
      {&Ceilings::flag_us, &Probes::flag},
      {&Ceilings::barrier_us, &Probes::barrier},
      {&Ceilings::launch_us, &Probes::launch},
      {&Ceilings::graph_launch_us, &Probes::graph_launch},
      {&Ceilings::mma_bf16_tflops_short, &Probes::matrix_short},
      {&Ceilings::mma_bf16_tflops_sustained, &Probes::matrix_sustained},
      {&Ceilings::weights_gb_s, &Probes::weights_alone},
      {&Ceilings::weights_with_edges_gb_s, &Probes::weights_with_edges},
  };
  auto probes = Probes::create(world, sizes);
  if (!probes.ok()) return probes.status();
  Ceilings ceilings;
  ceilings.device = world.device().model();
  ceilings.ranks = world.size();
  const auto now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  ceilings.source =
      fmt::format("{} {:%Y-%m-%d}", is_emulated(world.device().target()) ? "emulated" : "measured", fmt::gmtime(now));
  for (const auto& [field, probe] : figures) {
    const auto figure = ((**probes).*probe)();
    if (!figure.ok()) return figure.status();
    ceilings.*field = *figure;
  }
  if (Status closed = (*probes)->close(); !closed.ok()) return closed;
  return ceilings;
}

}  // namespace farwarp::probes
