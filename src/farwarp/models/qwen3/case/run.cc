#include "farwarp/models/qwen3/case/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "farwarp/base/sizes.h"
#include "farwarp/harness/inputs.h"

namespace farwarp::qwen3 {
namespace {

using harness::RandomStream;

constexpr int kBurst = 8;  // launches that no host waits between

}  // namespace

RankRun::RankRun(const CheckConfig& config, std::shared_ptr<Bootstrap> bootstrap, const harness::RunOptions& options)
    : harness::RankRun(std::move(bootstrap), options, harness::Comparison(DType::kBf16, 1, 1)), config_(config) {}

Status RankRun::open(bool logits) {
  const auto device = Device::open(options_.target, rank_);
  if (!device.ok()) return device.status();
  const auto plan = plan_qwen3(config_.config, config_.limits, (*device)->shape(), ranks_);
  if (!plan.ok()) return plan.status();
  if (Status status = open_world(Qwen3Decoder::heap_bytes(*plan)); !status.ok()) return status;
  Qwen3Limits limits = config_.limits;
  if (options_.fault.kind == harness::Fault::Kind::kMismatch && options_.fault.rank == rank_) ++limits.positions;
  auto decoder = Qwen3Decoder::create_random(*world_, config_.config, limits, options_.seed);
  if (!decoder.ok()) return decoder.status();
  decoder_.emplace(std::move(*decoder));
  const std::size_t tokens = size(plan->columns) * size(config_.tokens);
  auto sampled =
      harness::DeviceBuffer::create(world_->device(), tokens * 4 * (config_.longest_delay_ns > 0 ? kBurst : 1));
  auto of_logits =
      harness::DeviceBuffer::create(world_->device(), logits ? tokens * size(config_.config.vocabulary) * 4 : 16);
  if (!sampled.ok()) return sampled.status();
  if (!of_logits.ok()) return of_logits.status();
  sampled_ = std::move(*sampled);
  logits_ = std::move(*of_logits);
  return {};
}

harness::CheckOutcome RankRun::check() {
  Status status = open(true);
  if (status.ok() && config_.oracle) weights_ = std::make_unique<OracleWeights>(config_.config, options_.seed);
  if (status.ok()) status = make_calls(1, [this](int call) { return call_once(call); });
  return judged(close(status));
}

Status RankRun::close(const Status& status) {
  if (!status.ok() && stream_) (void)wait(patience());  // a refused call leaves work that writes to the buffers
  return close_operator(status, [this] { return decoder_->close(); });
}

/// If the first sequence has a temperature, the second has none, and the third one of its own.
Qwen3Sampling RankRun::sampling_of(int call, int column) const {
  Qwen3Sampling sampling = config_.sampling;
  sampling.seed = RandomStream(options_.seed, {size(call), size(column), 37}).below(0, std::uint64_t{1} << 62);
  if (column % 3 == 1) sampling.temperature = 0;
  if (column % 3 == 2) {
    sampling.temperature *= 2;
    sampling.top_k = (sampling.top_k + 1) / 2;
  }
  return sampling;
}

/// Starts the sequences that begin with launch `launch`; before the first launch, stops the others.
Status RankRun::start_before(int call, int launch) {
  Status status;
  for (int column = 0; column < config_.batch && status.ok(); ++column) {
    const int first = followed_[size(column)].first_launch;
    if (first == launch && config_.zeros > 0) {
      status = decoder_->start_with_any_keys(column, config_.zeros, prompts_[size(column)][0], *stream_,
                                             sampling_of(call, column));
    } else if (first == launch) {
      status = decoder_->start(column, prompts_[size(column)], *stream_, sampling_of(call, column));
      if (status.ok() && config_.limits.prefill_tokens > 0) status = decoder_->prefill(column, *stream_);
    } else if (launch == 0) {
      status = decoder_->stop(column, *stream_);
    }
  }
  return status;
}

/// New prompts of 1 to `prompt` tokens, then `launches` launches. With prefill a sequence begins while the ones before
/// it are decoded.
Status RankRun::call_once(int call) {
  prompts_.clear();
  followed_.clear();
  for (int column = 0; column < config_.batch; ++column) {
    const RandomStream stream(options_.seed, {size(call), size(column), 31});
    const auto length = column == 0 ? size(config_.prompt) : size(1) + stream.below(0, size(config_.prompt));
    std::vector<std::int32_t> prompt;
    for (std::size_t i = 0; i < length; ++i)
      prompt.push_back(static_cast<std::int32_t>(stream.below(1 + i, size(config_.config.vocabulary))));
    prompts_.push_back(prompt);
    std::vector<std::int32_t> inputs(size(config_.zeros));  // those before the first are not used
    inputs.insert(inputs.end(), prompt.begin(), prompt.end());
    followed_.push_back({{}, std::move(inputs), 0, size(config_.zeros)});
    // One rank judges how the logits lean: all ranks have all logits.
    if (config_.oracle)
      followed_.back().oracles.emplace(*weights_, rank_ == 0 && LogitsJudge::has_leans(config_.config), config_.zeros);
    if (config_.limits.prefill_tokens == 0) continue;
    Followed& followed = followed_.back();
    followed.first_launch = column % config_.launches;
    for (; followed.position + 1 < length; ++followed.position) {
      if (config_.oracle) followed.oracles->prefill(prompt[followed.position]);
    }
  }
  std::vector<Result> results(size(config_.launches));
  Status status =
      call == 0 ? harness::apply_fault(options_.fault, rank_, *bootstrap_, world_->device(), *stream_) : Status();
  for (int i = 0; i < config_.launches && status.ok(); ++i) {
    if (ranks_ == 1 && !findings_.difference.empty()) return status;  // what follows takes long and says no more
    status = start_before(call, i);
    if (status.ok()) status = launch(config_.dispatchers[0], results[size(i)]);
    if (status.ok()) compare(call, i, results[size(i)]);
  }
  for (std::size_t other = 1; other < config_.dispatchers.size() && status.ok(); ++other) {
    for (int i = 0; i < config_.launches && status.ok(); ++i) {
      Result again;
      status = start_before(call, i);
      if (status.ok()) status = launch(config_.dispatchers[other], again);
      if (status.ok()) compare_bits(call, i, results[size(i)], again, "the dispatchers'");
    }
  }
  if (status.ok() && config_.sampling.temperature > 0 && config_.limits.prefill_tokens == 0 && config_.zeros == 0)
    status = launch_aimed(call, results[0]);
  if (status.ok() && config_.longest_delay_ns > 0) status = launch_late(call, results);
  return status;
}

/// The first token of each sequence again, whose logits do not depend on the draws: with seeds and top_p by which the
/// random number, or the end of what top_p or top_k keeps, lies beside a boundary between two tokens, now on this side,
/// now on that.
Status RankRun::launch_aimed(int call, const Result& first) {
  Status status;
  for (int aim = 0; aim < kAims && status.ok(); ++aim) {
    std::vector<Qwen3Sampling> samplings;
    for (int column = 0; column < config_.batch && status.ok(); ++column) {
      samplings.push_back(
          aimed_sampling(static_cast<Aim>(aim), logits_of(first, 0, column), sampling_of(call, column)));
      status = decoder_->start(column, prompts_[size(column)], *stream_, samplings.back());
    }
    Result result;
    if (status.ok()) status = launch(config_.dispatchers[0], result, 1);
    for (int column = 0; column < config_.batch && status.ok() && findings_.difference.empty(); ++column) {
      const auto logits = logits_of(result, 0, column);
      const auto allowed = oracle_draws(logits, samplings[size(column)], 0);
      const std::int32_t sampled = result.sampled[size(column)];
      if (!std::ranges::equal(logits, logits_of(first, 0, column)))
        findings_.difference = fmt::format("call {}: sequence {}: other logits after another start", call, column);
      else if (std::find(allowed.begin(), allowed.end(), sampled) == allowed.end())
        findings_.difference =
            fmt::format("call {}: sequence {}, position 0, seed {}, top_p {}: the choice is {}, the draw {}", call,
                        column, samplings[size(column)].seed, samplings[size(column)].top_p, sampled, allowed[0]);
    }
  }
  return status;
}

/// All launches again, each rank late before each of them by a random time. They follow each other in bursts, so that a
/// rank may be a launch ahead.
Status RankRun::launch_late(int call, const std::vector<Result>& results) {
  Status status = start_before(call, 0);
  const std::size_t choices = size(config_.batch) * size(config_.tokens);
  for (int first = 0; first < config_.launches && status.ok(); first += kBurst) {
    const int count = std::min(kBurst, config_.launches - first);
    Result last;
    status = burst_late(call, first, count, last);
    if (!status.ok()) break;
    const std::size_t pitch = last.sampled.size() / kBurst;
    for (int i = 0; i < count && findings_.difference.empty(); ++i) {
      if (std::memcmp(&last.sampled[size(i) * pitch], results[size(first + i)].sampled.data(), choices * 4) != 0)
        findings_.difference = fmt::format("call {}: launch {}: late ranks have other tokens", call, first + i);
    }
    last.sampled.erase(last.sampled.begin(), last.sampled.begin() + (count - 1) * static_cast<std::ptrdiff_t>(pitch));
    compare_bits(call, first + count - 1, results[size(first + count - 1)], last, "late ranks'");
  }
  return status;
}

/// `last`: the choices of all launches, the logits and hidden vectors of the last one.
Status RankRun::burst_late(int call, int first, int count, Result& last) {
  Qwen3Call decoding;
  decoding.tokens = config_.tokens;
  decoding.dispatcher = config_.dispatchers[0];
  decoding.sampled = sampled_.as<std::int32_t>();
  decoding.logits = logits_.as<float>();
  last.sampled.resize(sampled_.bytes() / 4);
  last.logits.resize(logits_.bytes() / 4);
  Status status = sampled_.poison(*stream_);
  if (status.ok()) status = logits_.poison(*stream_);
  for (int i = 0; i < count && status.ok(); ++i) {
    const RandomStream stream(options_.seed, {size(call), size(first + i), size(rank_), 41});
    status = world_->device().enqueue_delay(*stream_, stream.below(0, config_.longest_delay_ns + 1));
    if (status.ok()) status = decoder_->decode(decoding, *stream_);
    decoding.sampled += last.sampled.size() / kBurst;
  }
  if (status.ok()) status = wait(patience(count * config_.tokens, std::chrono::nanoseconds(config_.longest_delay_ns)));
  return take(status, last);
}

Status RankRun::launch(FleetDispatcher dispatcher, Result& result, int tokens) {
  Qwen3Call call;
  call.tokens = tokens > 0 ? tokens : config_.tokens;
  call.dispatcher = dispatcher;
  call.sampled = sampled_.as<std::int32_t>();
  call.logits = logits_.as<float>();
  result.sampled.resize(sampled_.bytes() / 4);
  result.logits.resize(logits_.bytes() / 4);
  Status status = sampled_.poison(*stream_);
  if (status.ok()) status = logits_.poison(*stream_);
  if (status.ok()) status = decoder_->decode(call, *stream_);
  if (status.ok()) status = wait(patience(config_.tokens));
  return take(status, result);
}

/// Collective. What launches have stored.
Status RankRun::take(Status status, Result& result) {
  if (status.ok()) status = sampled_.download(result.sampled.data(), sampled_.bytes(), *stream_);
  if (status.ok()) status = logits_.download(result.logits.data(), logits_.bytes(), *stream_);
  if (status.ok()) status = decoder_->hidden(result.hidden, *stream_);
  if (ranks_ > 1) {
    status = agree(status);
    if (status.ok()) status = gather(result);
  }
  return status;
}

/// Collective. Each rank gets the logits of all. Their tokens and hidden vectors must be the same.
Status RankRun::gather(Result& result) {
  const std::size_t of_sampled = result.sampled.size() * 4, of_hidden = result.hidden.size() * 2;
  std::vector<std::byte> mine(of_sampled + of_hidden + result.logits.size() * 4);
  std::memcpy(mine.data(), result.sampled.data(), of_sampled);
  std::memcpy(mine.data() + of_sampled, result.hidden.data(), of_hidden);
  std::memcpy(mine.data() + of_sampled + of_hidden, result.logits.data(), result.logits.size() * 4);
  const auto all = bootstrap_->allgather(mine, std::chrono::milliseconds(60'000));
  if (!all.ok()) return all.status();
  const std::size_t vocabulary = size(config_.config.vocabulary), share = size(decoder_->plan().head_rows);
  for (std::size_t rank = 0; rank < all->size(); ++rank) {
    const std::byte* const theirs = (*all)[rank].data();
    const auto differs = [&](std::size_t begin, std::size_t bytes) {
      return std::memcmp(theirs + begin, (*all)[0].data() + begin, bytes) != 0;
    };
    if (findings_.difference.empty() && differs(0, of_sampled))
      findings_.difference = fmt::format("ranks 0 and {} have different tokens", rank);
    if (findings_.difference.empty() && differs(of_sampled, of_hidden))
      findings_.difference = fmt::format("ranks 0 and {} have different bits in their hidden vectors", rank);
    const std::size_t begin = std::min(rank * share, vocabulary), end = std::min(begin + share, vocabulary);
    for (std::size_t row = 0; row < result.logits.size(); row += vocabulary)
      std::memcpy(result.logits.data() + row + begin, theirs + of_sampled + of_hidden + (row + begin) * 4,
                  (end - begin) * 4);
  }
  return {};
}

std::span<const float> RankRun::logits_of(const Result& result, int token, int column) const {
  const std::size_t vocabulary = size(config_.config.vocabulary);
  return std::span(result.logits)
      .subspan((size(token) * size(decoder_->plan().columns) + size(column)) * vocabulary, vocabulary);
}

/// The oracles get the inputs that the kernel had. Each choice must be one of the kernel's own logits.
void RankRun::compare(int call, int launch, const Result& result) {
  const std::size_t vocabulary = size(config_.config.vocabulary), columns = size(decoder_->plan().columns);
  for (std::size_t column = 0; column < followed_.size(); ++column) {
    Followed& followed = followed_[column];
    if (followed.first_launch > launch) continue;
    for (int token = 0; token < config_.tokens && findings_.difference.empty(); ++token) {
      const std::size_t position = followed.position++;
      const float* const logits = result.logits.data() + (size(token) * columns + column) * vocabulary;
      const std::int32_t sampled = result.sampled[column * size(config_.tokens) + size(token)];
      const std::string where = fmt::format("call {}: sequence {}, position {}", call, column, position);
      if (config_.oracle) {
        const std::string wrong = judge_.add(*followed.oracles, followed.inputs[position], {logits, vocabulary});
        if (!wrong.empty()) findings_.difference = where + ": " + wrong;
      }
      const Qwen3Sampling sampling = sampling_of(call, static_cast<int>(column));
      const auto allowed = oracle_draws({logits, vocabulary}, sampling, static_cast<std::uint32_t>(position));
      if (findings_.difference.empty() && std::find(allowed.begin(), allowed.end(), sampled) == allowed.end())
        findings_.difference = fmt::format("{}: the choice is {}, {} gives {}", where, sampled,
                                           sampling.temperature == 0 ? "the highest logit" : "the draw", allowed[0]);
      if (followed.inputs.size() == position + 1) followed.inputs.push_back(sampled);
    }
  }
}

void RankRun::compare_bits(int call, int launch, const Result& first, const Result& second, const char* whose) {
  const auto columns = size(decoder_->plan().columns), vocabulary = size(config_.config.vocabulary);
  for (std::size_t token = 0; token < size(config_.tokens) && findings_.difference.empty(); ++token) {
    for (std::size_t column = 0; column < size(config_.batch); ++column) {
      if (followed_[column].first_launch > launch) continue;
      const std::size_t at = (token * columns + column) * vocabulary, choice = column * size(config_.tokens) + token;
      if (std::memcmp(&first.logits[at], &second.logits[at], vocabulary * 4) != 0 ||
          first.sampled[choice] != second.sampled[choice])
        findings_.difference = fmt::format("call {}: launch {}: sequence {}, token {}: {} bits differ", call, launch,
                                           column, token, whose);
    }
  }
}

harness::CheckOutcome RankRun::judged(const Status& status) const {
  harness::CheckOutcome outcome =
      harness::judge(fmt::format("rank {}", rank_), status, judge_.verdict(), findings_.difference);
  if (!outcome.pass) outcome.detail += recovery_;
  return outcome;
}

}  // namespace farwarp::qwen3
