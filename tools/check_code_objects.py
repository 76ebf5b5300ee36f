#!/usr/bin/env python3
"""Checks what the AMD compiler made of our kernels.

    tools/check_code_objects.py [--objdump llvm-objdump] [--readelf llvm-readelf] [--allow-scratch KERNEL]... FILE.co...

Prints one line for each kernel (registers, LDS, scratch) and one for each violation; exits 1 if there are any. Two
rules hold on every path through the control flow of a kernel, one is about where its variables live:

  release  No store or atomic follows a `buffer_wbl2` before an `s_waitcnt` with vmcnt(0): a flag must not overtake the
           write-back that publishes what it announces. clang 22 leaves that wait out of its own release stores
           (llvm-project pull request 178316).
  acquire  No `buffer_inv` executes while a load or atomic is in flight: what an acquire read must have returned before
           the caches are emptied.
  scratch  Kernels access none, nor anything by flat addresses, which may be private: private memory is device memory,
           a round trip away. (A frame that is reserved and never touched, as for spilt scalar registers, is free.)
"""

import argparse
import re
import subprocess
import sys

FUNCTION = re.compile(r"^[0-9a-f]+ <(?P<name>[^>]+)>:$")
INSTRUCTION = re.compile(r"^\s+(?P<name>[a-z][a-z0-9_]*)(?P<operands>[^/]*)//\s*(?P<address>[0-9A-F]+):")

WRITE = re.compile(r"^(global|flat|buffer)_(store|atomic)")
READ = re.compile(r"^(global|flat|buffer)_(load|atomic)")
SCRATCH = re.compile(r"^(scratch|flat)_(load|store|atomic)")
JUMP = re.compile(r"^s_(c?branch)")
INDIRECT = re.compile(r"^s_(setpc|swappc|call)")
DRAINED = re.compile(r"\bvmcnt\(0\)")


class Instruction:
    def __init__(self, name, operands, address):
        self.name = name
        self.operands = operands.strip()
        self.address = address

    def target(self):
        """Of a branch: its 16-bit operand counts words from the next instruction."""
        words = int(self.operands.split()[0], 0)
        return self.address + 4 + 4 * (words - 0x10000 if words >= 0x8000 else words)

    def __str__(self):
        return f"{self.name} {self.operands}".strip()


def parse(disassembly):
    """{function name: its instructions}, in the words of llvm-objdump -d."""
    functions = {}
    current = None
    for line in disassembly.splitlines():
        if match := FUNCTION.match(line):
            current = functions.setdefault(match["name"], [])
        elif current is not None and (match := INSTRUCTION.match(line)):
            current.append(Instruction(match["name"], match["operands"], int(match["address"], 16)))
    return functions


def step(state, instruction):
    """The state after an instruction: (the buffer_wbl2 not waited for, the read in flight), addresses or None."""
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


def describe(name, instructions, fields):
    return (f"{name}: {len(instructions)} instructions, {fields['vgpr_count']} vgprs, {fields['sgpr_count']} sgprs, "
            f"{fields['group_segment_fixed_size']} bytes of static LDS, "
            f"{fields['private_segment_fixed_size']} of scratch")


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
            for address, text in found:
                print(f"{path}: {name}+{address - instructions[0].address if address else 0:#x}: {text}")
            violations += len(found)
    if kernels == 0:
        print("no kernels in " + " ".join(options.files))
    print(f"{kernels} kernels, {violations} violations")
    return 1 if violations or kernels == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
