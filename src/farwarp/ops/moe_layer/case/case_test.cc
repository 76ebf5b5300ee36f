// moe_layer through the harness.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "farwarp/harness/case_test_fixture.h"
#include "farwarp/ops/moe_layer/variants.h"

namespace farwarp::harness {
namespace {

void expect_pass(const std::string& settings, int ranks = 2, int schedules = 1, int calls = 2) {
  harness::expect_pass({.op = "moe-layer",
                        .settings = settings,
                        .target = TargetKind::kEmuSm90,
                        .ranks = ranks,
                        .schedules = schedules,
                        .calls = calls});
}

TEST(MoeLayerCases, First) {
  expect_pass("", 1);
  expect_pass("", 2);
}

}  // namespace
}  // namespace farwarp::harness
