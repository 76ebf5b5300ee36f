#!/usr/bin/env python3
"""Unit tests of check_code_objects.py, on small disassemblies, good and bad."""

import contextlib
import io
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import amd_code
import check_code_objects


def disassembly(*lines):
    """The lines as a function that llvm-objdump prints; each has four bytes, from address 0x100."""
    body = "".join(f"\t{line:<60}// {0x100 + 4 * i:012X}: BF8C0F70\n" for i, line in enumerate(lines))
    return f"\nx.co:\tfile format elf64-amdgpu\n\n0000000000000100 <kernel>:\n{body}"


def rules(*lines):
    """The rules that a function of these instructions breaks, in order of address."""
    instructions = amd_code.parse(disassembly(*lines))["kernel"]
    return [text.split(":")[0] for _, text in check_code_objects.check(instructions)]


WRITE_BACK = "buffer_wbl2 sc0 sc1"
INVALIDATE = "buffer_inv sc0 sc1"
POLL = "global_load_dword v0, v1, s[8:9] sc0 sc1"
FLAG = "global_store_dword v1, v0, s[8:9] sc0 sc1"
END = "s_endpgm"


class Release(unittest.TestCase):
    def test_wait_between_write_back_and_flag(self):
        self.assertEqual(rules(WRITE_BACK, "s_waitcnt vmcnt(0)", FLAG, END), [])

    def test_combined_wait(self):
        self.assertEqual(rules(WRITE_BACK, "s_waitcnt vmcnt(0) lgkmcnt(0)", FLAG, END), [])
        self.assertEqual(rules(WRITE_BACK, "s_waitcnt vmcnt(0) expcnt(0) lgkmcnt(0)", FLAG, END), [])

    def test_no_wait(self):
        # The code of clang 22 for a drain, a barrier and a release store.
        self.assertEqual(rules("s_waitcnt vmcnt(0)", "s_barrier", WRITE_BACK, FLAG, END), ["release"])

    def test_wait_for_something_else(self):
        self.assertEqual(rules(WRITE_BACK, "s_waitcnt lgkmcnt(0)", FLAG, END), ["release"])
        self.assertEqual(rules(WRITE_BACK, "s_waitcnt vmcnt(1)", FLAG, END), ["release"])
        self.assertEqual(rules(WRITE_BACK, "s_waitcnt vmcnt(10)", FLAG, END), ["release"])

    def test_every_kind_of_write(self):
        for write in (
            "global_atomic_add v1, v0, s[8:9] sc1",
            "global_store_dwordx4 v4, v[0:3], s[8:9]",
            "flat_store_dword v[0:1], v2",
            "flat_atomic_swap v[0:1], v2",
            "buffer_store_dword v0, off, s[0:3], 0",
        ):
            self.assertEqual(rules(WRITE_BACK, write, END), ["release"], write)

    def test_lds_and_loads_are_no_writes(self):
        self.assertEqual(rules(WRITE_BACK, "ds_write_b32 v1, v0", "global_load_dword v0, v1, s[8:9]", END), [])

    def test_around_a_branch(self):
        # The wait is on one path only: the branch (to two instructions ahead) skips it.
        self.assertEqual(rules(WRITE_BACK, "s_cbranch_execz 1", "s_waitcnt vmcnt(0)", FLAG, END), ["release"])
        self.assertEqual(rules(WRITE_BACK, "s_cbranch_execz 0", "s_waitcnt vmcnt(0)", FLAG, END), [])

    def test_around_a_loop(self):
        # The flag store precedes the write-back in the text and follows it in the loop (65532 = -4).
        self.assertEqual(rules(FLAG, "s_nop 0", WRITE_BACK, "s_cbranch_scc1 65532", END), ["release"])
        self.assertEqual(rules(FLAG, WRITE_BACK, "s_waitcnt vmcnt(0)", "s_cbranch_scc1 65532", END), [])

    def test_behind_the_end(self):
        self.assertEqual(rules(WRITE_BACK, END, FLAG, END), [])


class Acquire(unittest.TestCase):
    def test_read_has_returned(self):
        self.assertEqual(rules(POLL, "s_waitcnt vmcnt(0)", INVALIDATE, END), [])

    def test_read_in_flight(self):
        self.assertEqual(rules(POLL, INVALIDATE, END), ["acquire"])
        fetch_add = "global_atomic_add v0, v1, v2, s[8:9] sc0"
        self.assertEqual(rules(fetch_add, "s_waitcnt vmcnt(1)", INVALIDATE, END), ["acquire"])


