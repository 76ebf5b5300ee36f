#!/usr/bin/env python3
"""Checks the code that the AMD compiler generates for our kernels.

    tools/check_code_objects.py [--objdump llvm-objdump] [--readelf llvm-readelf] [--allow-scratch KERNEL]... FILE.co...

Prints one line for each kernel (registers, LDS, scratch) and one for each violation. Exits 1 if there are any, or if
there are no kernels. The rules release and acquire hold on every path through the control flow of a kernel. The others
are about its resources and its main loop:

  release  No store or atomic follows a `buffer_wbl2` before an `s_waitcnt` with vmcnt(0). A flag must not overtake the
           write-back that publishes the data that it guards. clang 22 omits this wait in its own release stores
           (llvm-project pull request 178316).
  acquire  No `buffer_inv` executes while a load or atomic is in flight. The read of an acquire must have returned
           before the caches are invalidated.
  sends    Streaming stores do not wait for each other. CDNA counts loads and stores in one order, so between two of
           them there is no wait that covers the first, unless for two loads or more. Stores without the hint, such
           as flags and sums from registers, are not looked at.
  scratch  A kernel accesses no scratch memory, and nothing by flat addresses, which may be private. Private memory is
           device memory, so each access is a round trip. (A frame that is reserved and never accessed, as for spilt
           scalar registers, costs nothing.)
  vgprs    A block of the largest size that the kernel declares fits into a CU. Each of its four SIMDs has 512 registers
           per lane, which the waves on it share.
  lds      Static LDS is 128 bytes at most, because plans use the rest of the 64 KB (base/machine_shape.h).
  matrix   For a kernel called ..mfma..: the innermost loop around its matrix instructions reads LDS by 8 or 16 bytes
           and writes it by 16. At least half of the loop's matrix instructions are issued between a load from memory
           and the wait for it. The composition of that loop is printed too, and an estimate of the cycles that it
           takes each unit of gfx942.
  rate     For the kernels of MOST_INSTRUCTIONS: that loop has at most so many instructions for each 4,096
           multiplications of its matrix instructions, these included. (The decoder: each loop with 8 of them.) On
           gfx942 a SIMD takes 16 cycles for so many, in which it issues four instructions of a wave.
"""

import argparse
import collections
import re
import subprocess
import sys

from amd_code import (
    INDIRECT,
    JUMP,
    LDS,
    MATRIX,
    OUTSTANDING,
    READ,
    SIMDS,
    WRITE,
    estimate,
    hot_loops,
    least_overlap,
    loops,
    matrix_loop,
    parse,
    parse_metadata,
    rate,
)

STREAMING_STORE = re.compile(r"^(global|buffer)_store_\w+ .*\bnt\b")
NOT_HOT = ("qwen3_pack",)  # runs once, when a model is loaded
SCRATCH = re.compile(r"^(scratch|flat)_(load|store|atomic)")
DRAINED = re.compile(r"\bvmcnt\(0\)")
WIDE_LDS = re.compile(r"^ds_(read_b(64|128)|write_b128)$")
IN_LOOP = re.compile(r"^(v_s?mfmac?_|ds_|global_|buffer_|s_barrier|s_waitcnt)")

# ag-gemm's loops contain waits for rows, which are rarely taken.
MOST_INSTRUCTIONS = (
    (re.compile(r"^(gemm|gemm_rs|gemm_ar)_mfma_\w+_256x128$"), 2.0),
    (re.compile(r"^(gemm|gemm_rs|gemm_ar)_mfma_\w+_64x128$"), 3.0),
    (re.compile(r"^attention_mfma_\w+_128$"), 3.4),
    (re.compile(r"^attention_mfma_\w+_64$"), 4.0),
    (re.compile(r"^flash_decode_mfma_\w+_fp8_128$"), 28.0),  # 450 for 16 keys
    (re.compile(r"^qwen3_gang_\d+$"), 20.0),
)

LANE_REGISTERS = 512
STATIC_LDS = 128


