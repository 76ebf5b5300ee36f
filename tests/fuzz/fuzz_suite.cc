// A suite: an error is one line.
#include "farwarp/harness/params.h"
#include "farwarp/harness/suite.h"
#include "folder.h"

using namespace farwarp;

namespace {

const std::vector<harness::ParamInfo> kInfos = {{"hidden", "8", ""}, {"dtype", "fp16", ""}, {"fast", "0", ""}};
class NoCase : public harness::Case {
 public:
  std::string describe() const override { return "none"; }
  harness::CheckOutcome check(std::shared_ptr<Bootstrap>, const harness::RunOptions&) override { return {}; }
};
const bool kRegistered = [] {
  harness::register_operator(
      {"test-op", "", kInfos, [](const harness::Params& params) -> Result<std::unique_ptr<harness::Case>> {
         harness::ParamReader reader(params, kInfos);
         reader.integer("hidden", 1, 64);
         reader.flag("fast");
         if (!reader.status().ok()) return reader.status();
         return std::unique_ptr<harness::Case>(new NoCase);
       }});
  return true;
}();

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (!kRegistered) std::abort();
  const auto suite = harness::parse_suite(fuzz::text_of(data, size), "fuzz.json");
  if (suite.ok()) {
    if (suite->ranks < 1 || suite->ranks > 8) std::abort();
  } else if (suite.status().message().find_first_of("\n\r") != std::string::npos) {
    std::abort();
  }
  return 0;
}
