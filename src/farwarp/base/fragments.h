// Which thread holds which elements of a matrix unit's operands and results.
#pragma once

namespace farwarp {

struct MatrixIndex {
  int row;
  int column;
};

/// Element `i` (0 .. columns/2 - 1) of the sums of thread `thread` (0..127 of the warpgroup). PTX ISA, "Matrix
/// fragments for wgmma.mma_async.m64nNk16", register fragment of D.
constexpr MatrixIndex wgmma_sum(int thread, int i) {
  const int warp = thread / 32, lane = thread % 32;
  return {16 * warp + lane / 4 + 8 * (i / 2 % 2), 8 * (i / 4) + 2 * (lane % 4) + i % 2};
}

/// Element `i` (0..7) of the part of A that thread `thread` holds when A (64 x 16) is in registers, two elements a
/// word. It is the fragment of 16 columns of sums: sums that are rounded in pairs are the A of the next product. PTX
/// ISA, the same section, register fragment of A.
constexpr MatrixIndex wgmma_a(int thread, int i) { return wgmma_sum(thread, i); }

/// Element `i` (0..7) of lane `lane`'s part of A (16 x 16) of mma(), and, with i < 4, of B whose rows are the result's
/// columns. A lane has four consecutive elements of one row, then of the row that lies 8 below. PTX ISA, "Matrix
/// Fragments for mma.m16n8k16", has other columns: a lane's second pair is of the other half of the 16. As A and B have
/// the same order here, the sums are the same.
constexpr MatrixIndex mma_operand(int lane, int i) { return {lane / 4 + 8 * (i / 4), 4 * (lane % 4) + i % 4}; }
/// Element `i` (0..3) of lane `lane`'s sums (16 x 8).
constexpr MatrixIndex mma_sum(int lane, int i) { return {lane / 4 + 8 * (i / 2), 2 * (lane % 4) + i % 2}; }

/// Element `i` (0..3) of lane `lane`'s part of A, and likewise of B whose rows are the result's columns. AMD Instinct
/// MI300 ISA (CDNA3), "V_MFMA_F32_16X16X16_F16", matrix layouts.
constexpr MatrixIndex mfma_operand(int lane, int i) { return {lane % 16, 4 * (lane / 16) + i}; }
/// Element `i` (0..3) of lane `lane`'s sums.
constexpr MatrixIndex mfma_sum(int lane, int i) { return {4 * (lane / 16) + i, lane % 16}; }

/// Element `i` (0..7) of lane `lane`'s part of A (32 x 16) of mfma32(), and likewise of B. "CDNA4 ISA",
/// V_MFMA_F32_32X32X16_F16. On CDNA3 two V_MFMA_F32_32X32X8_F16 take four elements of each lane; A and B have the same
/// order, so the sums are of the same products.
constexpr MatrixIndex mfma32_operand(int lane, int i) { return {lane % 32, 8 * (lane / 32) + i}; }
/// Element `i` (0..15) of lane `lane`'s sums (32 x 32).
constexpr MatrixIndex mfma32_sum(int lane, int i) { return {8 * (i / 4) + 4 * (lane / 32) + i % 4, lane % 32}; }

}  // namespace farwarp
