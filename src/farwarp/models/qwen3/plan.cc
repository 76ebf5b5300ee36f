#include "farwarp/models/qwen3/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "farwarp/base/arguments.h"
#include "farwarp/models/qwen3/decode/shared_layout.h"
#include "farwarp/models/qwen3/limits.h"

namespace farwarp {
namespace {

using fleet::Epilogue;
using fleet::Graph;
using fleet::MatrixShape;
using fleet::Step;
using fleet::Storage;
using qwen3::Kind;

Status check(const Qwen3Limits& limits) {
  const auto wrong = [](const char* field, int value, const std::string& allowed) {
    return invalid_argument(fmt::format("Qwen3Limits.{} is {}; allowed: {}", field, value, allowed));
  };
  if (limits.sequences < 1 || limits.sequences > fleet::kMaxColumns)
    return wrong("sequences", limits.sequences, fmt::format("1 to {}", fleet::kMaxColumns));
  if (limits.positions < 1 || limits.positions > qwen3::kMaxPositions)
    return wrong("positions", limits.positions, fmt::format("1 to {}", qwen3::kMaxPositions));
  if (limits.splits < 0 || limits.splits > qwen3::kMaxSplits)
    return wrong("splits", limits.splits, fmt::format("0 (chosen by the plan), 1 to {}", qwen3::kMaxSplits));
  if (limits.max_sms < 0) return wrong("max_sms", limits.max_sms, "0 (all) or more");
  if (limits.most_top_k < 0 || limits.most_top_k > qwen3::kMaxTopK)
    return wrong("most_top_k", limits.most_top_k, fmt::format("0 (greedy) to {}", qwen3::kMaxTopK));
  if (limits.vectors > Qwen3Vectors::kStreamed)
    return wrong("vectors", static_cast<int>(limits.vectors), "0 (faster), 1 (packets), 2 (streamed)");
  return {};
}

int tiles_of(int rows) { return (rows + fleet::kTileRows - 1) / fleet::kTileRows; }

/// What a rank has of the model.
Status share(Qwen3Plan& plan) {
  const Qwen3Config& config = plan.config;
  const int ranks = plan.ranks;
  const auto wrong = [&](const char* field, int value, const std::string& allowed) {
    return invalid_argument(
        fmt::format("Qwen3Config.{} is {} for {} ranks; allowed: {}", field, value, ranks, allowed));
  };
  if (!qwen3::can_share(ranks))
    return invalid_argument(fmt::format("Qwen3 is for {} ranks; allowed: 1, 2, 4, 8", ranks));
  constexpr int kStep = fleet::kSliceDepth;
  if (config.kv_heads % ranks != 0) return wrong("kv_heads", config.kv_heads, "a multiple of the ranks");
  if (config.query_heads * config.head_dim % (kStep * ranks) != 0)
    return wrong("query_heads", config.query_heads,
                 fmt::format("so many that query_heads * head_dim ({}) is a multiple of {} * ranks",
                             config.query_heads * config.head_dim, kStep));
  if (config.intermediate % (kStep * ranks) != 0)
    return wrong("intermediate", config.intermediate, fmt::format("a multiple of {} * ranks", kStep));
  plan.query_heads = config.query_heads / ranks;
  plan.kv_heads = config.kv_heads / ranks;
  plan.intermediate = config.intermediate / ranks;
  const int whole_tiles = fleet::kTileRows * ranks;
  plan.head_rows = (config.vocabulary + whole_tiles - 1) / whole_tiles * fleet::kTileRows;
  return {};
}

template <bool bulk_copy>
int shared_bytes(int columns) {
  switch (columns) {
    case 1: return qwen3::SharedLayout<1, bulk_copy>::kBytes;
    case 2: return qwen3::SharedLayout<2, bulk_copy>::kBytes;
    case 4: return qwen3::SharedLayout<4, bulk_copy>::kBytes;
    case 8: return qwen3::SharedLayout<8, bulk_copy>::kBytes;
    case 16: return qwen3::SharedLayout<16, bulk_copy>::kBytes;
    case 32: return qwen3::SharedLayout<32, bulk_copy>::kBytes;
    default: return qwen3::SharedLayout<64, bulk_copy>::kBytes;
  }
}

struct MatrixSize {
  int rows, columns;
};
struct MatrixSizes {
  MatrixSize qkv, out, gate_up, down, head;
};
/// Of a rank.
MatrixSizes matrices_of(const Qwen3Plan& plan) {
  const int hidden = plan.config.hidden, heads = plan.query_heads * plan.config.head_dim;
  return {.qkv = {heads + 2 * plan.kv_heads * plan.config.head_dim, hidden},
          .out = {hidden, heads},
          .gate_up = {2 * plan.intermediate, hidden},
          .down = {hidden, plan.intermediate},
          .head = {plan.head_rows, hidden}};
}

/// Whether vectors of so many columns can be packets: workers must keep the sums of their tiles from pass to pass.
bool can_be_packets(const Qwen3Plan& plan, int columns, bool bulk_copy) {
  const MatrixSizes all = matrices_of(plan);
  const auto fits = [&](const MatrixSize& size) {
    const MatrixShape shape{tiles_of(size.rows), size.columns / fleet::kSliceDepth,
                            fleet::most_pass_slices(columns, bulk_copy)};
    return fleet::keeps_sums(shape, plan.workers);
  };
  return fits(all.qkv) && fits(all.out) && fits(all.gate_up) && fits(all.down) && fits(all.head);
}

/// Of all layers and the head.
std::int64_t matrix_bytes(const Qwen3Plan& plan) {
  const MatrixSizes all = matrices_of(plan);
  const auto bytes = [](const MatrixSize& size) { return std::int64_t{2} * size.rows * size.columns; };
  return plan.config.layers * (bytes(all.qkv) + bytes(all.out) + bytes(all.gate_up) + bytes(all.down)) +
         bytes(all.head);
}

/// Whether five to eight sequences that could be packets are faster if they stream. Packets of so many take each worker
/// longer to read than weights take to arrive, and the more the larger the vectors are; streams have the ends of five
/// steps in each layer instead, which take the same time for all models. The bound lies between models that were
/// measured on Hopper (MEASURED.md, "Five to eight sequences"). CDNA was not measured.
bool streams_faster(const Qwen3Plan& plan, bool bulk_copy) {
  constexpr std::int64_t kLeastBytes = 5'000'000'000;
  constexpr int kLeastSequences = 5;
  return bulk_copy && plan.limits.sequences >= kLeastSequences && matrix_bytes(plan) >= kLeastBytes;
}

/// Sequences, rounded up to a number that there are kernels for.
Result<int> columns_for(const Qwen3Plan& plan, bool bulk_copy) {
  const int sequences = plan.limits.sequences;
  const int columns = static_cast<int>(std::bit_ceil(static_cast<unsigned>(sequences)));
  const Qwen3Vectors wanted = plan.limits.vectors;
  const bool room = columns <= fleet::kMaxPacketColumns && can_be_packets(plan, columns, bulk_copy);
  if (wanted == Qwen3Vectors::kPackets && !room)
    return invalid_argument(
        fmt::format("Qwen3Limits.vectors is packets, for which {} sequences of this model on {} workers have no room; "
                    "allowed: faster, streamed",
                    sequences, plan.workers));
  const bool packets =
      wanted == Qwen3Vectors::kPackets || (wanted == Qwen3Vectors::kFaster && room && !streams_faster(plan, bulk_copy));
  return packets ? columns : std::max(columns, 2 * fleet::kMaxPacketColumns);
}

/// Splits of a sequence's keys. Packets' are always as many, so that bits depend on less. Of streams the merge adds the
/// end of a step, worth kLeastSpared bytes that a worker reads (docs/decisions.md, "More than eight sequences stream
/// their vectors"; not measured on CDNA). A worker is spared all but the longest split of a KV head's keys and values,
/// whole key blocks. A sequence grows up to the limit: half of it stands for its length.
int splits_for(const Qwen3Plan& plan) {
  if (!plan.streams) return qwen3::kMaxSplits;
  constexpr std::int64_t kLeastSpared = 131'000;
  const int sharing = std::clamp(plan.workers / (plan.limits.sequences * plan.kv_heads), 1, qwen3::kMaxSplits);
  const int keys = plan.limits.positions / 2;
  const int of_longest = std::min(keys, (qwen3::key_blocks_of(keys) + sharing - 1) / sharing * qwen3::kBlockKeys);
  return std::int64_t{4} * plan.config.head_dim * (keys - of_longest) >= kLeastSpared ? sharing : 1;
}

/// What depends on the number of sequences.
Status set_columns(Qwen3Plan& plan, const TargetTraits& traits) {
  const int sequences = plan.limits.sequences;
  const auto columns = columns_for(plan, traits.bulk_copy);
  if (!columns.ok()) return columns.status();
  plan.columns = *columns;
  plan.streams = fleet::streams(plan.columns);
  if (!traits.bulk_copy && plan.columns > qwen3::kMaxColumnsWithoutBulkCopy)
    return invalid_argument(
        fmt::format("Qwen3Limits.sequences is {}; allowed on this device, which has {} KB of shared memory: 1 to {}",
                    sequences, traits.shared_bytes / 1024, qwen3::kMaxColumnsWithoutBulkCopy));
  plan.gang = !traits.bulk_copy;
  plan.most_slices = fleet::most_pass_slices(plan.columns, traits.bulk_copy);
  plan.threads = fleet::worker_threads(plan.columns, traits.warp_size, traits.bulk_copy);
  plan.shared_bytes = traits.bulk_copy ? shared_bytes<true>(plan.columns) : shared_bytes<false>(plan.columns);
  return {};
}

/// Builds the graph, and gives each matrix its place.
class Builder {
 public:
  explicit Builder(Qwen3Plan& plan) : plan_(plan), graph_(plan.graph), config_(plan.config) {}

