// The lessons as operators of the command line: farwarp check lesson-01.
#include "farwarp/harness/case.h"

#include <fmt/format.h>

#include <functional>
#include <numeric>

#include "farwarp/harness/params.h"
#include "farwarp/world/host/world.h"
#include "lesson.h"

namespace farwarp::lessons {
namespace {

using harness::CheckOutcome;
using harness::RunOptions;
using Words = std::vector<std::uint32_t>;

/// What distinguishes one lesson from another, on the host.
struct Lesson {
  const char* op;
  const char* summary;
  const char* kernel;
  int blocks;
  std::size_t shared_bytes;
  std::size_t (*workspace_bytes)(int ranks, int words);
  Words (*input)(int rank, int call, int words);
  Words (*expected)(int rank, int ranks, int call, int words, int items);
};

std::uint32_t input_word(int rank, int call, int i) {
  return static_cast<std::uint32_t>(rank * 1'000'003 + call * 10'007 + i + 1);
}

Words input_words(int rank, int call, int words) {
  Words result(static_cast<std::size_t>(words));
  for (int i = 0; i < words; ++i) result[static_cast<std::size_t>(i)] = input_word(rank, call, i);
  return result;
}

Words expected_greeting(int rank, int ranks, int, int, int) {
  return {static_cast<std::uint32_t>(100 + (rank + ranks - 1) % ranks)};
}

Words expected_gather(int, int ranks, int call, int words, int) {
  Words result;
  for (int from = 0; from < ranks; ++from) {
    for (int i = 0; i < words; ++i) result.push_back(input_word(from, call, i));
  }
  return result;
}

Words expected_items(int rank, int, int call, int words, int items) {
  Words result;
  for (int item = 0; rank == 1 && item < items; ++item) {
    for (int i = 0; i < words; ++i) result.push_back(input_word(0, call, i) + static_cast<std::uint32_t>(item));
  }
  return result;
}

constexpr Lesson kLessons[] = {
    {"lesson-01", "put with signal: a greeting to the right neighbour", "lesson_01_hello", 1, 0,
     [](int ranks, int) -> std::size_t { return std::size_t{16} + 16u * static_cast<unsigned>(ranks); }, input_words,
     expected_greeting},
    {"lesson-02", "all-gather with a flag per chunk", "lesson_02_all_gather", kChunks, 0,
     [](int ranks, int words) -> std::size_t {
       return 2u * static_cast<unsigned>(ranks) * (8u * kChunks + 4u * static_cast<unsigned>(words));
     },
     input_words, expected_gather},
    {"lesson-03", "producer and consumer with a ring and back-pressure", "lesson_03_producer_consumer", 1, 4096,
     [](int, int words) -> std::size_t { return kRing * (16u + 4u * static_cast<unsigned>(words)); }, input_words,
     expected_items},
};

const std::vector<harness::ParamInfo> kParams = {
    {"words", "64", "a multiple of 4 from 4 to 1024"},
    {"items", "12", "1 to 64; lesson-03: items per call"},
    {"omit_release", "0", "0|1; lesson-02: publish chunks without a release"},
};

class LessonCase final : public harness::Case {
 public:
  LessonCase(const Lesson& lesson, int words, int items, bool omit_release)
      : lesson_(lesson), words_(words), items_(items), omit_release_(omit_release) {}

  std::string describe() const override { return fmt::format("{} words={} items={}", lesson_.op, words_, items_); }

  CheckOutcome check(std::shared_ptr<Bootstrap> bootstrap, const RunOptions& options) override {
    CheckOutcome outcome;
    outcome.status = run(*bootstrap, bootstrap, options, outcome);
    outcome.pass = outcome.status.ok() && outcome.detail.empty();
    if (outcome.detail.empty()) outcome.detail = outcome.status.message();
    return outcome;
  }

 private:
  Status run(Bootstrap& group, const std::shared_ptr<Bootstrap>& bootstrap, const RunOptions& options,
             CheckOutcome& outcome) {
    WorldOptions world_options;
    world_options.target = options.target;
    world_options.deadline = options.deadline;
    world_options.heap_bytes = std::size_t{1} << 20;
    auto created = World::create(bootstrap, world_options);
    if (!created.ok()) return created.status();
    World& world = *created;
    Device& device = world.device();

    const harness::Fault& fault = options.fault;
    const bool differs = fault.kind == harness::Fault::Kind::kMismatch && fault.rank == group.rank();
    const int configuration = (words_ + (differs ? 4 : 0)) * 1000 + items_;
    auto slot =
        world.open_operator(lesson_.op, {kSiteNames, kSiteNames + kSites}, static_cast<std::uint64_t>(configuration));
    if (!slot.ok()) return slot.status();
    auto workspace = world.allocate(lesson_.workspace_bytes(group.size(), words_));
    if (!workspace.ok()) return workspace.status();
    auto kernel = device.kernel(lesson_.kernel);
    if (!kernel.ok()) return kernel.status();
    auto stream = device.create_stream();
    if (!stream.ok()) return stream.status();
    const std::size_t in_bytes = 4u * static_cast<unsigned>(words_);
    const std::size_t out_bytes = in_bytes * static_cast<unsigned>(std::max(group.size(), items_));
    auto in = device.allocate(in_bytes);
    if (!in.ok()) return in.status();
    auto out = device.allocate(out_bytes);
    if (!out.ok()) return out.status();

    Args args{};
    args.view = world.view();
    args.slot = static_cast<std::uint32_t>(*slot);
    args.switches = omit_release_ ? kOmitRelease : 0;
    args.workspace = static_cast<std::int64_t>(workspace->offset);
    args.in = static_cast<const std::uint32_t*>(*in);
    args.out = static_cast<std::uint32_t*>(*out);
    args.words = words_;
    args.items = items_;
    const LaunchConfig config{lesson_.blocks, 128, lesson_.shared_bytes};
    Status status;
    // At least three calls, so that the third uses the first one's buffers again.
    for (int call = 0; status.ok() && outcome.detail.empty() && call < std::max(3, options.calls); ++call) {
      const Words input = lesson_.input(group.rank(), call, words_);
      status = device.copy_in(*in, input.data(), in_bytes, *stream);
      if (status.ok()) status = device.fill(*out, 0xff, out_bytes, *stream);
      if (status.ok() && call == 0) status = harness::apply_fault(fault, group.rank(), group, device, *stream);
      if (status.ok()) status = launch(device, *kernel, config, args, *stream);
      Words found(lesson_.expected(group.rank(), group.size(), call, words_, items_).size());
      if (status.ok()) status = device.copy_out(found.data(), *out, 4 * found.size(), *stream);
      if (status.ok()) status = world.status();
      if (status.ok()) outcome.detail = compare(found, group, call);
    }
    device.release(*in);
    device.release(*out);
    device.destroy_stream(*stream);
    return status;
  }

  std::string compare(const Words& found, const Bootstrap& group, int call) const {
    const Words expected = lesson_.expected(group.rank(), group.size(), call, words_, items_);
    std::size_t wrong = 0, first = 0;
    for (std::size_t i = expected.size(); i-- > 0;) {
      if (found[i] != expected[i]) ++wrong, first = i;
    }
    if (wrong == 0) return {};
    return fmt::format("rank {}, call {}: {} of {} words are wrong; word {} is {:#x}, expected {:#x}", group.rank(),
                       call, wrong, expected.size(), first, found[first], expected[first]);
  }

  const Lesson& lesson_;
  int words_;
  int items_;
  bool omit_release_;
};

Result<std::unique_ptr<harness::Case>> make_case(const Lesson& lesson, const harness::Params& params) {
  harness::ParamReader reader(params, kParams);
  const int words = reader.small_integer("words", 4, 1024);
  if (words % 4 != 0) reader.reject("words", std::to_string(words), "a multiple of 4 from 4 to 1024");
  const int items = reader.small_integer("items", 1, 64);
  const bool omit_release = reader.flag("omit_release");
  if (!reader.status().ok()) return reader.status();
  return std::unique_ptr<harness::Case>(std::make_unique<LessonCase>(lesson, words, items, omit_release));
}

[[maybe_unused]] const bool registered = [] {
  using enum harness::Fault::Kind;
  for (const Lesson& lesson : kLessons) {
    harness::register_op({lesson.op,
                          lesson.summary,
                          kParams,
                          [&lesson](const harness::Params& params) { return make_case(lesson, params); },
                          {kDelay, kKill, kMismatch}});
  }
  return true;
}();

}  // namespace
}  // namespace farwarp::lessons
