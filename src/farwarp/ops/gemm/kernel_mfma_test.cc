// The mfma kernels on the emulator, without their host side: odd shapes, pitches and splits, against sums in double.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "farwarp/harness/device_buffer.h"
#include "farwarp/harness/inputs.h"
#include "farwarp/ops/gemm/args.h"
#include "farwarp/substrate/emu/machine.h"
#include "farwarp/tile/gemm/shape_mfma.h"
#include "farwarp/world/host/world.h"

namespace farwarp {
namespace {

using harness::DeviceBuffer;
using tile::kMfmaLarge;
using tile::kMfmaSmall;
using tile::MfmaShape;

struct Product {
  int m, n, k;
  DType dtype = DType::kBf16;
  bool has_bias = false;
  int splits = 1;
  int pad = 0;  ///< elements after each row of x, w and y
  MfmaShape tile = kMfmaSmall;
  int blocks = 8;
  int xcds = 8;
  std::uint64_t seed = 1;
  bool adversarial = true;
};

constexpr int ceil_div(int a, int b) { return (a + b - 1) / b; }

std::string name_of(const Product& p) {
  return fmt::format("m {} n {} k {} {} bias {} splits {} pad {} tile {}x{} blocks {} xcds {} seed {}", p.m, p.n, p.k,
                     name_of(p.dtype), p.has_bias, p.splits, p.pad, p.tile.rows, p.tile.columns, p.blocks, p.xcds,
                     p.seed);
}

/// A matrix whose padding is NaN and whose memory ends with its last row, so that reads outside the matrix make the
/// test fail.
struct Matrix {
  int rows, columns;
  std::int64_t pitch;
  std::vector<std::uint16_t> bits;

  Matrix(int rows_, int columns_, int pad, std::uint16_t fill)
      : rows(rows_), columns(columns_), pitch(columns_ + pad), bits((rows_ - 1) * pitch + columns_, fill) {}
  std::uint16_t& at(int row, int column) { return bits[row * pitch + column]; }
};

Matrix random_matrix(const Product& product, int what, int rows, int columns, int pad) {
  Matrix matrix(rows, columns, pad, 0xffff);
  for (int row = 0; row < rows; ++row) {
    const harness::RandomStream stream(product.seed,
                                       {static_cast<std::uint64_t>(what), static_cast<std::uint64_t>(row)});
    harness::fill_normal(stream, 0, 1, product.dtype, {&matrix.at(row, 0), static_cast<std::size_t>(columns)});
  }
  return matrix;
}

constexpr std::uint16_t kPoison = 0xfefe;

/// One World of one rank, and the operator's slot in it.
class Rig {
 public:
  explicit Rig(World& world) : world_(world) {
    slot_ = world.open_operator("gemm", {gemm::kSiteNames[0]}, 1).value();
    stream_ = world.device().create_stream().value();
    // Allocated once for all products: counts that earlier products leave must have no effect.
    partials_ = world.allocate(std::size_t{8} << 20).value();
    counters_ = world.allocate(256 * sizeof(std::uint32_t)).value();
  }
  ~Rig() {
    world_.device().destroy_stream(stream_);
    EXPECT_TRUE(world_.close_operator(slot_).ok());
  }

  void check(const Product& product) {
    SCOPED_TRACE(name_of(product));
    emu::Machine::instance().set_schedule({product.seed, product.adversarial});
    Matrix x = random_matrix(product, 0, product.m, product.k, product.pad);
    Matrix w = random_matrix(product, 1, product.n, product.k, 2 * product.pad);
    Matrix bias = random_matrix(product, 2, 1, product.n, 0);
    Matrix y(product.m, product.n, 3 * product.pad, kPoison);
    run(product, x, w, bias, y);
    if (HasFatalFailure()) return;
    EXPECT_EQ(emu::Machine::instance().report().race, "");
    compare(product, x, w, bias, y);
  }

 private:
  static bool HasFatalFailure() { return ::testing::Test::HasFatalFailure(); }

  DeviceBuffer upload(const Matrix& matrix) {
    auto buffer = DeviceBuffer::create(world_.device(), matrix.bits.size() * 2).value();
    EXPECT_TRUE(buffer.upload(matrix.bits.data(), matrix.bits.size() * 2, stream_).ok());
    return buffer;
  }

