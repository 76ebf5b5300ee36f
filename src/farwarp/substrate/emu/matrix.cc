// wgmma: the matrix instructions of sm90. An instruction runs after all 128 threads of its warpgroup have issued it and
// after the instructions before it, at a moment that the schedule chooses, at the latest when a thread waits for it. At
// that moment it reads its operands, through the async proxy. A thread's accumulator registers hold poison until it has
// waited for all instructions on them.
#include <fmt/format.h>

#include <cstring>

#include "farwarp/base/fp8_sum.h"
#include "farwarp/base/fragments.h"
#include "farwarp/substrate/emu/engine.h"
#include "farwarp/substrate/emu/knowledge.h"

namespace farwarp::emu {
namespace {

constexpr int kRows = 64;
constexpr int kDepth = 16;  // k of one instruction, of 16-bit operands
constexpr int kThreads = 128;

Warpgroup& enter(const char* function) {
  Engine& the_engine = engine();
  the_engine.step();
  Thread& thread = the_engine.running();
  if (!thread.launch->device->sm90())
    the_engine.fault(fmt::format("{}: this target has no wgmma (Target::kMatrixUnit)", function));
  const auto number = static_cast<std::size_t>(thread.thread_index / kThreads);
  if (number >= thread.block->warpgroups.size())
    the_engine.fault(fmt::format("{}: the thread belongs to no whole warpgroup", function));
  return thread.block->warpgroups[number];
}

std::size_t index_in_group(const Thread& thread) { return static_cast<std::size_t>(thread.thread_index % kThreads); }

MatrixOp& op_at(Warpgroup& group, std::uint64_t number) { return group.ops[number - group.forgotten]; }

void check_tile(const Thread& thread, const std::byte* tile, int rows) {
  const auto offset = tile - thread.shared;
  if (offset < 0 ||
      offset + std::int64_t{rows} * kSwizzleRowBytes > static_cast<std::int64_t>(thread.launch->shape.shared_bytes))
    engine().fault(
        fmt::format("wgmma: a tile of {} rows at {} is not in the block's shared memory", rows, fmt::ptr(tile)));
  if (reinterpret_cast<std::uintptr_t>(tile) % kSwizzleAlignment != 0)
    engine().fault(fmt::format("wgmma: the tile at {} must be aligned to {}", fmt::ptr(tile), kSwizzleAlignment));
}

float float_of(DType type, std::uint16_t bits) {
  return type == DType::kF16 ? float_from(Half{bits}) : float_from(Bf16{bits});
}

/// Reads rows of the operands with the knowledge of a warp. For a write that the warp does not know it may return the
/// old value, and it reports a race.
class TileReader {
 public:
  TileReader(const Thread& thread, const View& seen, const View& published)
      : thread_(thread), seen_(seen), published_(published) {}

  /// 16 elements of a row of a tile, from `column` on.
  void read(const std::byte* tile, int row, int column, DType type, float (&values)[16]) {
    for (int i = 0; i < 16; i += 4) read_four(tile + swizzled_offset(row, (column + i) * 2), type, values + i);
  }
  /// 32 fp8 elements.
  Fp8Row read_fp8(const std::byte* tile, int row, int column) {
    std::uint8_t codes[kFp8Products];
    for (int i = 0; i < kFp8Products; i += 8) {
      const std::uint64_t word = load(tile + swizzled_offset(row, column + i));
      std::memcpy(codes + i, &word, sizeof(word));
    }
    return decoded(Fp8Format::kOcp, codes);
  }
  /// Row `k` of an MN-major B.
  void read_row(const MatrixOperands& operands, int k, float* values) {
    for (int column = 0; column < operands.columns; column += 4) {
      const std::byte* const panel = operands.b + column / 64 * std::ptrdiff_t{operands.panel_bytes};
      read_four(panel + swizzled_offset(k, column % 64 * 2), operands.type, values + column);
    }
  }