  void build() {
    const int heads = plan_.query_heads, dim = config_.head_dim, layers = config_.layers;
    const MatrixSizes sizes = matrices_of(plan_);
    x_ = vector("x", fleet::normed_fours(plan_.columns, config_.hidden));
    middle_ = vector("middle", fleet::normed_fours(plan_.columns, config_.hidden));
    activated_ = vector("activated", fours(plan_.intermediate));
    qkv_ = vector("qkv", fours(sizes.qkv.rows));
    attended_ = vector("attended", fours(heads * dim));
    residual_ = graph_.add_buffer("residual", Storage::kOwn);
    sums_of_out_ = rank_sums("sums of out");
    sums_of_down_ = rank_sums("sums of down");
    // Without a merge whoever attends to a head has all of its keys.
    if (merges())
      partials_ = vector("partials", std::int64_t{plan_.columns} * heads * plan_.limits.splits * (dim / 2 + 1));
    const int choice = graph_.add_buffer("choice", Storage::kCopies);
    plan_.first_norms = take(0);
    plan_.norm_pitch = plan_.norms_of(0).end - plan_.first_norms;
    plan_.weight_bytes += plan_.norm_pitch * layers;
    plan_.final_norm = take(config_.hidden * 2);
    add({.name = "embed",
         .kind = of(Kind::kEmbed),
         .matrix = {config_.hidden / fleet::kTileRows, 0},
         .epilogue = Epilogue::kHidden,
         .out_norm = input_norm(0),
         .reads = {{choice, false}},
         .writes = {x_, residual_}});
    graph_.first_inputs = {choice};
    for (int layer = 0; layer < layers; ++layer) add_layer(layer, sizes);
    add_head(choice, sizes);
  }

