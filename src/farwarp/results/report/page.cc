#include <fmt/format.h>

#include "farwarp/results/report/parts.h"
#include "farwarp/results/report/report.h"
#include "farwarp/results/report/values.h"

namespace farwarp::results {
namespace {

using nlohmann::json;

std::string cell(const json& of, const std::string& pointer, const char* key, const char* label) {
  return fmt::format("<td class=\"number\" data-label=\"{}\"{}>{}</td>", label, figure(of, pointer, key),
                     shown(of, key));
}

std::string row_of(const json& one, const std::string& here) {
  const std::string refused = text(one, "refused"), baseline = text(one, "baseline"), why = text(one, "no_baseline");
  std::string notes;
  if (!refused.empty()) notes += fmt::format("<br><b class=\"refused\">does not count: {}</b>", escaped(refused));
  if (flag(one, "scaled")) notes += "<br><small>scaled down for the emulator</small>";
  std::string row = fmt::format("<tr><th scope=\"row\">{} {} <small>{}</small>{}</th>", escaped(text(one, "op")),
                                escaped(text(one, "label")), escaped(text(one, "shape")), notes);
  row += cell(one, here, "floor_us", "floor us");
  row += fmt::format("<td data-label=\"bound by\">{}</td>",
                     number(one, "floor_us") ? escaped(text(one, "floor_bound_by")) : "-");
  row += cell(one, here, "ours_us", "farwarp us") + cell(one, here, "times_floor", "x floor");
  row += cell(one, here, "baseline_us", "baseline us");
  row += fmt::format(
      "<td data-label=\"fastest baseline\">{}</td>",
      baseline.empty() ? fmt::format("<small>{}</small>", escaped(why.empty() ? "-" : why)) : escaped(baseline));
  row += cell(one, here, "speedup", "baseline / farwarp");
  return row + cell(one, here, "speed_of_light_us", "author's floor us") + "</tr>\n";
}

std::string mean_row(const json& suite, const std::string& pointer) {
  const json& mean = member(suite, "mean");
  const std::string here = pointer + "/mean";
  if (!number(mean, "ours_us")) return {};
  return fmt::format(
      "<tfoot><tr><th scope=\"row\">geometric mean of {:g} cases{}</th><td class=\"empty\"></td><td class=\"empty\">"
      "</td>{}{}<td class=\"empty\"></td><td class=\"empty\"></td>{}<td class=\"empty\"></td></tr></tfoot>\n",
      number(mean, "ours_us_cases").value_or(0),
      number(mean, "speedup") ? fmt::format(", of {:g} beside a baseline", number(mean, "speedup_cases").value_or(0))
                              : "",
      cell(mean, here, "ours_us", "farwarp us"), cell(mean, here, "times_floor", "x floor"),
      cell(mean, here, "speedup", "baseline / farwarp"));
}

std::string all_series(const json& suite, const std::string& pointer) {
  std::string rows;
  std::size_t case_number = 0;
  for (const json& one : list(suite, "cases")) {
    const std::string here = fmt::format("{}/cases/{}", pointer, case_number++);
    std::size_t number_of_series = 0;
    for (const json& series : list(one, "series")) {
      const std::string there = fmt::format("{}/series/{}", here, number_of_series++);
      rows += fmt::format("<tr><th scope=\"row\">{} {}: {}</th>", escaped(text(one, "op")), escaped(text(one, "label")),
                          escaped(text(series, "name")));
      for (const auto& [key, label] :
           {std::pair("median_us", "median us"), std::pair("q1_us", "quartile 1"), std::pair("q3_us", "quartile 3"),
            std::pair("graph_us", "graph us"), std::pair("back_to_back_us", "back to back us")})
        rows += cell(series, there, key, label);
      rows += fmt::format("<td class=\"number\" data-label=\"samples\">{:g}</td></tr>\n",
                          number(series, "samples").value_or(0));
    }
    if (!text(one, "plan").empty())
      rows +=
          fmt::format("<tr><td class=\"plan\" colspan=\"7\"><small>{}</small></td></tr>\n", escaped(text(one, "plan")));
  }
  return "<details><summary>all series, quartiles, plans</summary>\n<table><thead><tr><th>series</th><th "
         "class=\"number\">median us</th><th class=\"number\">quartile 1</th><th class=\"number\">quartile 3</th><th "
         "class=\"number\">graph us</th><th class=\"number\">back to back us</th><th class=\"number\">samples</th></tr>"
         "</thead><tbody>\n" +
         rows + "</tbody></table>\n</details>\n";
}

std::string suite_section(const json& suite, const std::string& pointer) {
  std::string html = fmt::format("<section>\n<h2>{}</h2>\n", escaped(title_of(suite)));
  html +=
      "<table><thead><tr><th>case</th><th class=\"number\">floor us</th><th>bound by</th><th class=\"number\">farwarp "
      "us</th><th class=\"number\">x floor</th><th class=\"number\">baseline us</th><th>fastest baseline</th><th "
      "class=\"number\">baseline / farwarp</th><th class=\"number\">author's floor us</th></tr></thead><tbody>\n";
  std::size_t number_of_case = 0;
  for (const json& one : list(suite, "cases"))
    html += row_of(one, fmt::format("{}/cases/{}", pointer, number_of_case++));
  html += "</tbody>\n" + mean_row(suite, pointer) + "</table>\n";
  html +=
      "<p class=\"legend\"><i class=\"floor\"></i>floor <i class=\"ours\"></i>farwarp <i "
      "class=\"baseline\"></i>baselines; "
      "the line on a bar is between the quartiles; the scale is logarithmic</p>\n";
  return html + bars_of(suite, pointer) + all_series(suite, pointer) + "</section>\n";
}

std::string summary(const json& report) {
  std::string cards;
  std::size_t i = 0;
  for (const json& suite : list(report, "suites")) {
    const std::string here = fmt::format("/suites/{}/mean", i++);
    const json& mean = member(suite, "mean");
    const char* const key = number(mean, "speedup") ? "speedup" : "ours_us";
    if (!number(mean, key)) continue;
    cards +=
        fmt::format("<div class=\"card\"><b><span{}>{}</span>{}</b><span>{}<br>{}</span></div>\n",
                    figure(mean, here, key), shown(mean, key), key[0] == 's' ? "x" : " us", escaped(title_of(suite)),
                    key[0] == 's' ? "fastest baseline / farwarp, geometric mean" : "farwarp, geometric mean");
  }
  return cards.empty() ? cards : "<div class=\"cards\">\n" + cards + "</div>\n";
}

std::string runs_table(const json& report) {
  std::string rows;
  for (const json& run : list(report, "runs")) {
    rows += fmt::format("<tr><th scope=\"row\">run {:g} {}</th>", number(run, "id").value_or(0),
                        escaped(text(run, "label")));
    for (const auto& [key, label] :
         {std::pair("began", "began"), std::pair("target", "target"), std::pair("driver", "driver"),
          std::pair("clocks", "highest clocks"), std::pair("commit", "commit"), std::pair("command", "command")}) {
      const std::string value = text(run, key);
      rows += fmt::format("<td data-label=\"{}\">{}</td>", label, value.empty() ? "-" : escaped(value));
    }
    rows += "</tr>\n";
  }
  return "<section>\n<h2>Runs</h2>\n<table><thead><tr><th>run</th><th>began</th><th>target</th><th>driver</th>"
         "<th>highest clocks</th><th>commit</th><th>command</th></tr></thead><tbody>\n" +
         rows + "</tbody></table>\n</section>\n";
}

/// No "</script>" or "<!--" ends it early.
std::string embedded(const json& report) {
  std::string data;
  for (const char c : to_text(report)) {
    if (c == '<') {
      data += "\\u003c";
    } else {
      data += c;
    }
  }
  return "<script type=\"application/json\" id=\"data\">\n" + data + "</script>\n";
}

}  // namespace

Result<std::string> page_of(const json& report, const std::vector<NamedTrace>& traces) {
  const std::string machine = text(report, "machine");
  std::string html = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" "
      "content=\"width=device-width, initial-scale=1\">\n<meta name=\"color-scheme\" content=\"light dark\">\n"
      "<link rel=\"icon\" href=\"data:,\">\n<title>farwarp on "
      "{0}</title>\n<style>\n{1}</style>\n</head>\n<body>\n<main>\n"
      "<h1>farwarp on {0}</h1>\n",
      escaped(machine), page_style());
  if (!flag(report, "times_have_meaning")) html += fmt::format("<p class=\"warning\">{}</p>\n", kNoMeaning);
  html +=
      "<p>Medians in microseconds, cold, of the slowest rank. A floor is the least time that the machine's measured "
      "ceilings allow.</p>\n";
  html += summary(report);
  std::size_t i = 0;
  for (const json& suite : list(report, "suites")) html += suite_section(suite, fmt::format("/suites/{}", i++));
  if (i == 0) html += "<p>no times are recorded</p>\n";
  html += "<section>\n<h2>Taxes</h2>\n" + taxes_of(report) + "</section>\n";
  for (const NamedTrace& trace : traces) {
    const auto picture = timeline_of(trace.text);
    if (!picture.ok())
      return Status{picture.status().code(),
                    fmt::format("--trace is '{}': {}", trace.name, picture.status().message())};
    html += "<section>\n<h2>Timeline</h2>\n" + *picture + "</section>\n";
  }
  return html + runs_table(report) + "</main>\n" + embedded(report) + "</body>\n</html>\n";
}

}  // namespace farwarp::results
