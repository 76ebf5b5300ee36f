// Taxes are kept and read; a report takes the newest complete run of each case, and tables of documents follow it.
#include "farwarp/results/report/report.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <tuple>

#include "farwarp/base/temporary_folder_test.h"
#include "farwarp/results/report/values.h"
#include "farwarp/results/results_test_records.h"

namespace farwarp::results {
namespace {

using nlohmann::json;

class ReportTest : public testing::Test {
 protected:
  Store open() const {
    auto store = Store::open(path_, Database::Access::kCreate);
    EXPECT_TRUE(store.ok()) << store.status().to_string();
    return std::move(*store);
  }
  /// A complete run.
  static std::int64_t finish(Store& store, const RunRecord& of, const std::vector<CaseRecord>& cases) {
    RunRecord run = of;
    run.id = keep(store, of, cases);
    EXPECT_TRUE(store.complete(run).ok());
    return run.id;
  }
  static json report(Store& store, const ReportSelection& selection = {}) {
    const auto made = make_report(store, selection);
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    return made.ok() ? *made : json();
  }
  std::string written(const char* name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
    return (folder_ / name).string();
  }
  /// The document that `text` becomes, or the error without the folder.
  std::string with(const std::string& text) const {
    const auto made = with_tables((folder_ / "page.md").string(), text);
    if (made.ok()) return made->text;
    return made.status().message().substr(folder_.path().string().size() + 1);
  }

