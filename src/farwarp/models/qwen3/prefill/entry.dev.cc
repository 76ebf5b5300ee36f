// The kernels of a prefill between its products and its attention.
//
// They follow each other in a stream, which orders all of their reads. In a kernel no thread reads what another one
// writes.
#include "farwarp/fleet/epilogue.dev.h"
#include "farwarp/models/qwen3/decode/heads.dev.h"
#include "farwarp/models/qwen3/decode/key_blocks.dev.h"
#include "farwarp/models/qwen3/prefill/args.h"
#include "farwarp/tile/activation.dev.h"

namespace farwarp::FARWARP_TARGET::qwen3 {

/// Four elements each.
FARWARP_DEVICE Global<std::uint64_t> fours(std::uint16_t* matrix) {
  return Global<std::uint64_t>(reinterpret_cast<std::uint64_t*>(matrix));
}
FARWARP_DEVICE Global<const std::uint64_t> fours(const std::uint16_t* matrix) {
  return Global<const std::uint64_t>(reinterpret_cast<const std::uint64_t*>(matrix));
}

/// Of the launch.
FARWARP_DEVICE int first_warp() { return block_index() * (num_threads() / Target::kWarpSize) + warp_index(); }
FARWARP_DEVICE int warps() { return num_blocks() * (num_threads() / Target::kWarpSize); }

/// A matrix of weights, from the layout of the tasks. A block brings a slice at a time.
FARWARP_KERNEL(qwen3_prefill_unpack, PrefillArgs, kPrefillThreads) {
  constexpr int kRowFours = kSliceDepth / 4, kFoursOfThread = kTileRows * kRowFours / kPrefillThreads;
  const MatrixShape shape = args.matrix;
  const int slices = shape.tiles * shape.slices;
  for (int work = block_index(); work < slices; work += num_blocks()) {
    const int tile = work / shape.slices, slice = work % shape.slices;
    const Global<const std::byte> from =
        Global<const std::byte>(args.model.launch.weights) +
        (args.weights +
         element_offset(shape, Target::kMatrixUnit, args.model.launch.workers, tile * kTileRows, slice * kSliceDepth));
    std::uint64_t held[kFoursOfThread];
#pragma unroll
    for (int i = 0; i < kFoursOfThread; ++i) {
      const int four = i * kPrefillThreads + thread_index();
      held[i] = load_four_of(from + four % kRowFours / 4 * kFragmentBytes, fragment_order(Target::kMatrixUnit, shape),
                             four / kRowFours, four % kRowFours % 4 * 4);
    }
#pragma unroll
    for (int i = 0; i < kFoursOfThread; ++i) {
      const int four = i * kPrefillThreads + thread_index(), row = tile * kTileRows + four / kRowFours;
      store(fours(args.unpacked) + ((std::int64_t{row} * shape.slices + slice) * kRowFours + four % kRowFours),
            held[i]);
    }
  }
}

/// [thread] What attention reads, and, with the last chunk, where decoding goes on: at the prompt's last token.
FARWARP_DEVICE void begin_chunk(const PrefillArgs& args) {
  const Global<std::int32_t> counts(args.counts);
  store(counts, 0);
  store(counts + 1, args.rows);
  store(counts + 2, args.first + args.rows);
  const Args& model = args.model;
  const int last = args.prompt - 1;
  if (args.first + args.rows != last) return;
  const std::int32_t token =
      load(Global<const std::int32_t>(model.prompts) + (std::int64_t{args.column} * model.max_prompt + last));
  store(Global<Vec16>(reinterpret_cast<Vec16*>(&model.state->sequences[args.column])),
        std::bit_cast<Vec16>(SequenceState{token, last, 1, args.prompt}));
}

/// x becomes the tokens' embeddings, or x + product; then RMSNorm. A row is of one warp.
FARWARP_KERNEL(qwen3_prefill_hidden, PrefillArgs, kPrefillThreads) {
  const Args& model = args.model;
  const bool embeds = args.product == nullptr;
  const int row_fours = model.hidden / 4;
  if (embeds && block_index() == 0 && thread_index() == 0) begin_chunk(args);
  for (int row = first_warp(); row < args.rows; row += warps()) {
    const std::int64_t begin = std::int64_t{row} * row_fours;
    Global<const std::uint64_t> from;
    if (embeds) {
      const std::int64_t token = load(Global<const std::int32_t>(model.prompts) +
                                      (std::int64_t{args.column} * model.max_prompt + args.first + row));
      from = fours(model.embedding) + token * row_fours;
    } else {
      from = fours(args.product) + begin;
    }
    const Global<std::uint64_t> x = fours(args.x) + begin;
    float squares = 0;
    for (int i = lane_index(); i < row_fours; i += Target::kWarpSize) {
      std::uint64_t four = load(from + i);
      if (!embeds) {
        const std::uint64_t old = load(x + i);
        const float products[4] = {number_of(four, 0), number_of(four, 1), number_of(four, 2), number_of(four, 3)};
        four = added(old, products);
      }
      store(x + i, four);
#pragma unroll
      for (int k = 0; k < 4; ++k) squares = fused_multiply_add(number_of(four, k), number_of(four, k), squares);
    }
#pragma unroll
    for (int lanes = 1; lanes < Target::kWarpSize; lanes *= 2) squares = add(squares, shuffle_xor(squares, lanes));
    const float inverse = inverse_root(squares, model.hidden, model.launch.epsilon);
    const Global<const std::uint64_t> norm(reinterpret_cast<const std::uint64_t*>(model.launch.weights + args.norm));
    for (int i = lane_index(); i < row_fours; i += Target::kWarpSize) {
      const std::uint64_t four = load(x + i), weights = load(norm + i);
      float numbers[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) numbers[k] = multiply(multiply(number_of(four, k), inverse), number_of(weights, k));
      store(fours(args.normed) + (begin + i), pack_four(numbers[0], numbers[1], numbers[2], numbers[3]));
    }
  }
}

/// [thread] Puts four numbers, `dim` on, of a key or value into the cache.
FARWARP_DEVICE void put_in_cache(const PrefillArgs& args, int position, int kv_head, bool value, int dim,
                                 std::uint64_t four) {
  const Args& model = args.model;
  const int row = position % kPageKeys, fragment_at = dim / 16 * kFragmentBytes;
  const int page =
      load(Global<const std::int32_t>(model.page_table) + (args.column * model.max_pages + position / kPageKeys));
  const Global<std::byte> memory = page_at(model, args.layer, page, kv_head);
  if (!value) {
    store_four_of(memory + fragment_at, kPageOrder, row, dim % 16, four);
    return;
  }
  const Global<std::byte> values = memory + (page_bytes(model.head_dim) / 2 + fragment_at);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const Global<std::byte> at = values + fragment_offset(kPageOrder, dim % 16 + i, row);
    store(Global<std::uint16_t>(reinterpret_cast<std::uint16_t*>(at.raw)),
          static_cast<std::uint16_t>(four >> (16 * i)));
  }
}

