// Decides whether a result is right. Every element must be written. No element may differ from the exact value by more
// than its roundings allow. The errors of a tile together may not be larger than roundings make them, nor may its
// results be too large or too small on average. If nothing rounds, all elements are exact.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "farwarp/base/half.h"
#include "farwarp/harness/rounding.h"

namespace farwarp::harness {

/// Outputs are filled with this byte before a call. The pattern it makes is a NaN that no conversion of farwarp
/// produces (those give 0x7fff), so an element that still holds it was never written.
inline constexpr std::uint8_t kPoisonByte = 0xff;
inline constexpr std::uint16_t kPoison16 = 0xffff;

/// The largest integer up to which `dtype` (kF16 or kBf16) holds every integer.
double largest_exact_integer(DType dtype);

struct Verdict {
  bool pass = false;
  std::string detail;      ///< empty, or the first thing that is wrong
  double rel_err = 0;      ///< relative Frobenius error
  double max_share = 0;    ///< the largest error of an element, as a share of what its roundings allow
  double tile_share = 0;   ///< the largest error of a tile (root mean square), likewise
  double scale_share = 0;  ///< the largest error of the scale of a tile's results, likewise
};

/// Collects the errors of one rank's results, row by row, call after call.
class Comparison {
 public:
  /// Errors are added up over tiles of `tile_rows` x `tile_columns` elements.
  Comparison(DType dtype, int tile_rows, int tile_columns)
      : dtype_(dtype), tile_rows_(tile_rows), tile_columns_(tile_columns) {}

  /// The elements added from now on belong to `call`. Tiles do not extend over calls.
  void begin_call(int call);
  /// Elements (row, columns[i]).
  void add(int row, std::span<const int> columns, std::span<const std::uint16_t> got,
           std::span<const ExpectedElement> expected);
  /// Elements (row, first_column + i). `scale_variance`: of sum (error_i * value_i), as the roundings before the last
  /// one make it; given, the scale of the tile's results is judged.
  void add(int row, int first_column, std::span<const std::uint16_t> got, std::span<const ExpectedElement> expected,
           std::optional<double> scale_variance = std::nullopt);

  /// Elements (row, first_column + i), for inputs with which nothing rounds. Each must equal `expected` converted to
  /// the dtype.
  void add_exact(int row, int first_column, std::span<const std::uint16_t> got, std::span<const double> expected);

  /// A tile passes if sum (got - exact)^2 <= (1 + 5 / sqrt(2 n))^2 * sum a with a = mean_square_error(): five standard
  /// deviations above what roundings give. n counts elements by their weight: (sum a)^2 / sum a^2. If the squares of
  /// the predicted errors add up to more than sum a, they replace it, because a few numbers times one weight may all be
  /// rounded alike.
  ///
  /// The scale: s is the sum of (got - exact, rounded) * exact over a tile. It passes if |s| <= 5 deviations + what
  /// fp32 arithmetic may add. The last rounding has no part in it but where earlier errors take a result over a tie: of
  /// the largest elements, two may be.
  Verdict verdict() const;

 private:
  struct Tile {
    double error_squares = 0, allowed_squares = 0;
    double allowed_fourths = 0;  ///< sum of the squares of the terms of allowed_squares
    double predicted_squares = 0;
    std::int64_t elements = 0;
    double projected = 0, value_squares = 0;  ///< sums of error * exact value and of their squares
    /// what roundings, and fp32 arithmetic at most, make of `projected`
    double projected_variance = 0, projected_arithmetic = 0;
    double largest_flip = 0;  ///< by the last rounding of one element
    double share() const;
    double scale_share() const;
    void add_projection(DType dtype, double got, const ExpectedElement& expected);
  };
  struct Worst {
    double share = 0;
    std::string detail;
  };
  template <class ColumnOf>
  void add_row(int row, const ColumnOf& column_of, std::span<const std::uint16_t> got,
               std::span<const ExpectedElement> expected);
  void add_element(Tile& tile, int row, int column, std::uint16_t got, const ExpectedElement& expected);
  Worst worst_tile() const;
  Worst worst_scale() const;

  DType dtype_;
  int tile_rows_, tile_columns_;
  int call_ = 0;
  std::map<std::pair<int, int>, Tile> tiles_;  // of call_
  Worst element_, tile_, scale_;               // tile_, scale_: of earlier calls
  std::int64_t elements_ = 0, unwritten_ = 0;
  std::string first_unwritten_;
  double error_squares_ = 0, expected_squares_ = 0;
};

/// Whether the AMD Developer Challenge 2025 would flag the element: |got - expected| > atol + rtol * |expected|. Tests
/// show what it misses; no check uses it.
bool is_outside(double got, double expected, double rtol, double atol);

}  // namespace farwarp::harness