 private:
  void read_four(const std::byte* address, DType type, float* values) {
    const std::uint64_t word = load(address);
    for (int i = 0; i < 4; ++i) values[i] = float_of(type, static_cast<std::uint16_t>(word >> (16 * i)));
  }
  std::uint64_t load(const std::byte* address) {
    Engine& the_engine = engine();
    const Granule granule = the_engine.arena.granule_of(address);
    const Shadow& shadow = the_engine.arena.shadow_at(granule);
    const std::uint64_t newest = the_engine.arena.word_at(granule);
    if (is_known(shadow.stamp)) return newest;
    if (newest != shadow.previous) the_engine.note_race(thread_, Engine::Reading::wgmma, address, 8, shadow.stamp);
    return the_engine.schedule.sees_weak(thread_.uid, granule, shadow.stamp.time()) ? newest : shadow.previous;
  }
  /// Keeps the last answer, because one copy writes many granules at one time.
  bool is_known(Stamp stamp) {
    const std::uint64_t bits = stamp.flags(~Stamp::kWatched);
    if (bits == last_known_) return true;
    const bool own_proxy = stamp.has(Stamp::kAsync) && block_uid(stamp.uid()) == thread_.block->uid;
    if (!covers(thread_, own_proxy ? seen_ : published_, stamp)) return false;
    last_known_ = bits;
    return true;
  }

