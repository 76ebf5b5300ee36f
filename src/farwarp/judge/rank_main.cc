#include "farwarp/judge/rank_main.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "farwarp/harness/submission.h"
#include "farwarp/judge/clock.h"
#include "farwarp/judge/frames.h"
#include "farwarp/judge/loaded.h"
#include "farwarp/judge/sandbox.h"
#include "farwarp/submission.h"

namespace farwarp::judge {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxFrame = 1 << 20;

/// The judge is gone if a frame cannot be sent or received: then this process has nothing left to do.
class Channel {
 public:
  explicit Channel(int socket) : connection_(UniqueFd(socket)) {}

  Frame receive() {
    connection_.start_receive(kMaxFrame);
    while (true) {
      const auto progress = connection_.continue_receive();
      if (progress == Connection::Progress::kDone) return connection_.take();
      if (progress == Connection::Progress::kClosed) ::_exit(kLostJudge);
      wait(POLLIN);
    }
  }
  void send(Kind kind, std::uint64_t sequence, const std::vector<std::byte>& payload) {
    connection_.start_send(kind, sequence, payload);
    while (true) {
      const auto progress = connection_.continue_send();
      if (progress == Connection::Progress::kDone) return;
      if (progress == Connection::Progress::kClosed) ::_exit(kLostJudge);
      wait(POLLOUT);
    }
  }
  void answer(Kind kind, const Status& status) { send(kind, 0, to_bytes(Answer{.status = status})); }

 private:
  void wait(short events) const {
    pollfd ready{connection_.socket(), events, 0};
    ::poll(&ready, 1, -1);
  }
  Connection connection_;
};

// FARWARP_SUBMISSION_... are the numbers of ElementType.
using harness::ElementType;
static_assert(static_cast<int>(ElementType::kF16) == FARWARP_SUBMISSION_FLOAT16 &&
              static_cast<int>(ElementType::kBf16) == FARWARP_SUBMISSION_BFLOAT16 &&
              static_cast<int>(ElementType::kF32) == FARWARP_SUBMISSION_FLOAT32 &&
              static_cast<int>(ElementType::kI32) == FARWARP_SUBMISSION_INT32 &&
              static_cast<int>(ElementType::kI64) == FARWARP_SUBMISSION_INT64 &&
              static_cast<int>(ElementType::kF8) == FARWARP_SUBMISSION_FLOAT8_E4M3);

std::int32_t dtype_of(const std::string& name) {
  for (int type = 0; type <= FARWARP_SUBMISSION_FLOAT8_E4M3; ++type) {
    if (name == harness::name_of(static_cast<ElementType>(type))) return type;
  }
  return -1;
}

/// A tensor and what it points to.
struct Tensor {
  std::string name;
  std::int32_t dtype = 0;
  std::vector<std::int64_t> shape, strides;

  void reshape(std::vector<std::int64_t> to) {
    shape = std::move(to);
    strides.assign(shape.size(), 1);
    for (std::size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
  }
  std::size_t bytes() const {
    std::size_t product = harness::bytes_of(static_cast<ElementType>(dtype));
    for (const std::int64_t extent : shape) product *= static_cast<std::size_t>(extent);
    return product;
  }
  farwarp_submission_tensor view(void* data) const {
    return {name.c_str(), dtype, static_cast<std::int32_t>(shape.size()), shape.data(), strides.data(), data};
  }
};

class Host {
 public:
  Host(int socket, std::unique_ptr<Loaded> loaded) : judge_(socket), loaded_(std::move(loaded)) {}

  int run() {
    std::setvbuf(stdout, nullptr, _IOLBF, 0);  // it is a pipe, and this process ends without closing it
    Status status = give_up_privileges();
    if (Frame setup = judge_.receive(); status.ok()) status = prepare(setup);  // its descriptor is closed
    judge_.answer(kReady, status);
    while (true) {
      const Frame frame = judge_.receive();
      switch (frame.kind) {
        case kTryOut: try_out(frame); break;
        case kLoad: judge_.answer(kCreated, load()); break;
        case kCall: call(frame); break;
        default:  // kFinish
          loaded_->destroy();
          std::fflush(nullptr);
          judge_.answer(kFinished, {});
          ::_exit(0);  // not exit(): the submission's destructors are nobody's business any more
      }
    }
  }

 private:
  Status prepare(const Frame& frame) {
    setup_ = to_json(frame.payload);
    const auto target = static_cast<TargetKind>(setup_.at("target").get<int>());
    target_ = name_of(target);
    rank_ = setup_.at("rank").get<int>();
    ranks_ = setup_.at("ranks").get<int>();
    op_ = setup_.at("op").get<std::string>();
    case_ = setup_.at("case").get<std::string>();
    auto clock = CallClock::create(target, rank_, ranks_, setup_.at("rendezvous").get<std::string>());
    if (!clock.ok()) return clock.status();
    clock_.emplace(std::move(*clock));
    MemoryHandle handle;
    handle.kind = static_cast<MemoryHandle::Kind>(setup_.at("kind").get<int>());
    handle.bytes = setup_.at("bytes").get<std::uint64_t>();
    handle.fd = frame.fd.get();
    const auto ipc = setup_.at("ipc").get<std::vector<int>>();
    std::copy(ipc.begin(), ipc.end(), handle.ipc);
    const auto memory = clock_->device().import(handle, rank_);
    if (!memory.ok()) return memory.status();
    memory_ = static_cast<std::byte*>(*memory);
    const json described = json::parse(case_);
    for (const char* list : {"inputs", "outputs"}) {
      for (const json& tensor : described.at(list)) {
        Tensor& one = tensors_.emplace_back();
        one.name = tensor.at("name").get<std::string>();
        one.dtype = dtype_of(tensor.at("dtype").get<std::string>());
        one.reshape(tensor.at("shape").get<std::vector<std::int64_t>>());
      }
    }
    largest_ = tensors_;
    return confine(loaded_->is_python());
  }

