#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "farwarp/results/report/report.h"
#include "farwarp/results/report/values.h"

namespace farwarp::results {
namespace {

using nlohmann::json;

constexpr int kNameWidth = 540, kPlotWidth = 400, kSpeedWidth = 70, kRowHeight = 18, kTitleHeight = 46;
constexpr const char* kSeries[] = {"floor_us", "baseline_us", "ours_us"};
constexpr const char* kColours[] = {"#8b95a3", "#b7702a", "#1666c9"};
constexpr const char* kNames[] = {"floor", "fastest baseline", "farwarp"};

/// Powers of ten around all figures of the suite; equal ones without any.
std::pair<double, double> decades_of(const json& suite) {
  double least = INFINITY, most = 0;
  for (const json& one : list(suite, "cases")) {
    for (const char* const series : kSeries) {
      const double us = number(one, series).value_or(0);
      if (us > 0) least = std::min(least, us), most = std::max(most, us);
    }
  }
  if (!(most > 0)) return {0, 0};
  return {std::floor(std::log10(least)), std::max(std::ceil(std::log10(most)), std::floor(std::log10(least)) + 1)};
}

std::string text_at(double x, double y, const char* attributes, const std::string& shown) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\"{}>{}</text>\n", x, y, attributes, shown);
}

/// The rows of a suite from `top` on; adds their height to it.
std::string rows_of(const json& suite, double& top) {
  const auto [low, high] = decades_of(suite);
  if (low == high) return {};
  const auto place = [low = low, high = high](double us) {
    return kNameWidth + kPlotWidth * (std::log10(us) - low) / (high - low);
  };
  const double plot_top = top + kTitleHeight - 8,
               height = kRowHeight * static_cast<double>(list(suite, "cases").size());
  std::string picture = text_at(8, top + 20, " font-weight=\"bold\" font-size=\"14\"", escaped(title_of(suite)));
  for (double power = low; power <= high; ++power) {
    const double us = std::pow(10.0, power);
    picture += fmt::format("<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1:.1f}\" y2=\"{2:.1f}\" stroke=\"#d8dce2\"/>\n",
                           place(us), plot_top, plot_top + height);
    picture += text_at(place(us), plot_top - 4, " text-anchor=\"middle\" fill=\"#667080\"", fmt::format("{:g} us", us));
  }
  double y = plot_top + kRowHeight / 2.0;
  for (const json& one : list(suite, "cases")) {
    picture += text_at(8, y + 4, "", escaped(text(one, "op") + " " + text(one, "shape")));
    for (std::size_t i = 0; i < std::size(kSeries); ++i) {
      const double us = number(one, kSeries[i]).value_or(0);
      if (us > 0)
        picture +=
            fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"5\" fill=\"{}\"><title>{} {} us</title></circle>\n",
                        place(us), y, kColours[i], kNames[i], shown(us));
    }
    const double ours = number(one, "ours_us").value_or(0), baseline = number(one, "baseline_us").value_or(0);
    if (ours > 0 && baseline > 0)
      picture += text_at(kNameWidth + kPlotWidth + kSpeedWidth - 6, y + 4, " text-anchor=\"end\"",
                         fmt::format("{:.2f}x", baseline / ours));
    y += kRowHeight;
  }
  top = plot_top + height + 6;
  return picture;
}

}  // namespace

std::string picture_of(const json& report) {
  double top = 26;
  std::string rows;
  for (const json& suite : list(report, "suites")) rows += rows_of(suite, top);
  const int width = kNameWidth + kPlotWidth + kSpeedWidth;
  std::string picture = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1:.0f}\" viewBox=\"0 0 {0} {1:.0f}\" "
      "font-family=\"sans-serif\" font-size=\"11.5\" fill=\"#1c2026\">\n<rect width=\"100%\" height=\"100%\" "
      "fill=\"#ffffff\"/>\n",
      width, top);
  for (std::size_t i = 0; i < std::size(kSeries); ++i) {
    const double x = 16 + 130.0 * static_cast<double>(i);
    picture += fmt::format("<circle cx=\"{:.1f}\" cy=\"16\" r=\"5\" fill=\"{}\"/>\n", x, kColours[i]);
    picture += text_at(x + 10, 20, "", kNames[i]);
  }
  picture += text_at(width - 6, 20, " text-anchor=\"end\" fill=\"#667080\"",
                     escaped(text(report, "machine")) + ", medians, cold; baseline / farwarp");
  return picture + rows + "</svg>\n";
}

}  // namespace farwarp::results