  TemporaryFolder folder_;
  std::string path_ = (folder_ / "results.db").string();
};

TEST_F(ReportTest, TaxesAreKept) {
  const TaxRecord tax = a_tax("all-reduce benchmarks[0]");
  TaxRecord bare = tax;
  bare.of_case = "all-reduce benchmarks[1]";
  bare.bulk_us = bare.locality_us = bare.rest_us = bare.fused_us = {};
  bare.launch_us = 0;
  RunRecord run = a_run(), other = a_run();
  {
    Store store = open();
    ASSERT_TRUE(store.add(run, tax).ok());
    ASSERT_TRUE(store.add(run, bare).ok());
    ASSERT_TRUE(store.add(run, a_case("benchmarks[0]", 10)).ok());
    TaxRecord wrong = tax;
    wrong.detail = "[1]";
    EXPECT_EQ(store.add(other, wrong).message(), "detail is '[1]'; allowed: a JSON object");
  }
  EXPECT_EQ(run.id, 1);
  EXPECT_EQ(other.id, 0);
  Store store = open();
  const auto taxes = store.taxes_of_run(1);
  ASSERT_TRUE(taxes.ok());
  ASSERT_EQ(taxes->size(), 2u);
  const TaxRecord& first = taxes->front();
  EXPECT_EQ(std::tuple(first.run, first.suite, first.of_case, first.baseline, first.baseline_us, first.detail),
            std::tuple(1, tax.suite, tax.of_case, tax.baseline, tax.baseline_us, tax.detail));
  EXPECT_EQ(std::tuple(first.launch_us, first.bulk_us, first.locality_us, first.rest_us, first.fused_us),
            std::tuple(tax.launch_us, tax.bulk_us, tax.locality_us, tax.rest_us, tax.fused_us));
  const TaxRecord& second = taxes->back();
  EXPECT_EQ(second.launch_us, 0.0) << "which is not the same as not measured";
  EXPECT_FALSE(second.bulk_us || second.locality_us || second.rest_us || second.fused_us);
  EXPECT_EQ(store.cases_of_run(1)->size(), 1u);
  EXPECT_EQ(store.runs()->size(), 1u);
}

TEST_F(ReportTest, TakesTheNewestCompleteRunOfEachCase) {
  Store store = open();
  CaseRecord both = a_case("benchmarks[0]", 10);
  both.series.push_back(a_baseline("slow", 40));
  both.series.push_back(a_baseline("fast", 20));
  finish(store, a_run(), {both, a_case("benchmarks[1]", 8), a_case("benchmarks[10]", 4), a_case("benchmarks[2]", 4)});
  const std::int64_t newer = finish(store, a_run("bbbb"), {a_case("benchmarks[1]", 6)});
  keep(store, a_run("cccc"), {a_case("benchmarks[1]", 5)});  // was interrupted
  const json made = report(store);
  EXPECT_EQ(made["machine"], "NVIDIA H200");
  EXPECT_EQ(made["times_have_meaning"], true);
  ASSERT_EQ(made["suites"].size(), 1u);
  const json& suite = made["suites"][0];
  ASSERT_EQ(suite["cases"].size(), 4u);
  EXPECT_EQ(suite["cases"][2]["label"], "benchmarks[2]") << "10 is after 2";
  EXPECT_EQ(suite["cases"][1]["ours_us"], 6);
  EXPECT_EQ(suite["cases"][1]["run"], newer);
  EXPECT_EQ(made["runs"].size(), 2u);
  const json& first = suite["cases"][0];
  EXPECT_EQ(std::tuple(first["baseline"], first["baseline_us"], first["speedup"], first["times_floor"]),
            std::tuple(json("fast"), json(20), json(2), json(5)));
  EXPECT_EQ(first["shape"], "elements=benchmarks[0]") << "what varies";
  EXPECT_TRUE(suite["cases"][1]["speedup"].is_null());
  EXPECT_EQ(suite["mean"]["ours_us_cases"], 4);
  EXPECT_NEAR(suite["mean"]["ours_us"].get<double>(), std::pow(10. * 6 * 4 * 4, 0.25), 1e-9);
  EXPECT_EQ(suite["mean"]["speedup"], 2);
  EXPECT_EQ(to_text(*parse_report(to_text(made))), to_text(made));
}

TEST_F(ReportTest, WrongAndTooFastTimesDoNotCount) {
  Store store = open();
  CaseRecord wrong = a_case("benchmarks[0]", 10), fast = a_case("benchmarks[1]", 1.5);
  wrong.verified = false;
  wrong.detail = "rank 1: \xff<b>";
  finish(store, a_run(), {wrong, fast, a_case("benchmarks[2]", 7)});
  const json made = report(store);
  const json& cases = made["suites"][0]["cases"];
  EXPECT_EQ(cases[0]["refused"], "wrong: rank 1: \xef\xbf\xbd<b>");
  EXPECT_EQ(cases[1]["refused"], "below the floor: links");
  EXPECT_NEAR(made["suites"][0]["mean"]["ours_us"].get<double>(), 7, 1e-9);
  const std::string page = *page_of(made, {});
  EXPECT_NE(page.find("does not count: wrong: rank 1: \xef\xbf\xbd&lt;b&gt;</b>"), std::string::npos);
  EXPECT_EQ(page.find("<b>\""), std::string::npos) << "the embedded JSON has no tags";
}

TEST_F(ReportTest, MachinesRanksAndSettingsAreApart) {
  Store store = open();
  EXPECT_EQ(make_report(store, {}).status().message(),
            "the database has no complete run; `farwarp bench` that ends by itself is one");
  RunRecord other = a_run();
  other.machine = "NVIDIA H100";
  finish(store, other, {a_case("benchmarks[0]", 9)});
  CaseRecord set = a_case("benchmarks[0]", 11);
  set.settings = "dtype=fp16";
  finish(store, a_run("aaaa", 4), {a_case("benchmarks[0]", 10), set});
  finish(store, a_run("aaaa", 2), {a_case("benchmarks[0]", 10)});
  const json made = report(store);
  ASSERT_EQ(made["suites"].size(), 3u);
  EXPECT_EQ(title_of(made["suites"][2]), "mine on 4 ranks, dtype=fp16");
  EXPECT_EQ(report(store, {{"mine"}, "NVIDIA H100"})["suites"][0]["cases"][0]["ours_us"], 9);
  EXPECT_EQ(make_report(store, {{}, "B200"}).status().message(),
            "--machine is 'B200': allowed are NVIDIA H100, NVIDIA H200");
  EXPECT_EQ(make_report(store, {{"mine", "other"}, ""}).status().message(),
            "--suite is 'other': allowed are those of which NVIDIA H200 has complete runs: mine");
}

TEST_F(ReportTest, ShowsTaxesOrSaysThatThereAreNone) {
  Store store = open();
  finish(store, a_run(), {a_case("benchmarks[0]", 10)});
  EXPECT_NE(page_of(report(store), {})->find("<p>no taxes are recorded</p>"), std::string::npos);
  RunRecord run = a_run();
  ASSERT_TRUE(store.add(run, a_tax("all-reduce benchmarks[0]")).ok());
  EXPECT_TRUE(report(store)["taxes"].empty()) << "the run is not complete";
  ASSERT_TRUE(store.complete(run).ok());
  const json made = report(store);
  ASSERT_EQ(made["taxes"].size(), 1u);
  EXPECT_EQ(made["taxes"][0]["launch_us"], 5);
  EXPECT_EQ(made["taxes"][0]["detail"]["saved"]["launch_us"], 4);
  const std::string page = *page_of(made, {});
  EXPECT_EQ(page.find("no taxes"), std::string::npos);
  EXPECT_NE(page.find(" data-figure=\"/taxes/0/rest_us\">-0.50</td>"), std::string::npos);
}

TEST_F(ReportTest, DocumentsFollowTheirData) {
  Store store = open();
  finish(store, a_run(), {a_case("benchmarks[0]", 10), a_case("benchmarks[1]", 1234)});
  RunRecord run = a_run();
  ASSERT_TRUE(store.add(run, a_tax("all-reduce benchmarks[0]")).ok() && store.complete(run).ok());
  written("data.json", to_text(report(store)));
  const std::string begin = "before\n<!-- report: data=data.json suite=mine ranks=2 -->",
                    end = "<!-- end of report -->\n";
  const std::string made = with(begin + "stale" + end);
  EXPECT_EQ(made, begin +
                      "\n\nmine on 2 ranks: NVIDIA H200, 2026-11-28; commit aaaa.\n\n"
                      "| case | shape | floor us | farwarp us | x floor | fastest baseline us | baseline / farwarp |\n"
                      "|---|---|---|---|---|---|---|\n"
                      "| all-reduce benchmarks[0] | elements=benchmarks[0] | 2.00 | 10.0 | 5.00 | - | - |\n"
                      "| all-reduce benchmarks[1] | elements=benchmarks[1] | 2.00 | 1234 | 617.0 | - | - |\n\n" +
                      end);
  EXPECT_EQ(with(made), made) << "a second time changes nothing";
  CaseRecord other = a_case("benchmarks[0]", 10);
  other.suite = "other";
  finish(store, a_run("bbbb"), {other});
  written("data.json", to_text(report(store)));
  EXPECT_EQ(with(made), made) << "a table names the runs that it is made of";
  const auto table = [&](const std::string& what) { return with("<!-- report: data=data.json " + what + "-->" + end); };
  EXPECT_NE(table("table=means ").find("| mine on 2 ranks | 2 | 111.1 | 55.5 | - |\n"), std::string::npos)
      << table("table=means ");
  EXPECT_NE(table("table=taxes op=all-reduce ").find("| 20.0 | 5.00 | 3.00 | 2.50 | -0.50 | 10.0 |\n"),
            std::string::npos);
}

TEST_F(ReportTest, DocumentsSayWhatIsWrong) {
  written("data.json", R"({"report_version": 1})");
  written("newer.json", R"({"report_version": 2})");
  written("text.json", "[1]");
  const std::string end = " --> <!-- end of report -->", nothing = "data=data.json";
  for (const auto& [text, message] :
       {std::pair(std::string("\n<!-- report: data=data.json -->"), "2: the report has no '<!-- end of report -->'"),
        {"<!-- report: data=data.json --> <!-- report: data=data.json" + end,
         "1: the report has no '<!-- end of report -->'"},
        {"<!-- report: suite=mine" + end, "1: data= is needed: the JSON file that the table is made of"},
        {"<!-- report: data=data.json colour=red" + end,
         "1: 'colour=red'; allowed: data=, suite=, ranks=, settings=, op=, table= with a value"},
        {"<!-- report: data=data.json table=all" + end, "1: table=all; allowed: cases, means, taxes"},
        {"<!-- report: data=data.json op=gemm table=means" + end,
         "1: op= and table=means; allowed: op= with cases or taxes"},
        {"<!-- report: data=none.json" + end, "1: data=none.json: cannot be read: No such file or directory"},
        {"<!-- report: data=newer.json" + end, "1: data=newer.json: report_version is 2; allowed: 1"},
        {"<!-- report: data=text.json" + end, "1: data=text.json: is no JSON that `farwarp report --json` wrote"},
        {"<!-- report: " + nothing + end, "1: 'data.json' has nothing of what the marker names"}})
    EXPECT_EQ(with(text), "page.md:" + std::string(message)) << text;
}

/// Any JSON is drawn, or refused: nothing crashes.
/// Marks are where the logarithm says; a case without figures has a row without marks.
TEST(Picture, ShowsEachCase) {
  const json report = *parse_report(R"({"report_version":1,"machine":"<M>","suites":[{"suite":"s","ranks":2,"cases":[
      {"op":"gemm","shape":"m=1","floor_us":1,"ours_us":10,"baseline_us":100},{"op":"none","shape":""}]}]})");
  const std::string picture = picture_of(report);
  EXPECT_TRUE(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"));
  EXPECT_NE(picture.find(">&lt;M&gt;, medians"), std::string::npos);
  const auto place = [&](const char* title) {
    const std::size_t end = picture.find(title), begin = picture.rfind("cx=\"", end);
    return end == std::string::npos ? -1 : std::stod(picture.substr(begin + 4));
  };
  const double floor = place("<title>floor 1.00 us"), ours = place("<title>farwarp 10.0 us"),
               baseline = place("<title>fastest baseline 100.0 us");
  EXPECT_GT(floor, 0);
  EXPECT_GT(ours, floor);
  EXPECT_NEAR(ours - floor, baseline - ours, 0.11);
  EXPECT_NE(picture.find(">10.00x<"), std::string::npos);
  EXPECT_NE(picture.find(">none <"), std::string::npos);
}

