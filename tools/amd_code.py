"""Code of AMD kernels as llvm-objdump and llvm-readelf print it: instructions, metadata, loops, estimates of loops."""

import re

FUNCTION = re.compile(r"^[0-9a-f]+ <(?P<name>[^>]+)>:$")
INSTRUCTION = re.compile(r"^\s+(?P<name>[a-z][a-z0-9_]*)(?P<operands>[^/]*)//\s*(?P<address>[0-9A-F]+):")
WRITE = re.compile(r"^(global|flat|buffer)_(store|atomic)")
READ = re.compile(r"^(global|flat|buffer)_(load|atomic)")
JUMP = re.compile(r"^s_(c?branch)")
INDIRECT = re.compile(r"^s_(setpc|swappc|call)")
OUTSTANDING = re.compile(r"\bvmcnt\((\d+)\)")
MATRIX = re.compile(r"^v_s?mfmac?_")
TRANSCENDENTAL = re.compile(r"^v_(exp|log|rcp|rsq|sqrt|sin|cos)_")
MATRIX_SIZE = re.compile(r"^v_s?mfmac?_f32_(\d+)x(\d+)x(\d+)_")
LDS = re.compile(r"^ds_(read|write)")

SIMDS = 4


class Instruction:
    def __init__(self, name, operands, address):
        self.name = name
        self.operands = operands.strip()
        self.address = address

    def target(self):
        """The address that a branch goes to. Its 16-bit operand counts words from the next instruction."""
        words = int(self.operands.split()[0], 0)
        return self.address + 4 + 4 * (words - 0x10000 if words >= 0x8000 else words)

    def __str__(self):
        return f"{self.name} {self.operands}".strip()


def parse(disassembly):
    """{function name: its instructions}, from the output of llvm-objdump -d."""
    functions = {}
    current = None
    for line in disassembly.splitlines():
        if match := FUNCTION.match(line):
            current = functions.setdefault(match["name"], [])
        elif current is not None and (match := INSTRUCTION.match(line)):
            current.append(Instruction(match["name"], match["operands"], int(match["address"], 16)))
    return functions


def parse_metadata(notes):
    """{kernel: {field: value}} from the amdhsa.kernels list that llvm-readelf --notes prints as YAML."""
    kernels = {}
    fields = {}
    for line in notes.splitlines():
        if line.startswith("  - "):
            fields = {}
        match = re.match(r"^  (?:- |  )\.(\w+):\s+(\S+)$", line)
        if match:
            fields[match[1]] = match[2]
            if match[1] == "name":
                kernels[match[2]] = fields
    return kernels


def stays_inside(instructions, index, first, last):
    """Whether a path from number `first` leads to number `last` through instructions between them only."""
    seen, work = set(), [first]
    while work:
        i = work.pop()
        while first <= i <= last and i not in seen:
            if i == last:
                return True
            seen.add(i)
            name = instructions[i].name
            if JUMP.match(name):
                work.append(index.get(instructions[i].target(), len(instructions)))
            if name in ("s_branch", "s_endpgm") or INDIRECT.match(name):
                break
            i += 1
    return False


def loops(instructions, wanted):
    """(number of its first instruction, body) for each loop, by its branch back, whose body is `wanted(body)`.

    Code for rare cases that lies after a loop and jumps back into its middle makes no loop: the way back to it leads
    through the loop's beginning.
    """
    index = {instruction.address: i for i, instruction in enumerate(instructions)}
    for i, instruction in enumerate(instructions):
        if JUMP.match(instruction.name):
            first = index.get(instruction.target(), len(instructions))
            body = instructions[first : i + 1]
            if body and wanted(body) and stays_inside(instructions, index, first, i):
                yield first, body


def matrix_instructions(body):
    return sum(1 for instruction in body if MATRIX.match(instruction.name))


def matrix_loop(instructions):
    """The shortest loop that contains a matrix instruction; [] if there is none."""
    return min((body for _, body in loops(instructions, matrix_instructions)), key=len, default=[])


def least_overlap(loop):
    """The least number of matrix instructions between a load from memory and the wait for it, over turns of the loop.

    None if the loop waits for no load.
    """
    matrix = 0
    in_flight = []  # how many matrix instructions had been issued before each access; they complete in order
    overlaps = []
    for turn in range(3):  # the wait for a load may be two turns later
        for instruction in loop:
            if MATRIX.match(instruction.name):
                matrix += 1
            elif WRITE.match(instruction.name) or READ.match(instruction.name):
                in_flight.append((matrix, READ.match(instruction.name) and turn == 0))
            elif instruction.name == "s_waitcnt" and (left := OUTSTANDING.search(instruction.operands)):
                done = max(0, len(in_flight) - int(left[1]))
                overlaps += [matrix - before for before, counts in in_flight[:done] if counts]
                in_flight = in_flight[done:]
    return min(overlaps, default=None)


def products(loop):
    """The loop's matrix instructions in units of 4,096 multiplications (16 x 16 x 16)."""
    sizes = [match.groups() for instruction in loop if (match := MATRIX_SIZE.match(instruction.name))]
    return sum(int(m) * int(n) * int(k) for m, n, k in sizes) / 4096


def rate(loop):
    """Instructions of a loop, the matrix instructions included, for each 4,096 multiplications."""
    return len(loop) / products(loop)


def wave_bytes(name):
    """Bytes that an instruction moves for the 64 lanes of a wave: ds_read_b128, ds_read2_b64, global_load_dwordx4."""
    if match := re.search(r"dword(?:x(\d))?", name):
        return 64 * 4 * int(match[1] or 1)
    match = re.match(r"^ds_\w+?(2?)(?:st64)?_b(\d+)", name)
    return 64 * int(match[2]) // 8 * (2 if match[1] else 1) if match else 0


def estimate(loop, waves):
    """Cycles of a CU for a turn of a loop in all of a block's `waves`, by unit, as if nothing else limited it.

    Rates are of gfx942 ("AMD Instinct MI300 Instruction Set Architecture"; AMD matrix instruction calculator): a matrix
    instruction of 4,096 multiplications takes its SIMD 16 cycles, another vector instruction 4, a transcendental one
    16. A SIMD issues an instruction of each kind at a time. LDS moves 128 bytes a cycle, the L1 cache 64.
    """
    on_simd = -(-waves // SIMDS)
    vector = sum(
        16 if TRANSCENDENTAL.match(i.name) else 4 for i in loop if i.name.startswith("v_") and not MATRIX.match(i.name)
    )
    lds = sum(wave_bytes(i.name) for i in loop if LDS.match(i.name))
    memory = sum(wave_bytes(i.name) for i in loop if READ.match(i.name) or WRITE.match(i.name))
    return {
        "matrix": round(16 * products(loop) * on_simd),
        "vector": vector * on_simd,
        "LDS": lds * waves // 128,
        "L1": memory * waves // 64,
    }


def hot_loops(instructions):
    """For each beginning of a loop its longest body, if that has 8 matrix instructions and under 1,000 in all."""
    longest = {}
    for first, body in loops(instructions, lambda body: len(body) < 1000 and matrix_instructions(body) >= 8):
        longest[first] = max(longest.get(first, []), body, key=len)
    return list(longest.values())