def step(state, instruction):
    """The state after an instruction: addresses of the buffer_wbl2 not waited for and the read in flight, or None."""
    written_back, read = state
    if instruction.name == "s_waitcnt" and DRAINED.search(instruction.operands):
        return None, None
    if instruction.name == "buffer_wbl2":
        written_back = instruction.address
    elif READ.match(instruction.name):
        read = instruction.address
    return written_back, read


def violation(state, instruction):
    written_back, read = state
    if written_back is not None and WRITE.match(instruction.name):
        return f"release: '{instruction}' follows the buffer_wbl2 at {written_back:#x} without s_waitcnt vmcnt(0)"
    if read is not None and instruction.name == "buffer_inv":
        return f"acquire: '{instruction}' while the read at {read:#x} may be in flight"
    return None


def check(instructions):
    """Violations in one function, as (address, text), by a walk over its control flow until no state changes."""
    index = {instruction.address: i for i, instruction in enumerate(instructions)}
    found = {}
    seen = set()
    work = [(0, (None, None))] if instructions else []
    while work:
        i, state = work.pop()
        while i < len(instructions) and (i, state) not in seen:
            seen.add((i, state))
            instruction = instructions[i]
            if text := violation(state, instruction):
                found[instruction.address] = text
            state = step(state, instruction)
            if INDIRECT.match(instruction.name):
                found[instruction.address] = f"unknown: '{instruction}' goes where this check cannot follow"
                break
            if instruction.name == "s_endpgm":
                break
            if JUMP.match(instruction.name):
                if (target := index.get(instruction.target())) is None:
                    found[instruction.address] = f"unknown: '{instruction}' leaves the function"
                    break
                if instruction.name == "s_branch":
                    i = target
                    continue
                work.append((target, state))
            i += 1
    return sorted(found.items())


def check_sends(instructions):
    """Violations of the rule 'sends', as (address, text), by one pass over the instructions in their order.

    A wait that covers the streaming store before is wrong if at most one load was issued since that store.
    """
    found = []
    in_flight = []  # accesses, which complete in order
    loads_since = 0  # since the streaming store before
    stored = waited_for = None
    for instruction in instructions:
        if STREAMING_STORE.match(str(instruction)):
            if waited_for is not None and loads_since <= 1:
                found.append((instruction.address, f"sends: '{instruction}' waits for '{waited_for}'"))
            in_flight.append(instruction)
            stored, waited_for, loads_since = instruction, None, 0
        elif READ.match(instruction.name) or WRITE.match(instruction.name):
            in_flight.append(instruction)
            loads_since += 1 if READ.match(instruction.name) else 0
        elif instruction.name == "s_waitcnt" and (left := OUTSTANDING.search(instruction.operands)):
            done = max(0, len(in_flight) - int(left[1]))
            if stored is not None and any(access is stored for access in in_flight[:done]):
                waited_for = stored
            in_flight = in_flight[done:]
        elif instruction.name in ("s_barrier", "s_branch", "s_endpgm"):
            stored = waited_for = None

    def waits_for_one_load(body):
        waits = any(inside.name == "s_waitcnt" and OUTSTANDING.search(inside.operands) for inside in body)
        return waits and sum(1 for inside in body if READ.match(inside.name)) == 1

    for _, body in loops(instructions, waits_for_one_load):
        store = next((inside for inside in body if STREAMING_STORE.match(str(inside))), None)
        if store is not None:
            found.append((store.address, f"sends: '{store}' follows a wait for one load in each turn of a loop"))
    return found


def check_rate(name, instructions):
    """Violations of the rule 'rate', as (address, text)."""
    limits = [most for kernels, most in MOST_INSTRUCTIONS if kernels.match(name)]
    if not limits:
        return []
    # A kernel of the decoder has several loops, with paths for partial tiles.
    loops = hot_loops(instructions) if name.startswith("qwen3") else [matrix_loop(instructions)]
    if not any(loops):
        return [(0, "rate: no loop with matrix instructions")]
    return [
        (loop[0].address, f"rate: {rate(loop):.2f} instructions for 4,096 multiplications, {limits[0]} allowed")
        for loop in loops
        if rate(loop) > limits[0]
    ]