  const Thread& thread_;
  const View& seen_;
  const View& published_;
  std::uint64_t last_known_ = ~std::uint64_t{0};
};

/// Rows `first` to `first` + 15 of an MN-major A.
void read_mn_major(TileReader& reader, const MatrixOperands& operands, int first, float (&rows)[16][kDepth]) {
  for (int k = 0; k < kDepth; ++k) {
    float column[16];
    reader.read(operands.a, operands.k + k, first, operands.type, column);
    for (int row = 0; row < 16; ++row) rows[row][k] = column[row];
  }
}

/// The 16 rows of A that a warp's threads hold in registers.
void read_registers(const MatrixOp& op, std::size_t warp, float (&rows)[16][kDepth]) {
  for (std::size_t thread = 32 * warp; thread < 32 * (warp + 1); ++thread) {
    for (int i = 0; i < 8; ++i) {
      const MatrixIndex at = wgmma_a(static_cast<int>(thread), i);
      const std::uint32_t word = op.a_registers[thread][i / 2];
      rows[at.row % 16][at.column] = float_of(op.operands.type, static_cast<std::uint16_t>(word >> (16 * (i % 2))));
    }
  }
}

void add_fp8(const Warpgroup& group, MatrixOp& op) {
  const MatrixOperands& operands = op.operands;
  const auto columns = static_cast<std::size_t>(operands.columns);
  std::vector<Fp8Row> b(columns);
  TileReader b_reader(*group.first, op.seen[0], op.published[0]);
  for (std::size_t column = 0; column < columns; ++column)
    b[column] = b_reader.read_fp8(operands.b, static_cast<int>(column), operands.k);
  for (std::size_t row = 0; row < kRows; ++row) {
    const std::size_t warp = row / 16;
    TileReader a_reader(group.first[32 * warp], op.seen[warp], op.published[warp]);
    const Fp8Row a = a_reader.read_fp8(operands.a, static_cast<int>(row), operands.k);
    float* const sums = op.sums->values.data() + row * columns;
    for (std::size_t column = 0; column < columns; ++column)
      sums[column] = add_products(operands.accumulate ? sums[column] : 0.0f, a, b[column]);
  }
}

/// Adds the products in fp32, one after the other, in the order of k.
void add_16_bit(const Warpgroup& group, MatrixOp& op) {
  const MatrixOperands& operands = op.operands;
  const auto columns = static_cast<std::size_t>(operands.columns);
  std::vector<float> b(columns * kDepth);  // [k][column]
  TileReader b_reader(*group.first, op.seen[0], op.published[0]);
  if (operands.panel_bytes > 0) {
    for (int k = 0; k < kDepth; ++k)
      b_reader.read_row(operands, operands.k + k, b.data() + static_cast<std::size_t>(k) * columns);
  } else {
    for (std::size_t column = 0; column < columns; ++column) {
      float row[kDepth];
      b_reader.read(operands.b, static_cast<int>(column), operands.k, operands.type, row);
      for (std::size_t k = 0; k < kDepth; ++k) b[k * columns + column] = row[k];
    }
  }
  for (std::size_t warp = 0; warp < 4; ++warp) {
    TileReader a_reader(group.first[32 * warp], op.seen[warp], op.published[warp]);
    float rows[16][kDepth];
    if (operands.a == nullptr) {
      read_registers(op, warp, rows);
    } else if (operands.a_is_mn_major) {
      read_mn_major(a_reader, operands, static_cast<int>(16 * warp), rows);
    } else {
      for (int row = 0; row < 16; ++row)
        a_reader.read(operands.a, static_cast<int>(16 * warp) + row, operands.k, operands.type, rows[row]);
    }
    for (std::size_t row = 16 * warp; row < 16 * (warp + 1); ++row) {
      const float(&a)[kDepth] = rows[row % 16];
      float* const sums = op.sums->values.data() + row * columns;
      if (!operands.accumulate) std::fill(sums, sums + columns, 0.0f);
      for (std::size_t k = 0; k < kDepth; ++k) {
        const float left = a[k];
        const float* const right = b.data() + k * columns;
        for (std::size_t column = 0; column < columns; ++column) sums[column] += left * right[column];
      }
    }
  }
}

void execute(const Warpgroup& group, MatrixOp& op) {
  if (op.operands.fp8) {
    add_fp8(group, op);
  } else {
    add_16_bit(group, op);
  }
  op.done = true;
  engine().matrix_ops.erase(op.id);
  engine().note_progress();
}

/// Executes all instructions up to `last`; a warpgroup's instructions run in their order.
void execute_until(Warpgroup& group, const MatrixOp& last) {
  for (MatrixOp& op : group.ops) {
    if (!op.done) execute(group, op);
    if (&op == &last) return;
  }
}

/// The accumulator of the instructions on these registers for which the thread has not waited yet, or null.
std::shared_ptr<MatrixSums> sums_in_use(Warpgroup& group, const Thread& thread, const float* registers) {
  for (std::uint64_t number = thread.matrix_waited; number < thread.matrix_issued; ++number) {
    const MatrixOp& op = op_at(group, number);
    if (op.sums->registers[index_in_group(thread)] == registers) return op.sums;
  }
  return nullptr;
}

/// Moves the thread's registers into the accumulator (`in`) and poisons them, or copies the sums back to the registers.
void move_registers(const Thread& thread, MatrixSums& sums, float* registers, int columns, bool in) {
  const auto index = index_in_group(thread);
  for (int i = 0; i < columns / 2; ++i) {
    const MatrixIndex at = wgmma_sum(static_cast<int>(index), i);
    float& value = sums.values[static_cast<std::size_t>(at.row * columns + at.column)];
    if (in) {
      value = registers[i];
      std::memset(&registers[i], kPoison, sizeof(float));
    } else {
      registers[i] = value;
    }
  }
  sums.registers[index] = in ? registers : nullptr;
}

void check_operands(const Thread& thread, const MatrixOperands& operands) {
  Engine& the_engine = engine();
  const auto wrong = [&](const char* allowed) {
    the_engine.fault(fmt::format("wgmma: k is {}; allowed: {}", operands.k, allowed));
  };
  if (operands.panel_bytes == 0) {
    if (operands.a != nullptr) check_tile(thread, operands.a, kRows);
    check_tile(thread, operands.b, operands.columns);
    const int depth = operands.fp8 ? kFp8Products : kDepth;
    if (operands.k < 0 || operands.k > 3 * depth || operands.k % depth != 0)
      wrong(operands.fp8 ? "0, 32, 64, 96" : "0, 16, 32, 48");
    return;
  }
  if (operands.k < 0 || operands.k % kDepth != 0) wrong("multiples of 16");
  if (operands.panel_bytes % kSwizzleAlignment != 0) {
    the_engine.fault(
        fmt::format("wgmma_rs: panel_bytes is {}; allowed: multiples of {}", operands.panel_bytes, kSwizzleAlignment));
  }
  for (int column = 0; column < operands.columns; column += 64)
    check_tile(thread, operands.b + column / 64 * std::ptrdiff_t{operands.panel_bytes}, operands.k + kDepth);
}

MatrixOp& join_op(Warpgroup& group, Thread& thread, const MatrixOperands& operands, const float* registers) {
  Engine& the_engine = engine();
  if (thread.matrix_issued - group.forgotten == group.ops.size()) {
    MatrixOp& op = group.ops.emplace_back();
    op.operands = operands;
    op.group = thread.open_matrix_group;
    op.id = the_engine.next_matrix_op++;
    op.sums = sums_in_use(group, thread, registers);
    if (!op.sums) {
      op.sums = std::make_shared<MatrixSums>();
      op.sums->values.resize(static_cast<std::size_t>(kRows * operands.columns));
    }
    check_operands(thread, operands);
  }
  MatrixOp& op = op_at(group, thread.matrix_issued);
  if (op.operands != operands || op.group != thread.open_matrix_group)
    the_engine.fault("wgmma: the threads of the warpgroup disagree on its operands or group");
  return op;
}

/// Waits until all threads of the warpgroup have issued the instruction.
void wait_until_issued(Warpgroup& group, std::uint64_t number, const void* site) {
  while (op_at(group, number).issued < kThreads) engine().block(Wait::wgmma, site);
}

/// Copies the sums back to the thread's registers, unless it has unfinished instructions on them.
void return_registers(Warpgroup& group, Thread& thread, const std::shared_ptr<MatrixSums>& sums, int columns) {
  float* const registers = sums->registers[index_in_group(thread)];
  if (registers == nullptr || sums_in_use(group, thread, registers) != nullptr) return;
  move_registers(thread, *sums, registers, columns, false);
}

}  // namespace

void wgmma_fence() {
  enter("wgmma_fence");
  engine().running().matrix_fenced = true;
}

void wgmma(const MatrixOperands& operands, float* registers, const std::uint32_t* a) {
  Warpgroup& group = enter("wgmma");
  Engine& the_engine = engine();
  Thread& thread = the_engine.running();
  if (!thread.matrix_fenced) the_engine.fault("wgmma without wgmma_fence() after the last wait");
  MatrixOp& op = join_op(group, thread, operands, registers);
  if (op.sums->registers[index_in_group(thread)] == nullptr)
    move_registers(thread, *op.sums, registers, operands.columns, true);
  if (op.sums->registers[index_in_group(thread)] != registers)
    the_engine.fault("wgmma: the threads of the warpgroup disagree on its accumulators");
  op.a_registers[index_in_group(thread)] = a;
  if (thread.lane_index == 0) {
    op.seen[index_in_group(thread) / 32] = thread.seen;
    op.published[index_in_group(thread) / 32] = thread.published;
  }
  ++thread.matrix_issued;
  if (++op.issued < kThreads) return;
  the_engine.matrix_ops[op.id] = &group;
  the_engine.schedule.at(the_engine.schedule.now() + the_engine.schedule.copy_delay(), StepEvent::Kind::matrix, op.id);
  for (int i = 0; i < kThreads; ++i) {
    if (group.first[i].wait == Wait::wgmma) the_engine.schedule.make_ready(group.first[i]);
  }
}

void wgmma_commit() {
  enter("wgmma_commit");
  ++engine().running().open_matrix_group;
}

void wgmma_wait(int pending) {
  Warpgroup& group = enter("wgmma_wait");
  Thread& thread = engine().running();
  while (thread.matrix_waited < thread.matrix_issued) {
    if (op_at(group, thread.matrix_waited).group >= thread.open_matrix_group - pending) break;
    wait_until_issued(group, thread.matrix_waited, __builtin_return_address(0));
    MatrixOp& op = op_at(group, thread.matrix_waited);
    execute_until(group, op);
    ++thread.matrix_waited;
    ++op.waited;
    return_registers(group, thread, op.sums, op.operands.columns);
  }
  while (!group.ops.empty() && group.ops.front().waited == kThreads) {
    group.ops.pop_front();
    ++group.forgotten;
  }
  thread.matrix_fenced = false;
}

// ---- the engine's side ----------------------------------------------------------------------------------------------

/// Called when the schedule reaches the instruction.
void Engine::advance_matrix(std::uint32_t id) {
  const auto found = matrix_ops.find(id);
  if (found == matrix_ops.end()) return;  // a wait has executed it already, or its launch has been removed
  Warpgroup& group = *found->second;
  for (const MatrixOp& op : group.ops) {
    if (op.id == id) return execute_until(group, op);
  }
}

}  // namespace farwarp::emu
