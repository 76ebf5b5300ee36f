// One kernel that uses the primitives of device.h. Those of Hopper's matrix unit, tensor copies, numbered barriers and
// clusters are in emu/tiles_test.dev.cc instead. vocabulary_test.cc runs it on every target that this machine has. For
// the other targets, the test is that it compiles and that tools/check_code_objects.py accepts the result.
#include "farwarp/substrate/vocabulary_test.h"

#include "farwarp/base/fragments.h"
#include "farwarp/substrate/device.h"

namespace farwarp::FARWARP_TARGET {

// Accesses to a cell that are plain, or that name a scope, must not compile. The same accesses to a plain word must
// compile.

// clang-format off
template <class Pointer, class Value>
concept Plain = requires(Pointer pointer, Value value) { load(pointer); } ||
                requires(Pointer pointer, Value value) { store(pointer, value); };
template <class Pointer, class Value, Scope scope>
concept AtomicAt =
    requires(Pointer pointer, Value value) { load<Order::relaxed, scope>(pointer); } ||
    requires(Pointer pointer, Value value) { store<Order::relaxed, scope>(pointer, value); } ||
    requires(Pointer pointer, Value value) { fetch_add<Order::relaxed, scope>(pointer, value); } ||
    requires(Pointer pointer, Value value) { exchange<Order::relaxed, scope>(pointer, value); } ||
    requires(Pointer pointer, Value value) { compare_exchange<Order::relaxed, scope>(pointer, value, value); };
template <class Pointer, class Value>
concept AtomicAtSomeScope = AtomicAt<Pointer, Value, Scope::block> || AtomicAt<Pointer, Value, Scope::device> ||
                            AtomicAt<Pointer, Value, Scope::system>;
template <class Pointer, class Value>
concept Cell = requires(Pointer pointer, Value value) {
  load<Order::acquire>(pointer);
  store<Order::release>(pointer, value);
};
template <class Pointer>
concept Dereferenceable = requires(Pointer pointer) { *pointer; } || requires(Pointer pointer) { pointer[0]; };
// clang-format on

using TestCell = SystemCell<std::uint32_t>;
static_assert(Plain<Global<std::uint32_t>, std::uint32_t> && Plain<Peer<std::uint32_t>, std::uint32_t>);
static_assert(!Plain<Global<TestCell>, TestCell> && !Plain<Peer<TestCell>, TestCell> &&
              !Plain<Global<const TestCell>, TestCell>);
static_assert(AtomicAt<Global<std::uint32_t>, std::uint32_t, Scope::device> && Cell<Peer<TestCell>, std::uint32_t>);
static_assert(!AtomicAtSomeScope<Global<TestCell>, TestCell> && !AtomicAtSomeScope<Global<TestCell>, std::uint32_t>);
static_assert(!AtomicAtSomeScope<Peer<std::uint32_t>, std::uint32_t> && !Cell<Peer<std::uint32_t>, std::uint32_t>);
static_assert(!Dereferenceable<Global<int>> && !Dereferenceable<Peer<int>> && !Dereferenceable<Shared<int>>);

template <class T>
FARWARP_DEVICE T* as(std::byte* bytes) {
  return reinterpret_cast<T*>(bytes);
}

/// Copies the thread's bytes `first` .. first + sizeof(T) - 1 through every kind of plain access.
template <class T>
FARWARP_DEVICE void copy_piece(VocabularyBlock* block, Shared<std::byte> bounce, int first) {
  const auto to = [&](VocabularyCopy way) { return as<T>(&block->copies[way][thread_index()][first]); };
  const Global<const T> source(as<const T>(&block->source[thread_index()][first]));
  const Shared<T> through(as<T>((bounce + first).raw));
  prefetch(source);
  store(through, load(source));
  warp_sync();
  store(Global<T>(to(kThroughShared)), load(through));
  store<Cache::streaming>(Global<T>(to(kStreaming)), load<Cache::streaming>(source));
  warp_sync();  // otherwise the compiler merges this load and the next
  store<Cache::keep>(Peer<T>(to(kKeep)), load<Cache::keep>(Peer<const T>(source.raw)));
}

FARWARP_DEVICE void copy_pieces(VocabularyBlock* block, Shared<std::byte> bounce) {
  copy_piece<Vec16>(block, bounce, 0);
  copy_piece<std::uint8_t>(block, bounce, 0);
  copy_piece<Half>(block, bounce, 2);
  copy_piece<float>(block, bounce, 4);
  copy_piece<double>(block, bounce, 8);
}

template <Order load_order, Order store_order, Scope scope, class T>
FARWARP_DEVICE void use_atomics(Global<T> word) {
  store<store_order, scope>(word, load<load_order, scope>(word) + 1);
  const T before = fetch_add<load_order, scope>(word, T{2});
  exchange<store_order, scope>(word, before);
  compare_exchange<Order::acq_rel, scope>(word, before, before + 1);
}

template <Scope scope, class T>
FARWARP_DEVICE void use_atomics_and_fences(Global<T> word) {
  use_atomics<Order::relaxed, Order::relaxed, scope>(word);
  use_atomics<Order::acquire, Order::release, scope>(word);
  fence<Order::acquire, scope>();
  fence<Order::release, scope>();
  fence<Order::acq_rel, scope>();
}

template <class T>
FARWARP_DEVICE void use_cells(T* word) {
  const Global<SystemCell<T>> mine(reinterpret_cast<SystemCell<T>*>(word));
  const Peer<SystemCell<T>> peer(mine.raw);
  store<Order::relaxed>(mine, load<Order::relaxed>(peer) + 1);
  drain_stores();
  block_sync();
  if (thread_index() == 0) store<Order::release>(peer, load<Order::acquire>(mine) + 1);
  acquire(mine);
  fetch_add<Order::relaxed>(peer, T{1});
  fetch_add<Order::acq_rel>(peer, T{1});
}

/// Counts the block's threads in shared memory.
FARWARP_DEVICE std::uint32_t count_threads(Shared<std::uint32_t> counter) {
  block_sync();
  if (thread_index() == 0) store(counter, 0u);
  block_sync();
  fetch_add(counter, 1u);
  block_sync();
  const std::uint32_t counted = load(counter);
  block_sync();
  return counted;
}

/// Element `i` of a lane's operand in its place, two bytes each.
template <class T>
FARWARP_DEVICE std::uint64_t element(int number, int i) {
  return static_cast<std::uint64_t>(round_to<T>(static_cast<float>(number)).bits) << (16 * (i % 4));
}

/// As multiplied(), by mfma32(). `Sums` is Mfma32Sums.
template <class T, class Sums>
FARWARP_DEVICE float multiplied32() {
  Vec16 a{0, 0}, b{0, 0};
  for (int i = 0; i < 8; ++i) {
    const MatrixIndex at = mfma32_operand(lane_index(), i);
    (i < 4 ? a.lo : a.hi) |= element<T>(at.row + 1, i);
    (i < 4 ? b.lo : b.hi) |= element<T>(at.row + at.column, i);
  }
  Sums sums{};
  mfma32<T>(sums, a, b);
  float all = 0;
  for (int i = 0; i < 16; ++i) all = add(all, sums[i]);
  return all;
}

/// Adds up the lane's sums of A * B^T, with A[row, k] = row + 1 and B[row, k] = row + k, by mma(), or by mfma() and
/// mfma32(). A template for the same reason as bulk_copy().
template <class Machine, class T>
FARWARP_DEVICE std::uint64_t multiplied() {
  float sums[4] = {};
  const int lane = lane_index();
  if constexpr (Machine::kMatrixUnit == MatrixUnit::kMfma) {
    std::uint64_t a = 0, b = 0;
    for (int i = 0; i < 4; ++i) {
      const MatrixIndex at = mfma_operand(lane, i);
      a |= element<T>(at.row + 1, i);
      b |= element<T>(at.row + at.column, i);
    }
    mfma<T>(sums, a, b);
    sums[0] = add(sums[0], multiplied32<T, Mfma32Sums>());
  } else {
    std::uint64_t a[2] = {}, b = 0;
    for (int i = 0; i < 8; ++i) a[i / 4] |= element<T>(mma_operand(lane, i).row + 1, i);
    for (int i = 0; i < 4; ++i) b |= element<T>(mma_operand(lane, i).row + mma_operand(lane, i).column, i);
    mma<T>(sums, a, b);
  }
  return std::bit_cast<std::uint32_t>(add(add(sums[0], sums[1]), add(sums[2], sums[3])));
}

/// Copies `bytes` by bulk copies: from -> bounce -> to. A template, so that a target without bulk copies discards the
/// body.
template <class Machine>
FARWARP_DEVICE void bulk_copy(Global<const std::byte> from, Peer<std::byte> to, Shared<std::byte> bounce, int bytes) {
  if constexpr (Machine::kHasBulkCopy) {
    const Shared<Mbarrier> barrier(as<Mbarrier>((bounce + bytes).raw));
    proxy_fence();  // the bounce buffer was used by plain accesses
    block_sync();
    if (thread_index() != 0) return;
    mbarrier_init(barrier, 1);
    mbarrier_init_fence();
    mbarrier_arrive_expect(barrier, bytes);
    bulk_load(bounce, from, bytes, barrier);
    const void* const addresses[] = {barrier.raw};
    for (std::uint32_t tries = 0; !mbarrier_test(barrier, 0); ++tries)
      park(addresses, 1, nanoseconds() + 1'000'000, tries);
    bulk_store(to, bounce, bytes);
    bulk_commit();
    bulk_wait_read();
    bulk_wait_all();
  }
}

/// All codes of e4m3, four at a time. A NaN stays one, or with kOcp becomes 480 or -480.
template <class T>
FARWARP_DEVICE bool widens_fp8() {
  for (std::uint32_t code = 0; code < 256; ++code) {
    const std::uint32_t bytes = code | (code ^ 1) << 8 | (code ^ 0x80) << 16 | (code ^ 0x81) << 24;
    float exact[4];
    from_fp8(bytes, exact);
    std::uint32_t even = 0, odd = 0;
    widen_fp8<T>(bytes, even, odd);
    for (int i = 0; i < 4; ++i) {
      const T wide{static_cast<std::uint16_t>((i % 2 == 0 ? even : odd) >> (i / 2 * 16))};
      if (exact[i] == exact[i]) {
        if (wide.bits != round_to<T>(exact[i]).bits) return false;
        continue;
      }
      const float value = to_float(wide), instead = (bytes >> (8 * i + 7) & 1) != 0 ? -480.0f : 480.0f;
      if (value == value && !(Target::kFp8 == Fp8Format::kOcp && value == instead)) return false;
    }
  }
  return true;
}

FARWARP_KERNEL(vocabulary, VocabularyArgs, kVocabularyThreads) {
  VocabularyBlock* const block = args.blocks + block_index();
  const int thread = thread_index();
  const Shared<std::byte> bounce = block_shared() + thread * 16;
  const Global<std::uint64_t> results(block->results[thread]);
  const auto report = [&](VocabularyResult which, std::uint64_t value) { store(results + which, value); };

  copy_pieces(block, bounce);

  const Global<std::uint64_t> wide(&block->words[0]);
  const Global<std::uint32_t> narrow(reinterpret_cast<std::uint32_t*>(&block->words[1]));
  use_atomics_and_fences<Scope::block>(wide);
  use_atomics_and_fences<Scope::chiplet>(wide);
  use_atomics_and_fences<Scope::device>(wide);
  use_atomics_and_fences<Scope::system>(wide);
  use_atomics_and_fences<Scope::block>(narrow);
  use_atomics_and_fences<Scope::chiplet>(narrow);
  use_atomics_and_fences<Scope::device>(narrow);
  use_atomics_and_fences<Scope::system>(narrow);
  use_cells(&block->words[2]);
  use_cells(reinterpret_cast<std::uint32_t*>(&block->words[3]));

  Packet* const packet = reinterpret_cast<Packet*>(block->packets[thread]);
  store_packet(Peer<Packet>(packet), 0x0123456789abcdefull, 7);
  const Packet seen = load_packet(Global<Packet>(packet));
  report(kPacketData, packet_has_tag(seen, 7) ? packet_data(seen) : 0);

  Vec16* const words = reinterpret_cast<Vec16*>(packet);
  store_words(Peer<Vec16>(words), {0x1234u + static_cast<std::uint64_t>(thread), ~0ull});
  const Vec16 back_again = load_words(Global<const Vec16>(words));
  report(kWords, back_again.lo ^ back_again.hi);

  const auto lane = static_cast<std::uint32_t>(lane_index());
  const std::uint64_t same = match_any(lane % 4);
  report(kEvenLanes, ballot(lane % 2 == 0));
  report(kSameLanes, same);
  report(kLanesBelow, lanes_below());
  report(kBitCount, static_cast<std::uint64_t>(count_bits(same)));
  report(kLowestBit, static_cast<std::uint64_t>(lowest_bit(same)));
  report(kHighestBit, static_cast<std::uint64_t>(highest_bit(same)));
  report(kShuffled, shuffle(std::uint64_t{lane} << 32 | 5, Target::kWarpSize - 1));
  report(kShuffledXor, shuffle_xor(std::uint64_t{lane} << 32 | 5, 1));
  report(kShuffledNarrow, shuffle_xor(lane, 2) + shuffle(lane, 3));

  const float third = static_cast<float>(thread + 1) / 3.0f;
  const Half half = round_to<Half>(third);
  const Bf16 bf16 = round_to<Bf16>(third);
  report(kHalfBits, half.bits);
  report(kBf16Bits, bf16.bits);
  report(kRoundedPairs, std::uint64_t{round_pair<Half>(third, -third)} << 32 | round_pair<Bf16>(-third, third));
  report(kBoundedHalves, round_bounded<Half>({third, 0}, {-third, third * 1000}));
  report(kBoundedBf16, round_bounded<Bf16>({-third * 0x1p-100f, third * 0x1p90f}, {third, 0}));
  const auto word = std::bit_cast<std::uint32_t>(third);
  report(kHalvesOfWords, std::uint64_t{lower_halves(word, lane << 4)} << 32 | upper_halves(word, lane << 20));
  const Global<std::byte> mine(reinterpret_cast<std::byte*>(block->words));
  const Global<const std::byte> rows(reinterpret_cast<const std::byte*>(block->source));
  const Vec16 row = load_from<Vec16>(rows, 16, static_cast<std::uint32_t>(thread / 2 * 16));
  store_to<float>(mine, 16, kNoAddress, 1.0f);
  const Vec16 plain = load(Global<const Vec16>(reinterpret_cast<const Vec16*>(block->source[thread / 2 + 1])));
  const std::uint32_t nothing = load_from<std::uint32_t>(rows, 0, kNoAddress + static_cast<std::uint32_t>(thread * 4));
  report(kLoadedFrom, row.lo == plain.lo && row.hi == plain.hi && nothing == 0 ? 1 : 0);
  report(kRecomputed, static_cast<std::uint64_t>(recomputed(thread)));
  const FloatPair paired =
      fused_multiply_add(multiply({third, 3}, {third, third}), {third, 7}, add({third, 1}, {5, third}));
  report(kPairedBits,
         std::uint64_t{std::bit_cast<std::uint32_t>(paired.second)} << 32 | std::bit_cast<std::uint32_t>(paired.first));
  const float four[4] = {third, -third * 0x1p-8f, third * 1000, -3 * third};
  float back[4];
  from_fp8(to_fp8(four), back);
  report(kFp8Bytes, to_fp8(four));
  report(kFp8Sum, std::bit_cast<std::uint32_t>(add(add(back[0], back[1]), add(back[2], back[3]))));
  report(kWidenedFp8, widens_fp8<Bf16>() && widens_fp8<Half>() ? 1 : 0);
  report(kQuotientBits, std::bit_cast<std::uint32_t>(divide(7.0f, third)));
  report(kFusedBits, std::bit_cast<std::uint32_t>(fused_multiply_add(to_float(half), third, to_float(bf16))));
  report(kUnfusedBits, std::bit_cast<std::uint32_t>(add(multiply(to_float(half), third), to_float(bf16))));

  report(kMultipliedHalf, multiplied<Target, Half>());
  report(kMultipliedBf16, multiplied<Target, Bf16>());
  const float infinity = __builtin_huge_valf(), nan = __builtin_nanf("");
  report(kMaximum, maximum(nan, third) == third && maximum(third, nan) == third && maximum(-third, third) == third);
  // exp2(1.5) and log2(10) to the bounds of device.h.
  const auto near = [](float value, float exact, float bound) {
    return value > exact - bound && value < exact + bound;
  };
  report(kExp2Right, exp2(-infinity) == 0 && exp2(-150.0f) == 0 && exp2(0.0f) == 1 && exp2(-3.0f) == 0.125f &&
                         near(exp2(1.5f), 2.8284271f, 0x1p-20f));
  report(kLog2Right,
         log2(0.0f) == -infinity && log2(1.0f) == 0 && log2(8.0f) == 3 && near(log2(10.0f), 3.3219281f, 0x1p-20f));
  report(kReciprocalRight, reciprocal(infinity) == 0 && reciprocal(1.0f) == 1 && reciprocal(-8.0f) == -0.125f &&
                               reciprocal(0x1p127f) == 0 && near(reciprocal(3.0f), 0.33333334f, 0x1p-24f));
  report(kUniform, static_cast<std::uint64_t>(uniform(warp_index())));
  schedule_fence();

  report(kAnyThread, block_any(thread == num_threads() - 1));
  report(kNoThread, block_any(thread == num_threads()));
  report(kCounted, count_threads(Shared<std::uint32_t>(as<std::uint32_t>(block_shared().raw))));
  report(kClocksRun, nanoseconds() > 0 && cycles() > 0 && multiprocessor() >= 0 && xcc() >= 0 &&
                         block_index() < num_blocks() && warp_index() == thread / Target::kWarpSize);

  bulk_copy<Target>(Global<const std::byte>(&block->source[0][0]), Peer<std::byte>(&block->copies[kBulk][0][0]),
                    block_shared(), kVocabularyThreads * 16);
}

}  // namespace farwarp::FARWARP_TARGET
