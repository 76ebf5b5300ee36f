// The smallest model on every target: packets and streamed vectors, each dispatcher, one rank and two.
#include "farwarp/fleet/toy_model_test.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "farwarp/base/half.h"
#include "farwarp/base/sizes.h"
#include "farwarp/fleet/runtime.h"
#include "farwarp/substrate/emu/machine.h"
#include "farwarp/world/host/collectives.h"
#include "farwarp/world/host/opened_operator.h"
#include "farwarp/world/host/operator_expectations.h"
#include "farwarp/world/host/world_test_fixture.h"

namespace farwarp::fleet::toy {
namespace {

constexpr int kWorkers = 3, kTokens = 2;
constexpr float kEpsilon = 1e-3f;

/// Numbers that a bf16 holds, of [-1, 1).
std::vector<double> random_numbers(int count, std::uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::vector<double> numbers;
  for (int i = 0; i < count; ++i) numbers.push_back(static_cast<double>(generator() % 256) / 128 - 1);
  return numbers;
}

struct Weights {
  std::vector<double> widen[kLayers], narrow[kLayers];  ///< of a rank: [kWideRows][kRows], [kRows][kWideRows]
  std::vector<double> norms[kLayers + 1];

  explicit Weights(int rank) {
    for (int layer = 0; layer < kLayers; ++layer) {
      const auto tensor = static_cast<std::uint64_t>(10 * layer + rank);
      widen[layer] = random_numbers(kWideRows * kRows, 100 + tensor);
      narrow[layer] = random_numbers(kRows * kWideRows, 200 + tensor);
      for (double& number : widen[layer]) number /= 16;
      for (double& number : narrow[layer]) number /= 32;
    }
    for (int i = 0; i <= kLayers; ++i) norms[i] = random_numbers(kRows, 300 + size(i));
  }
};

/// Where weights lie, and the graph. The bytes of all weights are `weight_bytes`.
struct Plan {
  RuntimePlan runtime;
  std::int64_t widen[kLayers], narrow[kLayers], norms = 0, weight_bytes = 0;