  void run(const Product& p, const Matrix& x, const Matrix& w, const Matrix& bias, Matrix& y) {
    const DeviceBuffer on_device[] = {upload(x), upload(w), upload(bias), upload(y)};
    gemm::Args args{};
    args.view = world_.view();
    args.slot = static_cast<std::uint32_t>(slot_);
    args.m = p.m, args.n = p.n, args.k = p.k;
    args.grid = tile::grid_of(ceil_div(p.m, p.tile.rows), ceil_div(p.n, p.tile.columns), 2, p.splits,
                              ceil_div(p.k, p.tile.step_depth()));
    args.xcds = p.xcds;
    args.partials = static_cast<std::int64_t>(partials_.offset);
    args.counters = static_cast<std::int64_t>(counters_.offset);
    ASSERT_LE(args.grid.works() * p.tile.rows * p.tile.columns * 4, 8 << 20);
    args.x = on_device[0].get(), args.x_pitch = x.pitch;
    args.w = on_device[1].get(), args.w_pitch = w.pitch;
    args.bias = p.has_bias ? on_device[2].get() : nullptr;
    args.y = on_device[3].get(), args.y_pitch = y.pitch;
    Device& device = world_.device();
    auto kernel =
        device.kernel(fmt::format("gemm_mfma_{}_{}x{}", farwarp::name_of(p.dtype), p.tile.rows, p.tile.columns));
    ASSERT_TRUE(kernel.ok()) << kernel.status().to_string();
    const LaunchConfig config{p.blocks, p.tile.threads(), static_cast<std::size_t>(p.tile.shared_bytes())};
    const Status launched = launch(device, *kernel, config, args, stream_);
    ASSERT_TRUE(launched.ok()) << launched.to_string();
    const Status done = device.synchronize(stream_, 600'000'000'000);
    ASSERT_TRUE(done.ok()) << done.to_string();
    ASSERT_TRUE(world_.status().ok()) << world_.status().to_string();
    ASSERT_TRUE(on_device[3].download(y.bits.data(), y.bits.size() * 2, stream_).ok());
  }

  void compare(const Product& p, Matrix& x, Matrix& w, Matrix& bias, Matrix& y) {
    const double half_unit = p.dtype == DType::kBf16 ? 0x1p-8 : 0x1p-11;
    const auto value = [&](std::uint16_t bits) { return static_cast<double>(harness::decode(p.dtype, bits)); };
    for (int row = 0; row < p.m; ++row) {
      for (int column = 0; column < p.n; ++column) {
        double sum = p.has_bias ? value(bias.at(0, column)) : 0, magnitude = std::abs(sum);
        for (int i = 0; i < p.k; ++i) {
          const double product = value(x.at(row, i)) * value(w.at(column, i));
          sum += product;
          magnitude += std::abs(product);
        }
        const double got = value(y.at(row, column));
        // One rounding, after fp32 sums of k terms.
        ASSERT_LE(std::abs(got - sum), std::abs(sum) * half_unit * 1.001 + magnitude * p.k * 0x1p-24 + 0x1p-25)
            << "row " << row << " column " << column << " is " << got << ", not " << sum;
      }
      const auto end = row + 1 < p.m ? (row + 1) * y.pitch : static_cast<std::int64_t>(y.bits.size());
      for (std::int64_t i = row * y.pitch + p.n; i < end; ++i)
        ASSERT_EQ(y.bits[i], kPoison) << "padding of row " << row;
    }
  }

  World& world_;
  int slot_;
  Stream stream_;
  SymmetricBuffer partials_, counters_;
};

void with_rig(const std::function<void(Rig&)>& body) {
  const Status status = run_ranks(1, [&](std::shared_ptr<Bootstrap> bootstrap) -> Status {
    WorldOptions options;
    options.target = TargetKind::kEmuGfx942;
    options.heap_bytes = std::size_t{10} << 20;
    auto world = World::create(std::move(bootstrap), options);
    if (!world.ok()) return world.status();
    Rig rig(*world);
    body(rig);
    return {};
  });
  EXPECT_TRUE(status.ok()) << status.to_string();
}

// Every m, n and k with each tile. Types, biases, splits, pitches, blocks and XCDs are drawn at random.
TEST(GemmMfma, OddShapes) {
  with_rig([](Rig& rig) {
    std::uint64_t number = 0;
    for (const MfmaShape& tile : {kMfmaSmall, kMfmaLarge}) {
      for (const int m : {1, 17, 64, 130}) {
        for (const int n : {8, 40, 136, 264}) {
          for (const int k : {8, 24, 72, 360}) {
            const harness::RandomStream draw(++number, {7});
            Product product{m, n, k};
            product.tile = tile;
            product.dtype = draw.below(0, 2) == 0 ? DType::kBf16 : DType::kF16;
            product.has_bias = draw.below(1, 2) == 0;
            product.splits = 1 + static_cast<int>(draw.below(2, std::min(3, ceil_div(k, tile.step_depth()))));
            product.pad = 8 * static_cast<int>(draw.below(3, 3));
            product.blocks = 1 + static_cast<int>(draw.below(4, 8));
            product.xcds = 1 + static_cast<int>(draw.below(5, 8));
            product.seed = number;
            rig.check(product);
            if (::testing::Test::HasFailure()) return;
          }
        }
      }
    }
  });
}

// Few shapes under many schedules. A missing barrier shows as a stale operand, a race or a wrong sum.
TEST(GemmMfma, Schedules) {
  with_rig([](Rig& rig) {
    for (std::uint64_t seed = 1; seed <= 6; ++seed) {
      for (const DType dtype : {DType::kBf16, DType::kF16}) {
        Product few{65, 136, 520, dtype, true, 3, 8, kMfmaSmall, 5, 3, seed};
        rig.check(few);
        Product large{17, 264, 264, dtype, false, 2, 0, kMfmaLarge, 2, 2, seed};
        rig.check(large);
        if (::testing::Test::HasFailure()) return;
      }
    }
  });
}

// More tiles than blocks: the next tile's operands are loaded while a tile is stored. Then more blocks than tiles.
TEST(GemmMfma, BlocksTakeTurns) {
  with_rig([](Rig& rig) {
    Product product{200, 392, 392, DType::kBf16, true, 2, 8, kMfmaSmall, 3, 8, 11, false};
    rig.check(product);
    product = {300, 392, 136, DType::kF16, true, 1, 8, kMfmaLarge, 1, 8, 12, false};
    rig.check(product);
    product = {10, 16, 72, DType::kBf16, false, 1, 0, kMfmaLarge, 8, 8, 13, true};
    rig.check(product);
  });
}

}  // namespace
}  // namespace farwarp
