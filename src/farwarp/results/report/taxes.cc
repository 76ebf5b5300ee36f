#include <fmt/format.h>

#include <algorithm>

#include "farwarp/results/report/parts.h"
#include "farwarp/results/report/values.h"

namespace farwarp::results {
namespace {

using nlohmann::json;

struct Part {
  const char *key, *name;
};
constexpr Part kParts[] = {{"launch_us", "launch"}, {"bulk_us", "bulk synchronisation"}, {"locality_us", "locality"}};

std::string cell(const json& tax, const std::string& pointer, const char* key, const char* label) {
  return fmt::format("<td class=\"number\" data-label=\"{}\"{}>{}</td>", label, figure(tax, pointer, key),
                     shown(tax, key));
}

/// A rectangle from `from` on, both in microseconds of `whole`.
std::string piece(double from, double us, double whole, const std::string& kind, const std::string& name) {
  return fmt::format(
      "<rect class=\"{}\" x=\"{:.2f}%\" width=\"{:.2f}%\" y=\"2\" height=\"16\"><title>{}: {} us</title></rect>", kind,
      100 * from / whole, 100 * us / whole, escaped(name), shown(us));
}

/// The baseline's time: its taxes beside each other, then what no tax is; below it the fused kernel's.
std::string picture_of(const json& tax, double scale) {
  const double whole = number(tax, "baseline_us").value_or(0);
  if (!(whole > 0)) return {};
  std::string pieces;
  double from = 0;
  for (const Part& part : kParts) {
    const double us = std::clamp(number(tax, part.key).value_or(0), 0.0, whole - from);
    if (us > 0) pieces += piece(from, us, scale, std::string("tax-") + part.key, part.name);
    from += us;
  }
  pieces += piece(from, whole - from, scale, "work", "work and what is not explained");
  std::string html = fmt::format(
      "<h4>{} <small>{}</small></h4><div class=\"bar\"><span class=\"name\">{}</span><svg height=\"20\" "
      "role=\"img\" aria-label=\"{} us\">{}</svg><span class=\"value\">{}</span></div>\n",
      escaped(text(tax, "case")), escaped(text(tax, "suite")), escaped(text(tax, "baseline")), shown(whole), pieces,
      shown(whole));
  if (const auto fused = number(tax, "fused_us"); fused && *fused > 0)
    html += fmt::format(
        "<div class=\"bar\"><span class=\"name\">farwarp, fused</span><svg height=\"20\" role=\"img\" "
        "aria-label=\"{} us\">{}</svg><span class=\"value\">{}</span></div>\n",
        shown(*fused), piece(0, *fused, scale, "ours", "fused"), shown(*fused));
  return html;
}

}  // namespace

std::string taxes_of(const json& report) {
  const json& taxes = list(report, "taxes");
  if (taxes.empty()) return "<p>no taxes are recorded</p>\n";
  std::string rows, pictures;
  double longest = 0;
  for (const json& tax : taxes)
    longest = std::max({longest, number(tax, "baseline_us").value_or(0), number(tax, "fused_us").value_or(0)});
  for (std::size_t i = 0; i < taxes.size(); ++i) {
    const json& tax = taxes[i];
    const std::string here = fmt::format("/taxes/{}", i);
    rows +=
        fmt::format("<tr><th scope=\"row\">{} <small>{}, {:g} ranks</small></th><td data-label=\"baseline\">{}</td>",
                    escaped(text(tax, "case")), escaped(text(tax, "suite")), number(tax, "ranks").value_or(0),
                    escaped(text(tax, "baseline")));
    rows += cell(tax, here, "baseline_us", "baseline us");
    for (const Part& part : kParts) rows += cell(tax, here, part.key, part.name);
    rows += cell(tax, here, "rest_us", "not explained") + cell(tax, here, "fused_us", "fused us") + "</tr>\n";
    pictures += picture_of(tax, longest);
  }
  return "<p>Of the time of a bulk-synchronous baseline, in microseconds, each measured by an experiment that changes "
         "it alone.</p>\n<table><thead><tr><th>case</th><th>baseline</th><th class=\"number\">baseline us</th><th "
         "class=\"number\">launch</th><th class=\"number\">bulk synchronisation</th><th class=\"number\">locality</th>"
         "<th class=\"number\">not explained</th><th class=\"number\">fused us</th></tr></thead><tbody>\n" +
         rows +
         "</tbody></table>\n<p class=\"legend\"><i class=\"tax-launch_us\"></i>launch <i "
         "class=\"tax-bulk_us\"></i>bulk "
         "synchronisation <i class=\"tax-locality_us\"></i>locality <i class=\"work\"></i>work and what is not "
         "explained "
         "<i class=\"ours\"></i>the fused kernel</p>\n<div class=\"bars\">\n" +
         pictures + "</div>\n";
}

}  // namespace farwarp::results
