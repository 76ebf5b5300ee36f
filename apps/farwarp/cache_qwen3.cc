#include "cache_qwen3.h"

#include <fmt/format.h>

#include "farwarp/harness/params.h"
#include "farwarp/models/qwen3/config.h"
#include "print.h"
#include "product_accesses.h"

namespace farwarp::cli {
namespace {

using nlohmann::json;

const std::vector<harness::ParamInfo> kParams = {
    {"model", "qwen3-8b", "nano|tiny|tiny64|nano4|nano8|qwen3-0.6b|qwen3-1.7b|qwen3-4b|qwen3-8b|qwen3-14b|qwen3-32b"},
    {"batch", "64", "1..65536 sequences"},
    {"tile_rows", "64", "of weights"},
    {"tile_sequences", "16", "of a tile of the result"},
    {"step_columns", "256", "of weights that are loaded at once"},
    {"window", "0", "of m_window: tiles of sequences beside each other; 0: all"},
    {"workers", "31", "of an XCD"},
};

struct Request {
  std::string model;
  Qwen3Config config;
  ProductShape shape;  ///< without rows and columns
};

Result<Request> read_request(const std::vector<std::string>& settings, const CacheMachine& machine) {
  harness::Params params;
  for (const std::string& text : settings) {
    if (Status status = harness::add_settings(text, params); !status.ok()) return status;
  }
  constexpr int kMost = 1 << 16;
  harness::ParamReader reader(params, kParams);
  Request request;
  request.model = reader.text("model");
  const auto config = qwen3_config(request.model);
  if (!config.ok()) reader.reject("model", request.model, kParams[0].allowed);
  request.shape.sequences = reader.small_integer("batch", 1, kMost);
  request.shape.tile_rows = reader.small_integer("tile_rows", 1, kMost);
  request.shape.tile_sequences = reader.small_integer("tile_sequences", 1, kMost);
  request.shape.step_columns = reader.small_integer("step_columns", 1, kMost);
  request.shape.window = reader.small_integer("window", 0, kMost);
  request.shape.workers_per_xcd = reader.small_integer("workers", 1, machine.cus_per_xcd * machine.resident);
  request.shape.xcds = machine.xcds;
  if (!reader.status().ok()) return reader.status();
  request.config = *config;
  return request;
}

struct Product {
  int rows, columns;
  int times;  ///< in a token
};

std::vector<Product> products_of(const Qwen3Config& config) {
  const int heads = config.query_heads * config.head_dim;
  return {{heads + 2 * config.kv_heads * config.head_dim, config.hidden, config.layers},
          {config.hidden, heads, config.layers},
          {2 * config.intermediate, config.hidden, config.layers},
          {config.hidden, config.intermediate, config.layers},
          {config.vocabulary, config.hidden, 1}};
}

/// Of all products of a token.
struct Totals {
  double l2_bytes = 0, hits = 0, fabric_bytes = 0, hbm_bytes = 0, microseconds = 0;
  double hit_rate() const { return hits / l2_bytes; }
};

Result<Totals> simulate(const Request& request, const CacheMachine& machine, Traversal traversal,
                        const CacheOptions& options) {
  Totals totals;
  for (const Product& product : products_of(request.config)) {
    ProductShape shape = request.shape;
    shape.rows = product.rows;
    shape.columns = product.columns;
    if (Status status = check(shape); !status.ok()) return status;
    CacheOptions with_ring = options;
    with_ring.ahead = 1;  // a worker loads a step while it multiplies the one before
    const auto result = simulate_caches(machine, ProductAccesses(shape, traversal), with_ring);
    if (!result.ok()) return result.status();
    totals.l2_bytes += product.times * result->l2_bytes;
    totals.hits += product.times * result->l2_bytes * result->l2_hit_rate;
    totals.fabric_bytes += product.times * result->fabric_bytes;
    totals.hbm_bytes += product.times * result->hbm_bytes;
    totals.microseconds += product.times * result->microseconds;
  }
  return totals;
}

}  // namespace

Result<json> cache_qwen3(std::FILE* stream, const CacheMachine& machine, const std::vector<std::string>& settings,
                         const CacheOptions& options) {
  constexpr double kGb = 1e9;
  const auto request = read_request(settings, machine);
  if (!request.ok()) return request.status();
  const ProductShape& shape = request->shape;
  print_text(stream,
             "{}: {}, {} sequences, tiles of {} x {}, steps of {}, {} workers on each of {} XCDs; the products of a "
             "token, a model\n\n",
             machine.name, request->model, shape.sequences, shape.tile_rows, shape.tile_sequences, shape.step_columns,
             shape.workers_per_xcd, shape.xcds);
  print_text(stream, "{:<10} {:>7} {:>10} {:>10} {:>10} {:>10}\n", "traversal", "L2 hit", "L2 GB", "fabric GB",
             "memory GB", "rough ms");
  json traversals = json::object();
  for (const Traversal traversal : kTraversals) {
    const auto totals = simulate(*request, machine, traversal, options);
    if (!totals.ok()) return totals.status();
    print_text(stream, "{:<10} {:>6.1f}% {:>10.2f} {:>10.2f} {:>10.2f} {:>10.2f}\n", name_of(traversal),
               100 * totals->hit_rate(), totals->l2_bytes / kGb, totals->fabric_bytes / kGb, totals->hbm_bytes / kGb,
               totals->microseconds * 1e-3);
    traversals[std::string(name_of(traversal))] = {{"l2_hit_rate", totals->hit_rate()},
                                                   {"l2_bytes", totals->l2_bytes},
                                                   {"fabric_bytes", totals->fabric_bytes},
                                                   {"hbm_bytes", totals->hbm_bytes},
                                                   {"microseconds", totals->microseconds}};
  }
  return json{{"machine", machine.name},
              {"skew", options.skew},
              {"seed", options.seed},
              {"model", request->model},
              {"batch", shape.sequences},
              {"tile_rows", shape.tile_rows},
              {"tile_sequences", shape.tile_sequences},
              {"step_columns", shape.step_columns},
              {"window", shape.window},
              {"workers_per_xcd", shape.workers_per_xcd},
              {"traversals", traversals}};
}

}  // namespace farwarp::cli
