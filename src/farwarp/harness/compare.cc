#include "farwarp/harness/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "farwarp/harness/inputs.h"

namespace farwarp::harness {
namespace {

// Infinity for an error where none is allowed, and if one of the two is not finite.
double share_of(double error, double allowed) {
  if (error == 0) return 0;
  if (!std::isfinite(error) || !std::isfinite(allowed) || allowed == 0) return std::numeric_limits<double>::infinity();
  return error / allowed;
}

}  // namespace

double largest_exact_integer(DType dtype) { return dtype == DType::kF16 ? 2048 : 256; }

double Comparison::Tile::share() const {
  const double margin = 1 + 5 / std::sqrt(2 * allowed_squares * allowed_squares / allowed_fourths);
  return share_of(std::sqrt(error_squares), margin * std::sqrt(std::max(allowed_squares, predicted_squares)));
}

double Comparison::Tile::scale_share() const {
  return share_of(std::abs(projected), 5 * std::sqrt(projected_variance) + 2 * largest_flip + projected_arithmetic);
}

void Comparison::Tile::add_projection(DType dtype, double got, const ExpectedElement& expected) {
  const double value = expected.value;
  const double rounded = decode(dtype, encode(dtype, static_cast<float>(value)));
  projected += (got - rounded) * value;
  value_squares += value * value;
  projected_arithmetic += (expected.accumulated + std::abs(expected.predicted)) * std::abs(value);
  // An error d takes a result over a tie with probability d / (2 h), by 2 h. Above h, rounding makes it uniform.
  const double half = half_ulp(dtype, value);
  const double before = std::sqrt(expected.rounded_squares / 3) + expected.accumulated;
  projected_variance += value * value * 2 * half * std::min(before, half);
  if (before > 0) largest_flip = std::max(largest_flip, 2 * half * std::abs(value));
}

void Comparison::begin_call(int call) {
  tile_ = worst_tile();
  scale_ = worst_scale();
  tiles_.clear();
  call_ = call;
}

void Comparison::add(int row, std::span<const int> columns, std::span<const std::uint16_t> got,
                     std::span<const ExpectedElement> expected) {
  add_row(
      row, [&](std::size_t i) { return columns[i]; }, got, expected);
}

void Comparison::add(int row, int first_column, std::span<const std::uint16_t> got,
                     std::span<const ExpectedElement> expected, std::optional<double> scale_variance) {
  add_row(
      row, [&](std::size_t i) { return first_column + static_cast<int>(i); }, got, expected);
  if (!scale_variance) return;
  Tile* tile = nullptr;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const int column = first_column + static_cast<int>(i);
    if (tile == nullptr || column % tile_columns_ == 0) tile = &tiles_[{row / tile_rows_, column / tile_columns_}];
    tile->add_projection(dtype_, decode(dtype_, got[i]), expected[i]);
    tile->projected_variance += *scale_variance / static_cast<double>(got.size());
  }
}

template <class ColumnOf>
void Comparison::add_row(int row, const ColumnOf& column_of, std::span<const std::uint16_t> got,
                         std::span<const ExpectedElement> expected) {
  for (std::size_t i = 0; i < got.size();) {
    const int tile_column = column_of(i) / tile_columns_;
    Tile& tile = tiles_[{row / tile_rows_, tile_column}];
    for (; i < got.size() && column_of(i) / tile_columns_ == tile_column; ++i)
      add_element(tile, row, column_of(i), got[i], expected[i]);
  }
}

void Comparison::add_exact(int row, int first_column, std::span<const std::uint16_t> got,
                           std::span<const double> expected) {
  for (std::size_t i = 0; i < got.size(); ++i, ++elements_) {
    const double value = decode(dtype_, got[i]),
                 wanted = decode(dtype_, encode(dtype_, static_cast<float>(expected[i])));
    if (value == wanted) continue;
    element_.share = std::numeric_limits<double>::infinity();
    if (element_.detail.empty())
      element_.detail = fmt::format("call {}: y[{}, {}] is {}, expected exactly {}", call_, row,
                                    first_column + static_cast<int>(i), value, wanted);
  }
}

void Comparison::add_element(Tile& tile, int row, int column, std::uint16_t got, const ExpectedElement& expected) {
  ++elements_;
  if (got == kPoison16) {
    if (unwritten_++ == 0) first_unwritten_ = fmt::format("call {}: y[{}, {}]", call_, row, column);
    return;
  }
  const double value = decode(dtype_, got);
  const double error = std::abs(value - expected.value);
  error_squares_ += error * error;
  expected_squares_ += expected.value * expected.value;
  tile.error_squares += error * error;
  const double mean_square = expected.mean_square_error(dtype_);
  tile.allowed_squares += mean_square;
  tile.allowed_fourths += mean_square * mean_square;
  tile.predicted_squares += expected.predicted * expected.predicted;
  ++tile.elements;
  const double allowed = expected.largest_error(dtype_), share = share_of(error, allowed);
  if (!(share > element_.share)) return;
  element_.share = share;
  if (share > 1)
    element_.detail = fmt::format("call {}: y[{}, {}] is {}, expected {:.6g}: off by {:.4g}, allowed is {:.4g}", call_,
                                  row, column, value, expected.value, error, allowed);
}

Comparison::Worst Comparison::worst_tile() const {
  Worst worst = tile_;
  for (const auto& [place, tile] : tiles_) {
    const double share = tile.share();
    if (!(share > worst.share)) continue;
    worst = {share, fmt::format("call {}: the errors of y[{}..., {}...], {} elements, have {:.4g} times the root mean "
                                "square that is allowed",
                                call_, place.first * tile_rows_, place.second * tile_columns_, tile.elements, share)};
  }
  return worst;
}

Comparison::Worst Comparison::worst_scale() const {
  Worst worst = scale_;
  for (const auto& [place, tile] : tiles_) {
    const double share = tile.scale_share();
    if (!(share > worst.share)) continue;
    worst = {share,
             fmt::format(
                 "call {}: y[{}..., {}...], {} elements, have {:.6f} times their right size, on average: {:.4g} times "
                 "the difference that is allowed",
                 call_, place.first * tile_rows_, place.second * tile_columns_, tile.elements,
                 1 + tile.projected / tile.value_squares, share)};
  }
  return worst;
}

Verdict Comparison::verdict() const {
  const Worst tile = worst_tile(), scale = worst_scale();
  Verdict verdict;
  verdict.max_share = element_.share;
  verdict.tile_share = tile.share;
  verdict.scale_share = scale.share;
  if (error_squares_ != 0) verdict.rel_err = std::sqrt(error_squares_ / expected_squares_);
  if (unwritten_ != 0) {
    verdict.detail =
        fmt::format("{} of {} elements were not written, the first is {}", unwritten_, elements_, first_unwritten_);
  } else if (element_.share > 1) {
    verdict.detail = element_.detail;
  } else if (tile.share > 1) {
    verdict.detail = tile.detail;
  } else if (scale.share > 1) {
    verdict.detail = scale.detail;
  }
  verdict.pass = verdict.detail.empty();
  return verdict;
}

bool is_outside(double got, double expected, double rtol, double atol) {
  return !(std::abs(got - expected) <= atol + rtol * std::abs(expected));
}

}  // namespace farwarp::harness