 private:
  void add_layer(int layer, const MatrixSizes& sizes) {
    const auto name = [&](const char* step) { return fmt::format("{} {}", step, layer); };
    const int cache = graph_.add_buffer(name("cache"), Storage::kOwn);
    graph_.first_inputs.push_back(cache);
    add_matrix({.name = name("qkv"),
                .kind = of(Kind::kQkv),
                .layer = layer,
                .epilogue = Epilogue::kStore,
                .in_norm_rows = config_.hidden,
                .reads = {{x_, true}},
                .writes = {qkv_}},
               sizes.qkv);
    add({.name = name("attend"),
         .kind = of(Kind::kAttend),
         .layer = layer,
         .units = plan_.columns_in_use() * plan_.kv_heads * plan_.sharing,
         .reads = {{qkv_, false}, {cache, false}},
         .writes = {merges() ? partials_ : attended_, cache}});
    if (merges())
      add({.name = name("merge"),
           .kind = of(Kind::kMerge),
           .layer = layer,
           .units = plan_.columns_in_use() * plan_.query_heads,
           .reads = {{partials_, false}},
           .writes = {attended_}});
    add_matrix({.name = name("out"),
                .kind = of(Kind::kOut),
                .layer = layer,
                .epilogue = Epilogue::kHidden,
                .out_norm = plan_.norms_of(layer).post_attention,
                .reads = {{attended_, true}, {residual_, false}},
                .writes = {middle_, residual_},
                .rank_sums = sums_of_out_},
               sizes.out);
    add_matrix({.name = name("gate up"),
                .kind = of(Kind::kGateUp),
                .layer = layer,
                .epilogue = Epilogue::kGated,
                .in_norm_rows = config_.hidden,
                .reads = {{middle_, true}},
                .writes = {activated_}},
               sizes.gate_up);
    add_matrix({.name = name("down"),
                .kind = of(Kind::kDown),
                .layer = layer,
                .epilogue = Epilogue::kHidden,
                .out_norm = input_norm(layer + 1),
                .reads = {{activated_, true}, {residual_, false}},
                .writes = {x_, residual_},
                .rank_sums = sums_of_down_},
               sizes.down);
  }
  void add_head(int choice, const MatrixSizes& sizes) {
    const int layers = config_.layers, most_top_k = plan_.limits.most_top_k;
    const int head_tiles = plan_.head_rows / fleet::kTileRows;
    const bool samples = most_top_k > 0;
    const int candidates =
        graph_.add_buffer("candidates", Storage::kRankPackets,
                          std::int64_t{plan_.columns} * plan_.workers * plan_.ranks * (samples ? most_top_k : 1));
    const int logits = samples ? vector("logits", qwen3::logits_at(plan_.columns, head_tiles, 0, 0)) : -1;
    const int chosen = samples ? graph_.add_buffer("chosen", Storage::kRankPackets, plan_.columns) : -1;
    add_matrix({.name = "head",
                .kind = of(Kind::kHead),
                .layer = layers,
                .epilogue = Epilogue::kModel,
                .in_norm_rows = config_.hidden,
                .reads = {{x_, true}},
                .writes = {samples ? logits : candidates}},
               sizes.head);
    if (samples) {
      add({.name = "select",
           .kind = of(Kind::kSelect),
           .layer = layers,
           .matrix = {head_tiles, 0},
           .reads = {{logits, false}},
           .writes = {candidates}});
      add({.name = "choose",
           .kind = of(Kind::kChoose),
           .layer = layers,
           .units = plan_.columns,
           .reads = {{candidates, true}},
           .writes = {chosen}});
    }
    add({.name = "next inputs",
         .kind = of(Kind::kNextInputs),
         .layer = layers,
         .units = plan_.workers,
         .reads = {{samples ? chosen : candidates, true}},
         .writes = {choice}});
  }

