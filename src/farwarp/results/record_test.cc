#include "farwarp/results/record.h"

#include <gtest/gtest.h>

namespace farwarp::results {
namespace {

TEST(Record, PartsOfABaselineAreNoEntries) {
  const harness::OperatorInfo op{"op", "", {}, {}};
  harness::CaseResult result;
  result.request.op = &op;
  result.outcome.pass = true;
  const auto measured = [](const char* name, bool ours, bool part) {
    harness::Measurement measurement;
    measurement.name = name;
    measurement.ours = ours;
    measurement.part = part;
    measurement.time_us = harness::summarise({1, 2, 3});
    return measurement;
  };
  result.bench.measurements = {measured("op", true, false), measured("op, graph", true, false),
                               measured("both libraries", false, false), measured("one library alone", false, true)};
  const CaseRecord record = record_of(result, {.suite = "s", .settings = ""}, "farwarp 1");
  std::vector<std::string> entries;
  for (const SeriesRecord& series : record.series) entries.push_back(series.entry);
  EXPECT_EQ(entries, (std::vector<std::string>{"farwarp 1", "", "both libraries", ""}));
}

TEST(Record, OfTaxes) {
  const harness::OperatorInfo op{"op", "", {}, {}};
  harness::CaseResult result;
  result.request.op = &op;
  result.request.label = "benchmarks[2]";
  result.outcome.pass = true;
  harness::Taxes taxes;
  taxes.baseline_name = "libraries";
  taxes.baseline_us = 10;
  taxes.ranks_us = 2;
  taxes.order_us = 1;
  result.bench.taxes = taxes;
  const TaxRecord record = tax_record_of(result, {.suite = "s", .settings = "problem=share"});
  EXPECT_EQ(record.suite, "s");
  EXPECT_EQ(record.of_case, "op benchmarks[2]");
  EXPECT_EQ(record.baseline, "libraries");
  EXPECT_EQ(record.bulk_us, 3);
  EXPECT_NE(record.detail.find("problem=share"), std::string::npos);
}

}  // namespace
}  // namespace farwarp::results