class ControlFlow(unittest.TestCase):
    def test_what_cannot_be_followed_is_a_violation(self):
        self.assertEqual(rules("s_setpc_b64 s[30:31]", END), ["unknown"])
        self.assertEqual(rules("s_branch 100", END), ["unknown"])


MATRIX_32 = "v_mfma_f32_32x32x8_bf16 v[0:15], v[20:21], v[22:23], v[0:15]"
MATRIX = "v_mfma_f32_16x16x16_f16 v[0:3], v[4:5], v[6:7], v[0:3]"
LOAD = "global_load_dwordx4 v[8:11], v12, s[2:3]"
AGAIN = "s_cbranch_scc1"


def loop(*lines):
    """The lines with a branch back to the first, as instructions."""
    back = 0x10000 - len(lines) - 1
    return amd_code.parse(disassembly("s_nop 0", *lines, f"{AGAIN} {back}", END))["kernel"]


class MatrixLoop(unittest.TestCase):
    def rule(self, *lines):
        return [text for _, text in check_code_objects.check_matrix(loop(*lines))]

    def test_loads_in_flight(self):
        put = "ds_write_b128 v12, v[8:11]"
        self.assertEqual(self.rule("s_waitcnt vmcnt(0)", put, LOAD, MATRIX, MATRIX), [])
        self.assertEqual(amd_code.least_overlap(loop(MATRIX, "s_waitcnt vmcnt(0)", put, LOAD, MATRIX, MATRIX)), 3)
        # One of two loads may still be in flight. The wait is for the load of the previous turn.
        self.assertEqual(amd_code.least_overlap(loop(LOAD, "s_waitcnt vmcnt(1)", put, MATRIX, MATRIX)), 2)

    def test_loads_waited_for_at_once(self):
        found = self.rule(LOAD, "s_waitcnt vmcnt(0)", "ds_write_b128 v12, v[8:11]", MATRIX, MATRIX)
        self.assertEqual(found, ["matrix: a load is waited for after 0 of 2 matrix instructions"])
        self.assertEqual(self.rule(MATRIX, MATRIX), ["matrix: the loop loads nothing ahead"])

    def test_a_wait_for_stores_of_the_turn_before(self):
        store = "global_store_dwordx4 v12, v[0:3], s[2:3]"
        self.assertEqual(amd_code.least_overlap(loop(LOAD, store, MATRIX, MATRIX, "s_waitcnt vmcnt(1)")), 2)

    def test_narrow_lds_accesses(self):
        for narrow in (
            "ds_read_b32 v1, v2",
            "ds_read2_b32 v[0:1], v2 offset1:1",
            "ds_write_b64 v1, v[2:3]",
            "ds_read_u16 v1, v2",
        ):
            found = self.rule("s_waitcnt vmcnt(0)", LOAD, MATRIX, narrow)
            self.assertEqual(found, [f"matrix: '{narrow}' is narrow"])
        for wide in ("ds_read_b64 v[0:1], v2", "ds_read_b128 v[0:3], v4 offset:16"):
            self.assertEqual(self.rule("s_waitcnt vmcnt(0)", LOAD, MATRIX, wide), [], wide)

    def test_no_loop(self):
        instructions = amd_code.parse(disassembly(LOAD, MATRIX, END))["kernel"]
        self.assertEqual(
            check_code_objects.check_matrix(instructions), [(0, "matrix: no loop with matrix instructions")]
        )

    def test_the_innermost_loop_counts(self):
        # The inner branch goes back to the load, the outer one to the first instruction.
        instructions = amd_code.parse(
            disassembly("ds_read_b32 v1, v2", LOAD, MATRIX, f"{AGAIN} {0x10000 - 3}", f"{AGAIN} {0x10000 - 5}", END)
        )["kernel"]
        self.assertEqual(
            [i.name for i in amd_code.matrix_loop(instructions)],
            ["global_load_dwordx4", "v_mfma_f32_16x16x16_f16", AGAIN],
        )

    def test_code_after_a_loop_that_jumps_into_it_is_no_loop(self):
        instructions = amd_code.parse(
            disassembly(
                "s_nop 0",
                LOAD,
                "s_cbranch_vccnz 3",
                MATRIX,
                f"{AGAIN} {0x10000 - 4}",
                END,
                "s_nop 0",
                f"s_branch {0x10000 - 5}",
            )
        )["kernel"]
        self.assertEqual(
            [i.name for i in amd_code.matrix_loop(instructions)],
            ["global_load_dwordx4", "s_cbranch_vccnz", "v_mfma_f32_16x16x16_f16", AGAIN],
        )