  static std::int32_t of(Kind kind) { return static_cast<std::int32_t>(kind); }
  bool merges() const { return !plan_.streams || plan_.limits.splits > 1; }
  std::int64_t input_norm(int layer) const {
    return layer < config_.layers ? plan_.norms_of(layer).input : plan_.final_norm;
  }
  std::int64_t take(std::int64_t bytes) {
    const std::int64_t at = plan_.weight_bytes;
    plan_.weight_bytes = (at + bytes + 1023) / 1024 * 1024;
    return at;
  }
  std::int64_t fours(int rows) const { return std::int64_t{rows} / 4 * plan_.columns; }
  int vector(const char* name, std::int64_t fours) {
    return graph_.add_buffer(name, plan_.streams ? Storage::kPlain : Storage::kPackets, fours);
  }
  int rank_sums(const char* name) {
    const int tiles = config_.hidden / fleet::kTileRows;
    return plan_.ranks == 1 ? -1
                            : graph_.add_buffer(name, Storage::kRankPackets,
                                                fleet::rank_sums_packets(plan_.columns, tiles, plan_.ranks));
  }
  void add(Step step) { graph_.steps.push_back(std::move(step)); }
  void add_matrix(Step step, const MatrixSize& size) {
    step.matrix = {tiles_of(size.rows), size.columns / fleet::kSliceDepth, plan_.most_slices,
                   plan_.streams ? fleet::kGroupTiles : 0};
    step.weights = take(step.matrix.bytes());
    add(std::move(step));
  }

