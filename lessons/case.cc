// The lessons as operators of the command line: farwarp check lesson-01.
#include "farwarp/harness/case.h"

#include <fmt/format.h>

#include <functional>
#include <numeric>

#include "farwarp/base/arguments.h"
#include "farwarp/harness/device_buffer.h"
#include "farwarp/harness/params.h"
#include "farwarp/harness/rank_run.h"
#include "farwarp/world/host/opened_operator.h"
#include "lesson.h"

namespace farwarp::lessons {
namespace {

using harness::CheckOutcome;
using harness::DeviceBuffer;
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

struct Settings {
  int words = 0;
  int items = 0;
  bool omit_release = false;
};

class Run : public harness::RankRun {
 public:
  Run(const Lesson& lesson, const Settings& settings, std::shared_ptr<Bootstrap> bootstrap, const RunOptions& options)
      : RankRun(std::move(bootstrap), options, harness::Comparison(DType::kBf16, 1, 1)),
        lesson_(lesson),
        settings_(settings) {}

  Status open() {
    const auto workspace = static_cast<std::int64_t>(lesson_.workspace_bytes(ranks_, settings_.words));
    if (Status status = open_world(workspace); !status.ok()) return status;
    const bool differs = options_.fault.kind == harness::Fault::Kind::kMismatch && options_.fault.rank == rank_;
    auto opened =
        OpenedOperator::open(*world_, {.name = lesson_.op,
                                       .site_names = kSiteNames,
                                       .configuration = hash_of({settings_.words + (differs ? 4 : 0), settings_.items}),
                                       .kernels = {lesson_.kernel},
                                       .buffers = {{workspace}}});
    if (!opened.ok()) return opened.status();
    opened_ = std::move(*opened);
    const std::size_t in_bytes = 4u * static_cast<unsigned>(settings_.words);
    auto in = DeviceBuffer::create(world_->device(), in_bytes);
    if (!in.ok()) return in.status();
    in_ = std::move(*in);
    auto out =
        DeviceBuffer::create(world_->device(), in_bytes * static_cast<unsigned>(std::max(ranks_, settings_.items)));
    if (!out.ok()) return out.status();
    out_ = std::move(*out);
    return {};
  }

  Status all_calls() {
    constexpr int kLeast = 3;  // the third call uses the first one's buffers again
    return make_calls(kLeast, [this](int call) { return call_once(call); });
  }

  Status close(const Status& status) {
    return close_operator(status, [this] { return opened_.close(); });
  }

 private:
  Status call_once(int call) {
    const Words input = lesson_.input(rank_, call, settings_.words);
    Status status = in_.upload(input.data(), in_.bytes(), *stream_);
    if (status.ok()) status = out_.poison(*stream_);
    if (status.ok() && call == 0)
      status = harness::apply_fault(options_.fault, rank_, *bootstrap_, world_->device(), *stream_);
    if (status.ok())
      status =
          launch(world_->device(), opened_.kernel(0), {lesson_.blocks, 128, lesson_.shared_bytes}, args(), *stream_);
    if (status.ok()) status = wait(patience());
    return status.ok() ? verify(call) : status;
  }

  Args args() const {
    Args args{};
    args.view = world_->view();
    args.slot = opened_.slot();
    args.switches = settings_.omit_release ? kOmitRelease : 0;
    args.workspace = static_cast<std::int64_t>(opened_.buffer(0).offset);
    args.in = in_.as<const std::uint32_t>();
    args.out = out_.as<std::uint32_t>();
    args.words = settings_.words;
    args.items = settings_.items;
    return args;
  }

  Status verify(int call) {
    const Words expected = lesson_.expected(rank_, ranks_, call, settings_.words, settings_.items);
    Words found(expected.size());
    if (Status status = out_.download(found.data(), 4 * found.size(), *stream_); !status.ok()) return status;
    std::size_t wrong = 0, first = 0;
    for (std::size_t i = expected.size(); i-- > 0;) {
      if (found[i] != expected[i]) ++wrong, first = i;
    }
    if (wrong > 0 && findings_.difference.empty())
      findings_.difference = fmt::format("call {}: {} of {} words are wrong; word {} is {:#x}, expected {:#x}", call,
                                         wrong, expected.size(), first, found[first], expected[first]);
    return {};
  }

  const Lesson& lesson_;
  Settings settings_;
  OpenedOperator opened_;
  DeviceBuffer in_, out_;
};

class LessonCase final : public harness::Case {
 public:
  LessonCase(const Lesson& lesson, const Settings& settings) : lesson_(lesson), settings_(settings) {}

  std::string describe() const override {
    return fmt::format("{} words={} items={}", lesson_.op, settings_.words, settings_.items);
  }

  CheckOutcome check(std::shared_ptr<Bootstrap> bootstrap, const RunOptions& options) override {
    Run run(lesson_, settings_, std::move(bootstrap), options);
    Status status = run.open();
    if (status.ok()) status = run.all_calls();
    return run.outcome(run.close(status));
  }

 private:
  const Lesson& lesson_;
  Settings settings_;
};

Result<std::unique_ptr<harness::Case>> make_case(const Lesson& lesson, const harness::Params& params) {
  harness::ParamReader reader(params, kParams);
  Settings settings;
  settings.words = reader.small_integer("words", 4, 1024);
  if (settings.words % 4 != 0) reader.reject("words", std::to_string(settings.words), "a multiple of 4 from 4 to 1024");
  settings.items = reader.small_integer("items", 1, 64);
  settings.omit_release = reader.flag("omit_release");
  if (!reader.status().ok()) return reader.status();
  return std::unique_ptr<harness::Case>(std::make_unique<LessonCase>(lesson, settings));
}

[[maybe_unused]] const bool registered = [] {
  using enum harness::Fault::Kind;
  for (const Lesson& lesson : kLessons) {
    harness::register_operator({lesson.op,
                                lesson.summary,
                                kParams,
                                [&lesson](const harness::Params& params) { return make_case(lesson, params); },
                                {kDelay, kKill, kMismatch}});
  }
  return true;
}();

}  // namespace
}  // namespace farwarp::lessons