class Sends(unittest.TestCase):
    STORE = "global_store_dwordx4 v[0:1], v[2:5], off nt"
    WAIT = "s_waitcnt vmcnt(0)"
    LOAD_ONE = "global_load_dwordx4 v[2:5], v[6:7], off nt"

    def rule(self, *lines):
        instructions = amd_code.parse(disassembly(*lines, END))["kernel"]
        return [text for _, text in check_code_objects.check_sends(instructions)]

    def test_a_store_waits_for_another(self):
        self.assertEqual(self.rule(self.LOAD_ONE, self.WAIT, self.STORE, self.STORE), [])
        self.assertEqual(len(self.rule(self.LOAD_ONE, self.STORE, self.WAIT, self.STORE)), 1)
        self.assertEqual(len(self.rule(self.STORE, self.LOAD_ONE, self.WAIT, self.STORE)), 1)
        self.assertEqual(self.rule(self.STORE, self.LOAD_ONE, self.LOAD_ONE, self.WAIT, self.STORE, self.STORE), [])
        self.assertEqual(self.rule(self.STORE, "s_waitcnt vmcnt(1)", self.STORE), [])
        self.assertEqual(len(self.rule(self.STORE, self.STORE, "s_waitcnt vmcnt(0)", self.STORE)), 1)
        self.assertEqual(self.rule(self.STORE.replace(" nt", ""), self.WAIT, self.STORE.replace(" nt", "")), [])

    def test_a_loop_that_waits_for_one_load(self):
        turn = [self.LOAD_ONE, self.WAIT, self.STORE]
        found = [text for _, text in check_code_objects.check_sends(loop(*turn))]
        self.assertEqual(len(found), 1)
        self.assertIn("in each turn of a loop", found[0])
        self.assertEqual(check_code_objects.check_sends(loop(self.LOAD_ONE, *turn)), [])


class Estimate(unittest.TestCase):
    def test_cycles_by_unit(self):
        lines = [MATRIX, MATRIX_32, "v_exp_f32_e32 v1, v1", "ds_read_b128 v[0:3], v4", "ds_read2_b64 v[0:3], v4", LOAD]
        self.assertEqual(
            amd_code.estimate(loop(*lines), 8),
            # 3 times 16 cycles, 16, 2 KB and 1 KB of a wave; two waves on a SIMD, eight on the CU
            {"matrix": 96, "vector": 32, "LDS": 128, "L1": 128},
        )


class Rate(unittest.TestCase):
    def rule(self, name, *lines):
        return [text for _, text in check_code_objects.check_rate(name, loop(*lines))]

    def test_instructions_of_a_product(self):
        # The branch back counts, too: 12 instructions for 3 times 4,096 multiplications.
        lines = [MATRIX, MATRIX_32, *["v_exp_f32_e32 v1, v1"] * 9]
        self.assertEqual(self.rule("attention_mfma_fp16_64", *lines), [])
        self.assertEqual(
            self.rule("attention_mfma_fp16_64", *lines, "s_nop 0"),
            ["rate: 4.33 instructions for 4,096 multiplications, 4.0 allowed"],
        )
        self.assertEqual(
            self.rule("attention_mfma_bf16_128", *lines),
            ["rate: 4.00 instructions for 4,096 multiplications, 3.4 allowed"],
        )
        self.assertEqual(
            self.rule("gemm_rs_mfma_bf16_64x128", *lines),
            ["rate: 4.00 instructions for 4,096 multiplications, 3.0 allowed"],
        )
        self.assertEqual(self.rule("gemm_mfma_fp16_256x128", MATRIX_32, "s_nop 0", "s_nop 0"), [])
        self.assertEqual(len(self.rule("gemm_mfma_fp16_256x128", MATRIX_32, *["s_nop 0"] * 3)), 1)

    def test_other_kernels_and_no_loop(self):
        self.assertEqual(self.rule("ag_gemm_mfma_bf16_64x128", MATRIX, *["s_nop 0"] * 9), [])
        instructions = amd_code.parse(disassembly(LOAD, MATRIX, END))["kernel"]
        self.assertEqual(
            [text for _, text in check_code_objects.check_rate("attention_mfma_bf16_128", instructions)],
            ["rate: no loop with matrix instructions"],
        )
        self.assertEqual(len(check_code_objects.check_rate("qwen3_gang_1", instructions)), 1)
        self.assertEqual(self.rule("qwen3_gang_1", *[MATRIX] * 8, *["s_nop 0"] * 150), [])
        self.assertEqual(len(self.rule("qwen3_gang_1", *[MATRIX] * 8, *["s_nop 0"] * 152)), 1)
        self.assertEqual(check_code_objects.describe_loop(instructions), "no loop with matrix instructions")