  Plan(int columns, int ranks, const TargetTraits& traits) {
    Graph& graph = runtime.graph;
    const Storage vector = streams(columns) ? Storage::kPlain : Storage::kPackets;
    const int x = graph.add_buffer("x", vector, normed_fours(columns, kRows));
    const int last =
        graph.add_buffer("last", vector, normed_fours(columns, kRows));  // begin may write x while finish reads it
    const int wide = graph.add_buffer("wide", vector, std::int64_t{kWideRows} / 4 * columns);
    const int squared = graph.add_buffer("squared", vector, std::int64_t{kWideRows} / 4 * columns);
    const int residual = graph.add_buffer("residual", Storage::kOwn);
    const int done = graph.add_buffer("done", Storage::kCopies);  // orders begin after the token before
    const auto matrix = [&](int rows, int k) {
      return MatrixShape{rows / kTileRows, k / kSliceDepth, most_pass_slices(columns, traits.bulk_copy),
                         streams(columns) ? kGroupTiles : 0};
    };
    const MatrixShape to_wide = matrix(kWideRows, kRows), to_narrow = matrix(kRows, kWideRows);
    norms = kLayers * (to_wide.bytes() + to_narrow.bytes());
    weight_bytes = norms + (kLayers + 1) * kRows * 2;
    const auto of = [](Kind kind) { return static_cast<std::int32_t>(kind); };
    graph.first_inputs = {done};
    graph.steps.push_back({.name = "begin",
                           .kind = of(Kind::kBegin),
                           .matrix = {kRows / kTileRows, 0},
                           .epilogue = Epilogue::kHidden,
                           .out_norm = norms,
                           .reads = {{done, false}},
                           .writes = {x, residual}});
    for (int layer = 0; layer < kLayers; ++layer) {
      widen[layer] = layer * (to_wide.bytes() + to_narrow.bytes());
      narrow[layer] = widen[layer] + to_wide.bytes();
      const int sums = ranks == 1 ? -1
                                  : graph.add_buffer("sums", Storage::kRankPackets,
                                                     rank_sums_packets(columns, kRows / kTileRows, ranks));
      graph.steps.push_back({.name = "widen",
                             .kind = of(Kind::kWiden),
                             .layer = layer,
                             .matrix = to_wide,
                             .weights = widen[layer],
                             .epilogue = Epilogue::kStore,
                             .in_norm_rows = kRows,
                             .reads = {{x, true}},
                             .writes = {wide}});
      graph.steps.push_back({.name = "square",
                             .kind = of(Kind::kSquare),
                             .layer = layer,
                             .units = columns,
                             .reads = {{wide, false}},
                             .writes = {squared}});
      graph.steps.push_back({.name = "narrow",
                             .kind = of(Kind::kNarrow),
                             .layer = layer,
                             .matrix = to_narrow,
                             .weights = narrow[layer],
                             .epilogue = Epilogue::kHidden,
                             .out_norm = norms + (layer + 1) * kRows * 2,
                             .reads = {{squared, true}, {residual, false}},
                             .writes = {layer + 1 < kLayers ? x : last, residual},
                             .rank_sums = sums});
    }
    graph.steps.push_back({.name = "finish",
                           .kind = of(Kind::kFinish),
                           .layer = kLayers,
                           .units = kWorkers,
                           .reads = {{last, true}},
                           .writes = {done}});
    runtime.columns = columns;
    runtime.rows = kRows;
    runtime.workers = kWorkers;
    runtime.threads = worker_threads(columns, traits.warp_size, traits.bulk_copy);
    runtime.shared_bytes = shared_bytes(columns, traits.bulk_copy);
    runtime.gang = !traits.bulk_copy;
  }
  static int shared_bytes(int columns, bool bulk_copy) {
    if (bulk_copy) return columns == 2 ? SharedLayout<2, true>::kBytes : SharedLayout<16, true>::kBytes;
    return columns == 2 ? SharedLayout<2, false>::kBytes : SharedLayout<16, false>::kBytes;
  }
};

/// The weights as tasks read them.
std::vector<std::uint16_t> packed(const Plan& plan, const Weights& weights, MatrixUnit unit) {
  std::vector<std::uint16_t> memory(size(plan.weight_bytes / 2));
  const auto put = [&](std::int64_t at, double number) {
    memory[size(at / 2)] = bf16_from(static_cast<float>(number)).bits;
  };
  for (int layer = 0; layer < kLayers; ++layer) {
    const auto put_matrix = [&](std::int64_t begin, const MatrixShape& shape, const std::vector<double>& matrix) {
      const int k = shape.slices * kSliceDepth;
      for (int row = 0; row < shape.tiles * kTileRows; ++row) {
        for (int i = 0; i < k; ++i)
          put(begin + element_offset(shape, unit, kWorkers, row, i), matrix[size(std::int64_t{row} * k + i)]);
      }
    };
    put_matrix(plan.widen[layer], plan.runtime.graph.steps[size(3 * layer + 1)].matrix, weights.widen[layer]);
    put_matrix(plan.narrow[layer], plan.runtime.graph.steps[size(3 * layer + 3)].matrix, weights.narrow[layer]);
  }
  for (int norm = 0; norm <= kLayers; ++norm) {
    for (int row = 0; row < kRows; ++row) put(plan.norms + (norm * kRows + row) * 2, weights.norms[norm][size(row)]);
  }
  return memory;
}

/// Of one column, in float64.
std::vector<double> expected(std::vector<double> hidden, int ranks) {
  for (int layer = 0; layer < kLayers; ++layer) {
    double squares = 0;
    for (const double number : hidden) squares += number * number;
    const double root = std::sqrt(squares / kRows + static_cast<double>(kEpsilon));
    std::vector<double> next = hidden;
    for (int rank = 0; rank < ranks; ++rank) {
      const Weights weights(rank);
      std::vector<double> squared(kWideRows);
      for (int row = 0; row < kWideRows; ++row) {
        double sum = 0;
        for (int i = 0; i < kRows; ++i)
          sum += weights.widen[layer][size(row * kRows + i)] * hidden[size(i)] * weights.norms[layer][size(i)] / root;
        squared[size(row)] = sum * sum;
      }
      for (int row = 0; row < kRows; ++row) {
        for (int i = 0; i < kWideRows; ++i)
          next[size(row)] += weights.narrow[layer][size(row * kWideRows + i)] * squared[size(i)];
      }
    }
    hidden = next;
  }
  const Weights weights(0);
  for (int row = 0; row < kRows; ++row) hidden[size(row)] *= weights.norms[kLayers][size(row)];
  return hidden;
}

/// The outputs of each dispatcher, of which all have the same bits. All calls are enqueued before the first is awaited.
std::vector<std::vector<std::uint64_t>> outputs_of(World& world, Stream stream, int columns, int ranks,
                                                   const std::vector<std::uint64_t>& inputs) {
  Device& device = world.device();
  const Plan plan(columns, ranks, device.shape().traits);
  EXPECT_TRUE(plan.runtime.graph.check().ok()) << plan.runtime.graph.check().message();
  std::vector<std::string> kernels = {"toy_static_" + std::to_string(columns)};
  if (plan.runtime.gang) kernels.push_back("toy_gang_" + std::to_string(columns));
  auto opened = OpenedOperator::open(world, {.name = "toy",
                                             .site_names = kSiteNames,
                                             .kernels = kernels,
                                             .buffers = {{plan.runtime.graph.packet_bytes, kNoTag}}});
  EXPECT_TRUE(opened.ok()) << opened.status().to_string();
  if (!opened.ok()) return {};
  const auto runtime =
      Runtime::create(world, opened->slot(), plan.runtime, static_cast<std::int64_t>(opened->buffer(0).offset), stream);
  const std::vector<std::uint16_t> memory = packed(plan, Weights(world.rank()), device.shape().traits.matrix_unit);
  const auto weights = DeviceMemory::create(device, size(plan.weight_bytes));
  const auto in = DeviceMemory::create(device, inputs.size() * 8);
  EXPECT_TRUE(runtime.ok() && weights.ok() && in.ok());
  EXPECT_TRUE(device.copy_in(weights->get(), memory.data(), weights->bytes(), stream).ok());
  EXPECT_TRUE(device.copy_in(in->get(), inputs.data(), in->bytes(), stream).ok());
  std::vector<FleetDispatcher> dispatchers = {FleetDispatcher::kStatic, FleetDispatcher::kGraph};
  if (plan.runtime.gang) dispatchers.push_back(FleetDispatcher::kGang);
  std::vector<DeviceMemory> outs;
  for (std::size_t i = 0; i < dispatchers.size(); ++i) {
    auto out = DeviceMemory::create(device, inputs.size() * 8);
    EXPECT_TRUE(out.ok());
    outs.push_back(std::move(*out));
  }
  EXPECT_TRUE(all_ok(world.bootstrap(), {}, std::chrono::minutes(1)).ok());  // kernels wait for the other rank's
  for (std::size_t i = 0; i < dispatchers.size(); ++i) {
    const Args args{runtime->launch(weights->as<const std::byte>(), kEpsilon), in->as<const std::uint64_t>(),
                    outs[i].as<std::uint64_t>()};
    const Kernel& kernel = opened->kernel(dispatchers[i] == FleetDispatcher::kGang ? 1 : 0);
    EXPECT_TRUE(runtime
                    ->run(
                        dispatchers[i], kernel, args, kTokens, [](Args&) {}, stream)
                    .ok());
  }
  const Status status = drain(world, stream);
  EXPECT_TRUE(status.ok()) << status.to_string();
  std::vector<std::vector<std::uint64_t>> all;
  for (const DeviceMemory& out : outs) {
    all.emplace_back(inputs.size());
    EXPECT_TRUE(device.copy_out(all.back().data(), out.get(), out.bytes(), stream).ok());
    EXPECT_EQ(all.back(), all.front()) << name_of(dispatchers[all.size() - 1]);
  }
  EXPECT_TRUE(opened->close().ok());
  return all;
}

void expect_near(const std::vector<std::uint64_t>& got, const std::vector<std::vector<double>>& wanted) {
  const int columns = static_cast<int>(wanted.size());
  for (int column = 0; column < columns; ++column) {
    double errors = 0, norm = 0;
    for (int row = 0; row < kRows; ++row) {
      const auto bits = static_cast<std::uint16_t>(got[size(row / 4 * columns + column)] >> (16 * (row % 4)));
      const double right = wanted[size(column)][size(row)];
      const double error = static_cast<double>(float_from(Bf16{bits})) - right;
      errors += error * error;
      norm += right * right;
    }
    EXPECT_LT(std::sqrt(errors / norm), 0.01) << "column " << column;
  }
}

using Case = std::tuple<TargetKind, int, int>;  ///< target, columns, ranks
class ToyModel : public WorldTestOf<Case> {};
INSTANTIATE_TEST_SUITE_P(Targets, ToyModel,
                         testing::Combine(testing::ValuesIn(kAllTargets), testing::Values(2, 16),
                                          testing::Values(1, 2)),
                         [](const auto& info) {
                           return std::string(name_of(std::get<0>(info.param))) + "_" +
                                  std::to_string(std::get<1>(info.param)) + "_columns_" +
                                  std::to_string(std::get<2>(info.param)) + "_ranks";
                         });

TEST_P(ToyModel, EveryDispatcherGivesTheReference) {
  const auto [target, columns, ranks] = GetParam();
  std::vector<std::uint64_t> inputs(size(kRows / 4 * columns));
  std::vector<std::vector<double>> numbers;
  for (int column = 0; column < columns; ++column) {
    numbers.push_back(random_numbers(kRows, size(column)));
    for (int row = 0; row < kRows; ++row)
      inputs[size(row / 4 * columns + column)] |=
          std::uint64_t{bf16_from(static_cast<float>(numbers.back()[size(row)])).bits} << (16 * (row % 4));
  }
  std::vector<std::vector<double>> wanted;
  for (const std::vector<double>& column : numbers) wanted.push_back(expected(column, ranks));
  setenv("FARWARP_EMU_XCDS", "2", 1);  // two workers on one of them: their numbers need not be their blocks'
  for (std::uint64_t seed = 1; seed <= (is_real() ? 1 : 3); ++seed) {
    if (!is_real()) emu::Machine::instance().set_schedule({.seed = seed, .adversarial = true});
    on_streams(ranks, options(), [&, columns = columns, ranks = ranks](World& world, Stream stream) {
      for (const std::vector<std::uint64_t>& got : outputs_of(world, stream, columns, ranks, inputs))
        expect_near(got, wanted);
    });
  }
  unsetenv("FARWARP_EMU_XCDS");
}

}  // namespace
}  // namespace farwarp::fleet::toy