  Status load() {
    for (const Tensor& tensor : largest_) views_of_largest_.push_back(tensor.view(nullptr));
    const std::size_t inputs = setup_.at("inputs").get<std::size_t>();
    problem_.abi_version = FARWARP_SUBMISSION_ABI_VERSION;
    problem_.rank = rank_;
    problem_.ranks = ranks_;
    problem_.device = rank_;
    problem_.target = target_.c_str();
    problem_.op = op_.c_str();
    problem_.case_json = case_.c_str();
    problem_.inputs = views_of_largest_.data();
    problem_.input_count = static_cast<std::int32_t>(inputs);
    problem_.outputs = views_of_largest_.data() + inputs;
    problem_.output_count = static_cast<std::int32_t>(views_of_largest_.size() - inputs);
    problem_.context = this;
    problem_.allgather = [](void* context, const void* mine, std::size_t bytes, void* all) {
      return static_cast<Host*>(context)->allgather(mine, bytes, all);
    };
    problem_.barrier = [](void* context) { return static_cast<Host*>(context)->allgather(nullptr, 0, nullptr); };
    const Status status = loaded_->create(setup_.at("submission").get<std::string>(), problem_);
    created_ = true;
    return status;
  }

  int allgather(const void* mine, std::size_t bytes, void* all) {
    if (created_ || bytes > FARWARP_SUBMISSION_MAX_ALLGATHER) return 1;
    const auto* begin = static_cast<const std::byte*>(mine);
    judge_.send(kGather, 0, bytes == 0 ? std::vector<std::byte>() : std::vector<std::byte>(begin, begin + bytes));
    const Frame frame = judge_.receive();
    if (frame.kind != kGathered) ::_exit(kLostJudge);
    if (bytes > 0) std::memcpy(all, frame.payload.data(), frame.payload.size());
    return 0;
  }

  void call(const Frame& frame) {
    const json call = to_json(frame.payload);
    const auto places = call.at("places").get<std::vector<std::size_t>>();
    CallArguments arguments;
    arguments.stream = clock_->stream();
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      tensors_[i].reshape(call.at("shapes").at(i).get<std::vector<std::int64_t>>());
      auto& list = i < static_cast<std::size_t>(problem_.input_count) ? arguments.inputs : arguments.outputs;
      list.push_back(tensors_[i].view(memory_ + places.at(i)));
    }
    const auto copy_outputs = [&] {
      Status status;
      for (std::size_t i = tensors_.size(); i < places.size() && status.ok(); ++i) {
        const std::size_t output = i - static_cast<std::size_t>(problem_.output_count);
        status = clock_->copy(memory_ + places[i], memory_ + places[output], tensors_[output].bytes());
      }
      return status;
    };
    Status status = loaded_->prepare(arguments);
    Result<Answer> answer = status;
    const auto run = [this] { return loaded_->run(); };
    if (status.ok()) answer = time_call(frame, call.at("hold_ns").get<std::uint64_t>(), run, copy_outputs);
    // The work of a late call may have begun before its inputs were there: only its results are of interest.
    if (answer.ok() && answer->late) status = loaded_->run();
    if (answer.ok() && answer->late && status.ok()) status = copy_outputs();
    if (answer.ok() && status.ok()) status = loaded_->deliver();
    if (answer.ok() && status.ok()) status = clock_->finish();
    if (status.ok()) status = answer.status();
    judge_.send(kDone, frame.sequence, to_bytes(status.ok() ? *answer : Answer{.status = status}));
  }

  void try_out(const Frame& frame) {
    const auto hold_ns = to_json(frame.payload).at("hold_ns").get<std::uint64_t>();
    const auto nothing = [] { return Status(); };
    const auto answer = time_call(frame, hold_ns, nothing, nothing);
    judge_.send(kDone, frame.sequence, to_bytes(answer.ok() ? *answer : Answer{.status = answer.status()}));
  }

  Result<Answer> time_call(const Frame& frame, std::uint64_t hold_ns, const harness::Work& work,
                           const harness::Work& afterwards) {
    if (loaded_->is_python()) return clock_->time_with_host(work);
    return clock_->time(
        work,
        [&] {
          if (clock_->on_gpu()) release_inputs(frame.sequence);
          return afterwards();
        },
        hold_ns);
  }

  void release_inputs(std::uint64_t sequence) {
    judge_.send(kRelease, sequence, {});
    if (judge_.receive().kind != kGo) ::_exit(kLostJudge);
  }

  Channel judge_;
  std::unique_ptr<Loaded> loaded_;
  json setup_;
  int rank_ = 0, ranks_ = 1;
  std::string target_, op_, case_;
  std::optional<CallClock> clock_;
  std::byte* memory_ = nullptr;
  std::vector<Tensor> tensors_, largest_;  ///< of this call, and of any
  std::vector<farwarp_submission_tensor> views_of_largest_;
  farwarp_submission_problem problem_{};
  bool created_ = false;
};

}  // namespace

int rank_main(int socket) { return Host(socket, shared_object()).run(); }

}  // namespace farwarp::judge

extern "C" __attribute__((visibility("default"))) int farwarp_submission_rank(
    int socket, const farwarp_submission_callbacks* callbacks) {
  return farwarp::judge::Host(socket, farwarp::judge::python_file(*callbacks)).run();
}