class Resources(unittest.TestCase):
    def found(self, **changes):
        fields = {
            "max_flat_workgroup_size": "512",
            "wavefront_size": "64",
            "vgpr_count": "256",
            "group_segment_fixed_size": "128",
        }
        return check_code_objects.check_resources(fields | changes)

    def test_a_block_fits(self):
        self.assertEqual(self.found(), [])
        self.assertEqual(self.found(max_flat_workgroup_size="256", vgpr_count="512"), [])
        self.assertEqual(self.found(vgpr_count="264"), ["vgprs: 264, 8 waves have 256 each"])
        self.assertEqual(self.found(max_flat_workgroup_size="1024"), ["vgprs: 256, 16 waves have 128 each"])

    def test_static_lds(self):
        self.assertEqual(self.found(group_segment_fixed_size="132"), ["lds: 132 bytes of static LDS, 128 allowed"])


class Metadata(unittest.TestCase):
    def test_fields_of_two_kernels(self):
        notes = """
amdhsa.kernels:
  - .agpr_count:     0
    .args:
      - .offset:         0
        .name:           args
        .size:           400
    .name:           first
    .private_segment_fixed_size: 80
  - .agpr_count:     4
    .name:           second
    .private_segment_fixed_size: 0
amdhsa.target:   amdgcn-amd-amdhsa--gfx942
"""
        kernels = amd_code.parse_metadata(notes)
        self.assertEqual(list(kernels), ["first", "second"])
        self.assertEqual(kernels["first"]["private_segment_fixed_size"], "80")
        self.assertEqual(kernels["second"]["agpr_count"], "4")


# clang sees the builtin wait, concludes that nothing is outstanding, and omits the wait after the write-back.
EARLY_FLAG = """
extern "C" __attribute__((global)) void early_flag(int* data, int* flag) {
  data[__builtin_amdgcn_workitem_id_x()] = 1;
  __builtin_amdgcn_s_waitcnt(0x0f70);  // vmcnt(0)
  __builtin_amdgcn_s_barrier();
  if (__builtin_amdgcn_workitem_id_x() == 0) __scoped_atomic_store_n(flag, 1, __ATOMIC_RELEASE, __MEMORY_SCOPE_SYSTEM);
}
"""
STACK = """
extern "C" __attribute__((global)) void stack(int* data, int n) {
  volatile int words[64];
  for (int i = 0; i < n; ++i) words[i % 64] = i;
  data[0] = words[n % 64];
}
"""


@unittest.skipUnless(shutil.which("clang++-22"), "clang++-22 not found")
class RealCode(unittest.TestCase):
    def check(self, source, *options):
        """(exit status, output) of the program on the code object of `source`."""
        with tempfile.TemporaryDirectory() as folder:
            code = str(Path(folder) / "test.co")
            subprocess.run(
                [
                    "clang++-22",
                    "-x",
                    "hip",
                    "-",
                    "--cuda-device-only",
                    "--no-gpu-bundle-output",
                    "-nogpulib",
                    "-nogpuinc",
                    "--rocm-path=/nonexistent",
                    "--offload-arch=gfx942",
                    "-O3",
                    "-o",
                    code,
                ],
                input=source,
                text=True,
                check=True,
            )
            output = io.StringIO()
            with contextlib.redirect_stdout(output):
                status = check_code_objects.main([*options, code])
            return status, output.getvalue()

    def test_the_defect_of_clang_22(self):
        status, output = self.check(EARLY_FLAG)
        self.assertEqual(status, 1)
        self.assertIn("early_flag+", output)
        self.assertIn("release: 'global_store_dword", output)

    def test_scratch(self):
        status, output = self.check(STACK)
        self.assertEqual(status, 1)
        self.assertIn(": scratch: ", output)
        self.assertEqual(self.check(STACK, "--allow-scratch", "stack")[0], 0)


if __name__ == "__main__":
    unittest.main()