def check_matrix(instructions):
    """Violations of the rule 'matrix', as (address, text)."""
    loop = matrix_loop(instructions)
    if not loop:
        return [(0, "matrix: no loop with matrix instructions")]
    found = [
        (instruction.address, f"matrix: '{instruction}' is narrow")
        for instruction in loop
        if LDS.match(instruction.name) and not WIDE_LDS.match(instruction.name)
    ]
    count = sum(1 for instruction in loop if MATRIX.match(instruction.name))
    overlap = least_overlap(loop)
    if overlap is None:
        found.append((loop[0].address, "matrix: the loop loads nothing ahead"))
    elif 2 * overlap < count:
        found.append((loop[0].address, f"matrix: a load is waited for after {overlap} of {count} matrix instructions"))
    return found


def describe_loop(instructions, waves=8):
    loop = matrix_loop(instructions)
    if not loop:
        return "no loop with matrix instructions"
    names = collections.Counter(instruction.name for instruction in loop if IN_LOOP.match(instruction.name))
    return (
        f"loop of {len(loop)} instructions, {rate(loop):.2f} for 4,096 multiplications: "
        + ", ".join(f"{count} {name}" for name, count in names.items())
        + f"; loads are waited for after {least_overlap(loop)} matrix instructions or more; cycles: "
        + ", ".join(f"{unit} {cycles}" for unit, cycles in estimate(loop, waves).items())
    )


def waves_of(fields):
    return -(-int(fields["max_flat_workgroup_size"]) // int(fields["wavefront_size"]))


def check_resources(fields):
    """Violations of the rules 'vgprs' and 'lds', as texts."""
    waves = waves_of(fields)
    most = LANE_REGISTERS // -(-waves // SIMDS)
    found = []
    if int(fields["vgpr_count"]) > most:
        found.append(f"vgprs: {fields['vgpr_count']}, {waves} waves have {most} each")
    if int(fields["group_segment_fixed_size"]) > STATIC_LDS:
        found.append(f"lds: {fields['group_segment_fixed_size']} bytes of static LDS, {STATIC_LDS} allowed")
    return found


def describe(name, instructions, fields):
    return (
        f"{name}: {len(instructions)} instructions, {fields['vgpr_count']} vgprs, {fields['sgpr_count']} sgprs, "
        f"{fields['group_segment_fixed_size']} bytes of static LDS, "
        f"{fields['private_segment_fixed_size']} of scratch"
    )


def run(command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", metavar="FILE.co")
    parser.add_argument("--objdump", default="llvm-objdump-22")
    parser.add_argument("--readelf", default="llvm-readelf-22")
    parser.add_argument("--allow-scratch", action="append", default=[], metavar="KERNEL")
    options = parser.parse_args(arguments)

    violations = 0
    kernels = 0
    for path in options.files:
        try:
            functions = parse(run([options.objdump, "-d", path]))
            metadata = parse_metadata(run([options.readelf, "--notes", path]))
        except subprocess.CalledProcessError as error:
            print(error.stderr.strip())
            violations += 1
            continue
        for name, fields in metadata.items():
            kernels += 1
            instructions = functions.get(name, [])
            print(f"{path}: {describe(name, instructions, fields)}")
            found = check(instructions) if instructions else [(0, "unknown: no code found")]
            scratch = [instruction for instruction in instructions if SCRATCH.match(instruction.name)]
            if scratch and name not in options.allow_scratch:
                found.append((scratch[0].address, f"scratch: {len(scratch)} accesses, the first is '{scratch[0]}'"))
            found += [(0, text) for text in check_resources(fields)]
            if name not in NOT_HOT:
                found += check_sends(instructions)
            if "mfma" in name and instructions:
                print(f"{path}: {name}: {describe_loop(instructions, waves_of(fields))}")
                found += check_matrix(instructions)
            found += check_rate(name, instructions)
            for address, text in found:
                print(f"{path}: {name}+{address - instructions[0].address if address else 0:#x}: {text}")
            violations += len(found)
    if kernels == 0:
        print("no kernels in " + " ".join(options.files))
    print(f"{kernels} kernels, {violations} violations")
    return 1 if violations or kernels == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