/// The norm and rotation of queries and keys; keys and values into the cache. A head of a row is of one warp.
FARWARP_KERNEL(qwen3_prefill_heads, PrefillArgs, kPrefillThreads) {
  const Args& model = args.model;
  const int heads = model.query_heads + 2 * model.kv_heads, head_fours = model.head_dim / 4;
  const bool exists = lane_index() < head_fours;
  for (int work = first_warp(); work < args.rows * heads; work += warps()) {
    const int row = work / heads, head = work % heads, position = args.first + row;
    const bool query = head < model.query_heads, value = head >= model.query_heads + model.kv_heads;
    const Global<std::uint64_t> at = fours(args.qkv) + (std::int64_t{work} * head_fours + lane_index());
    std::uint64_t four = exists ? load(at) : 0;
    if (!value) {
      const std::int64_t norm = (query ? model.q_norm : model.k_norm) + args.layer * model.norm_pitch;
      four = normalise_and_rotate(model, four, HeadParameters::load_for(model, norm, position));
    }
    if (exists && query) {
      store(at, four);
    } else if (exists) {
      put_in_cache(args, position, (head - model.query_heads) % model.kv_heads, value, lane_index() * 4, four);
    }
  }
}

/// All keys and values of the sequence, from the cache's fragments. A page of a KV head is of one warp.
FARWARP_KERNEL(qwen3_prefill_gather, PrefillArgs, kPrefillThreads) {
  const Args& model = args.model;
  const int head_fours = model.head_dim / 4;
  const int pages = (args.first + args.rows + kPageKeys - 1) / kPageKeys;
  for (int work = first_warp(); work < pages * model.kv_heads; work += warps()) {
    const int page = work / model.kv_heads, kv_head = work % model.kv_heads;
    const int page_number = load(Global<const std::int32_t>(model.page_table) + (args.column * model.max_pages + page));
    const Global<std::byte> keys = page_at(model, args.layer, page_number, kv_head);
    const Global<std::byte> values = keys + page_bytes(model.head_dim) / 2;
    const auto row_at = [&](std::uint16_t* rows, int key) {
      return fours(rows) + ((std::int64_t{page} * kPageKeys + key) * model.kv_heads + kv_head) * head_fours;
    };
    for (int i = lane_index(); i < kPageKeys * head_fours; i += Target::kWarpSize) {
      const int key = i / head_fours, four = i % head_fours;
      store(row_at(args.keys, key) + four,
            load_four_of(keys + four / 4 * kFragmentBytes, kPageOrder, key, four % 4 * 4));
    }
    // Values lie transposed: four dims of four keys at a time.
    for (int i = lane_index(); i < kPageKeys / 4 * head_fours; i += Target::kWarpSize) {
      const int key = i / head_fours * 4, four = i % head_fours;
      std::uint64_t dims[4];
#pragma unroll
      for (int k = 0; k < 4; ++k)
        dims[k] = load_four_of(values + four / 4 * kFragmentBytes, kPageOrder, four % 4 * 4 + k, key);
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        std::uint64_t of_key = 0;
#pragma unroll
        for (int dim = 0; dim < 4; ++dim) of_key |= (dims[dim] >> (16 * k) & 0xffff) << (16 * dim);
        store(row_at(args.values, key + k) + four, of_key);
      }
    }
  }
}

/// SiLU of gate, times up. A thread has four of each.
FARWARP_KERNEL(qwen3_prefill_activate, PrefillArgs, kPrefillThreads) {
  const int row_fours = args.model.intermediate / 4;
  const std::int64_t all = std::int64_t{args.rows} * row_fours;
  for (std::int64_t i = std::int64_t{block_index()} * num_threads() + thread_index(); i < all;
       i += std::int64_t{num_blocks()} * num_threads()) {
    const Global<const std::uint64_t> gate = fours(args.gate_up) + (i / 2 * 4 + i % 2);
    const std::uint64_t gates = load(gate), ups = load(gate + 2);
    float numbers[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) numbers[k] = multiply(tile::silu(number_of(gates, k)), number_of(ups, k));
    store(fours(args.activated) + i, pack_four(numbers[0], numbers[1], numbers[2], numbers[3]));
  }
}

}  // namespace farwarp::FARWARP_TARGET::qwen3