  Qwen3Plan& plan_;
  Graph& graph_;
  const Qwen3Config& config_;
  int x_ = 0, middle_ = 0, activated_ = 0, qkv_ = 0, attended_ = 0, residual_ = 0;
  int sums_of_out_ = 0, sums_of_down_ = 0, partials_ = -1;
};

}  // namespace

Qwen3Plan::Norms Qwen3Plan::norms_of(int layer) const {
  const std::int64_t input = first_norms + layer * norm_pitch, of_vector = config.hidden * 2,
                     of_head = config.head_dim * 2;
  const std::int64_t q = input + 2 * of_vector;
  return {input, input + of_vector, q, q + of_head, q + 2 * of_head};
}

std::int64_t Qwen3Plan::bytes_of_token(std::int64_t keys) const {
  return weight_bytes + keys * 2 * config.layers * kv_heads * config.head_dim * 2;
}

Result<Qwen3Plan> plan_qwen3(const Qwen3Config& config, const Qwen3Limits& limits, const MachineShape& shape,
                             int ranks) {
  if (const Status status = first_failure({config.check(), check(limits)}); !status.ok()) return status;
  Qwen3Plan plan;
  plan.config = config;
  plan.limits = limits;
  plan.ranks = ranks;
  if (const Status status = share(plan); !status.ok()) return status;
  const int most = limits.max_sms == 0 ? shape.multiprocessors : std::min(limits.max_sms, shape.multiprocessors);
  // Every worker has a tile of gate and up in each layer, and of the head: so no worker writes a buffer again before
  // all have read it.
  plan.workers =
      std::min({most, 2 * plan.intermediate / fleet::kTileRows, plan.head_rows / fleet::kTileRows, qwen3::kMaxWorkers});
  if (const Status status = set_columns(plan, shape.traits); !status.ok()) return status;
  if (limits.splits == 0) plan.limits.splits = splits_for(plan);
  plan.max_pages = qwen3::key_blocks_of(limits.positions) * (qwen3::kBlockKeys / qwen3::kPageKeys);
  const std::int64_t fragments =
      std::int64_t{config.layers} * plan.columns * plan.max_pages * plan.kv_heads * 2 * (config.head_dim / 16);
  plan.cache_bytes = fragments * fleet::kFragmentBytes;
  plan.embedding_bytes = std::int64_t{config.vocabulary} * config.hidden * 2;
  const auto prefill = plan_qwen3_prefill(config,
                                          {.rows = limits.prefill_tokens,
                                           .positions = limits.positions,
                                           .key_rows = plan.max_pages * qwen3::kPageKeys,
                                           .query_heads = plan.query_heads,
                                           .kv_heads = plan.kv_heads,
                                           .intermediate = plan.intermediate,
                                           .max_sms = limits.max_sms,
                                           .ranks = ranks},
                                          shape);
  if (!prefill.ok()) return prefill.status();
  plan.prefill = *prefill;
  plan.sharing = std::clamp(plan.workers / (plan.columns_in_use() * plan.kv_heads), 1, plan.limits.splits);
  Builder(plan).build();
  if (const Status status = plan.graph.check(); !status.ok()) return status;
  if (const auto lists = fleet::plan_static(plan.graph, plan.workers); !lists.ok()) return lists.status();
  return plan;
}

}  // namespace farwarp