TEST_F(ReportTest, PagesOfStrangeData) {
  for (const char* data :
       {R"({"report_version":1,"suites":[1,{"cases":[null,{"series":[7,{}],"floor_us":-1}],"mean":3}]})",
        R"({"report_version":1,"suites":{},"taxes":[{"baseline_us":0},5],"runs":"none"})"}) {
    const auto page = page_of(*parse_report(data), {});
    ASSERT_TRUE(page.ok());
    EXPECT_TRUE(picture_of(*parse_report(data)).ends_with("</svg>\n"));
    EXPECT_TRUE(page->ends_with("</html>\n"));
  }
  for (const auto& [trace, message] :
       {std::pair("{", "is no JSON that `farwarp trace` wrote"),
        {R"({"traceEvents":[]})", "has no events; allowed: a trace with some"},
        {R"({"traceEvents":[{"ph":"X","ts":"1"},4]})", "has no events; allowed: a trace with some"}})
    EXPECT_EQ(page_of(json::object(), {{"t.json", trace}}).status().message(),
              std::string("--trace is 't.json': ") + message);
  const std::string page = *page_of(json::object(), {{"t.json", R"({"traceEvents":[
      {"ph":"X","cat":"load","name":"<load>","pid":0,"tid":1,"ts":10,"dur":5},
      {"ph":"X","cat":"load","name":"<load>","pid":0,"tid":1,"ts":10,"dur":5},
      {"ph":"X","cat":"wait","name":"wait","pid":1,"tid":1,"ts":10,"dur":10},
      {"ph":"s","id":5,"pid":0,"tid":1,"ts":12},{"ph":"f","id":5,"pid":1,"tid":1,"ts":20},
      {"ph":"f","id":6,"pid":1,"tid":1,"ts":20}]})"}});
  const auto count = [&](std::string_view part) {
    int found = 0;
    for (std::size_t at = page.find(part); at != std::string::npos; at = page.find(part, at + 1)) ++found;
    return found;
  };
  EXPECT_EQ(count("<rect class=\"t-load\" x=\"0.0%\" width=\"50.0%\""), 1) << "twice the same is drawn once";
  EXPECT_EQ(count("<title>&lt;load&gt;: 5.00 us at 10.0</title>"), 1);
  EXPECT_EQ(count("<line class=\"arrow\" x1=\"20.00%\""), 1) << "an end without a begin is no arrow";
}

}  // namespace
}  // namespace farwarp::results
