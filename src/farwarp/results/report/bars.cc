#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "farwarp/results/report/parts.h"
#include "farwarp/results/report/values.h"

namespace farwarp::results {
namespace {

using nlohmann::json;

struct Scale {
  int low = 0, high = 0;  ///< powers of ten

  /// In percent of the width.
  double place(double us) const { return 100 * std::clamp((std::log10(us) - low) / (high - low), 0.0, 1.0); }
};

/// Of all figures of the suite; 0 decades without any.
Scale scale_of(const json& suite) {
  double least = INFINITY, most = 0;
  const auto take = [&](std::optional<double> us) {
    if (!us || !(*us > 0)) return;
    least = std::min(least, *us);
    most = std::max(most, *us);
  };
  for (const json& one : list(suite, "cases")) {
    take(number(one, "floor_us"));
    for (const json& series : list(one, "series")) take(number(series, "median_us"));
  }
  if (!(most > 0)) return {};
  // The least one has a bar that can be seen.
  const int low = static_cast<int>(std::floor(std::log10(least * 0.7)));
  return {low, std::max(low + 1, static_cast<int>(std::ceil(std::log10(most))))};
}

std::string lines_of(const Scale& scale) {
  std::string lines;
  for (int power = scale.low + 1; power < scale.high; ++power)
    lines += fmt::format("<line class=\"grid\" x1=\"{0:.2f}%\" x2=\"{0:.2f}%\" y1=\"0\" y2=\"100%\"/>",
                         scale.place(std::pow(10.0, power)));
  return lines;
}

std::string axis_of(const Scale& scale) {
  std::string axis = "<div class=\"bar axis\"><span class=\"name\">us</span><svg height=\"18\" aria-hidden=\"true\">";
  for (int power = scale.low; power <= scale.high; ++power) {
    const char* const anchor = power == scale.low ? "start" : power == scale.high ? "end" : "middle";
    axis += fmt::format("<text x=\"{:.2f}%\" y=\"13\" text-anchor=\"{}\">{:g}</text>",
                        scale.place(std::pow(10.0, power)), anchor, std::pow(10.0, power));
  }
  return axis + "</svg><span class=\"value\"></span></div>\n";
}

/// `values` has the time under `key`.
std::string bar(const Scale& scale, const char* kind, const std::string& name, const json& values,
                const std::string& pointer, const char* key) {
  const auto us = number(values, key);
  if (!us || !(*us > 0)) return {};
  std::string picture = lines_of(scale);
  picture += fmt::format("<rect class=\"{}\" y=\"3\" height=\"12\" rx=\"2\" width=\"{:.2f}%\"/>", kind,
                         std::max(0.3, scale.place(*us)));
  const auto q1 = number(values, "q1_us"), q3 = number(values, "q3_us");
  if (q1 && q3 && *q1 > 0 && *q3 > *q1)
    picture += fmt::format("<line class=\"quartiles\" x1=\"{:.2f}%\" x2=\"{:.2f}%\" y1=\"9\" y2=\"9\"/>",
                           scale.place(*q1), scale.place(*q3));
  return fmt::format(
      "<div class=\"bar\"><span class=\"name\">{}</span><svg height=\"18\" role=\"img\" aria-label=\"{} us\">{}</svg>"
      "<span class=\"value\"{}>{}</span></div>\n",
      escaped(name), shown(*us), picture, figure(values, pointer, key), shown(*us));
}

}  // namespace

std::string bars_of(const json& suite, const std::string& pointer) {
  const Scale scale = scale_of(suite);
  if (scale.low == scale.high) return {};
  std::string html = "<div class=\"bars\">\n" + axis_of(scale);
  std::size_t number_of_case = 0;
  for (const json& one : list(suite, "cases")) {
    const std::string here = fmt::format("{}/cases/{}", pointer, number_of_case++);
    html += fmt::format("<h4>{} {} <small>{}</small></h4>\n", escaped(text(one, "op")), escaped(text(one, "label")),
                        escaped(text(one, "shape")));
    html += bar(scale, "floor", "floor", one, here, "floor_us");
    std::size_t number_of_series = 0;
    for (const json& series : list(one, "series")) {
      const std::string there = fmt::format("{}/series/{}", here, number_of_series++);
      const bool ours = flag(series, "ours"), main = flag(series, "main");
      if (ours && !main) continue;  // parts, and the same in another way
      html += bar(scale, ours ? "ours" : "baseline", ours ? "farwarp: " + text(series, "name") : text(series, "name"),
                  series, there, "median_us");
    }
  }
  return html + "</div>\n";
}

}  // namespace farwarp::results
