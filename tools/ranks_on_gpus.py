#!/usr/bin/env python3
"""Checks and times farwarp on all GPUs of a machine: what changes with the number of ranks.

    ranks_on_gpus.py [--part NAME]... [--ranks 8] [--program FILE] [--out FOLDER] [--samples 40] [--list]

  suites     the suites against their oracles, in one process and in RANKS of them
  checks     bursts, delays, repeated calls, graphs, both layouts and modes; injected faults
  sanitizer  each operator's small check under compute-sanitizer, which names lines of a build with
             -DFARWARP_LINE_INFO=ON
  moe        the suite's MoE shapes, whole and split, beside NCCL, twice
  moe_sizes  1 to 4,096 tokens, bf16 and fp8; both modes; all tokens to one expert
  ag_gemm    the suite's shapes beside NCCL and cuBLASLt; each exchange of the middle ones
  gemm_rs    the same
  gemm_ar    1 to 4,096 rows beside NCCL and cuBLASLt
  decode     flash-decode whose ranks share 8K to 512K keys, beside fused-wait and bsp
  all_reduce 8 KiB to 64 MiB beside NCCL
  qwen3      Qwen3-8B, tensor parallel
  more       the ladder of lesson 04, and the table of plans (`farwarp tune`), which is kept in FOLDER

Without --part: all. Commands run one after the other; what they print and their JSON go to FOLDER. Printed, and kept in
FOLDER/table.txt, is a table: of a check, whether it passed; of a bench, the medians in us of the slowest rank with a
cold L2, launched / back to back / from a graph. Exit status: 0; 1 if a command failed; 2 for bad usage.
"""

import argparse
import json
import pathlib
import shlex
import subprocess
import time

MOST_SECONDS = 240  # of a command
# What a check with it must say, one of these. Of a killed rank in one process the others' deadlines may be noticed
# first.
FAULTS = {"kill:1": ("peer lost: rank 1", " for rank 1"), "drop_put:3": ("deadline: ",), "mismatch:1": ("mismatch: ",)}
SMALL = {
    "moe-a2a": {},
    "ag-gemm": {},
    "gemm-rs": {},
    "gemm-ar": {},
    "all-reduce": {},
    "flash-decode": {"kv_shards": "all"},
}
DEEPSEEK = "num_experts=256,experts_per_token=8,hidden_dim=7168,dtype=bf16"


def set_of(**values):
    return ["--set", ",".join(f"{name}={value}" for name, value in values.items())] if values else []


def model_of(ranks):
    return "nano8" if ranks == 8 else "nano4"


def suites(ranks, program):
    yield ["check", "--suite", "amd2025"]
    yield ["launch", "-n", ranks, "--", program, "check", "--suite", "amd2025"]
    for suite in ("decode", "all_reduce"):
        yield ["check", "--suite", suite, *(["--which", "tests"] if suite == "decode" else [])]


def checks(ranks, program):
    for mode in ("words", "bulk"):
        yield ["check", "moe-a2a", "--calls", 2000, *set_of(mode=mode, burst=20, delay_us=100)]
        yield [
            "check",
            "moe-a2a",
            "--calls",
            50,
            "--set",
            f"{DEEPSEEK},form=split,max_num_tokens=128,mode={mode},dispatch_dtype=fp8,layout=masked",
        ]
    yield ["check", "moe-a2a", "--calls", 20, "--set", f"{DEEPSEEK},form=split,max_num_tokens=512,layout=rows"]
    for product in ("ag-gemm", "gemm-rs", "gemm-ar"):
        yield ["check", product, "--calls", 20, *set_of(m=512, n=4096, k=4096, repeat=20, delay=100)]
        yield ["check", product, "--calls", 200, *set_of(m=64, n=2048, k=2048, graph=1, delay=100)]
    for mode in ("one_shot", "two_shot"):
        yield ["check", "all-reduce", "--calls", 500, *set_of(elements=40000, mode=mode, sizes="varied", delay=100)]
    for exchange in ("one-shot", "two-shot"):
        yield ["check", "flash-decode", "--calls", 200, *set_of(kv_shards="all", exchange=exchange, delay=100)]
    model = model_of(ranks)
    for batch in (3, 9, 20, 64):
        yield ["check", "qwen3", *set_of(model=model, batch=batch, prompt=4, tokens=8, dispatcher="both")]
    for batch in (1, 9, 33):
        yield [
            "check",
            "qwen3",
            *set_of(model=model, batch=batch, prompt=2, tokens=10, launches=100, delay=300, oracle=0),
        ]
    for operator, setting in SMALL.items():
        for fault in FAULTS:
            yield ["check", operator, "--fault", fault, "--deadline-ms", 1000, *set_of(**setting)]
    yield ["check", "qwen3", "--fault", "kill:1", "--deadline-ms", 1000, *set_of(model=model)]


def sanitizer(ranks, program):
    for operator, setting in SMALL.items():
        yield [
            "compute-sanitizer",
            "--error-exitcode",
            9,
            program,
            "check",
            operator,
            "--deadline-ms",
            60000,
            *set_of(**setting),
        ]
    yield [
        "compute-sanitizer",
        "--error-exitcode",
        9,
        program,
        "check",
        "qwen3",
        "--deadline-ms",
        60000,
        *set_of(model=model_of(ranks)),
    ]


def moe(ranks, program):
    for form in ("fused", "fused", "split"):
        yield ["bench", "moe-a2a", "--suite", "amd2025", *set_of(dtype="bf16", form=form)]


def moe_sizes(ranks, program):
    for tokens in (1, 8, 32, 128, 512, 1024, 4096):
        for dtype in ("same", "fp8"):
            yield [
                "bench",
                "moe-a2a",
                "--no-baselines",
                "--set",
                f"{DEEPSEEK},max_num_tokens={tokens},dispatch_dtype={dtype},form=split",
            ]
    for mode in ("words", "bulk"):
        for tokens in (128, 512, 1024):
            yield [
                "bench",
                "moe-a2a",
                "--no-baselines",
                "--set",
                f"{DEEPSEEK},max_num_tokens={tokens},mode={mode},form=split",
            ]
    yield ["bench", "moe-a2a", "--no-baselines", "--set", f"{DEEPSEEK},max_num_tokens=256,routing=one_expert"]


def exchanges(product, shape_of_512):
    for exchange in ("words", "boxes"):
        for shape in (shape_of_512, {"m": 2048, "n": 2880, "k": 2880}, {"m": 4096, "n": 4096, "k": 4096}):
            yield ["bench", product, "--no-baselines", *set_of(**shape, exchange=exchange)]


def ag_gemm(ranks, program):
    yield ["bench", "ag-gemm", "--suite", "amd2025", "--which", "benchmarks"]
    yield from exchanges("ag-gemm", {"m": 512, "n": 12288, "k": 4096})


def gemm_rs(ranks, program):
    yield ["bench", "gemm-rs", "--suite", "amd2025", "--which", "benchmarks"]
    yield from exchanges("gemm-rs", {"m": 512, "n": 4096, "k": 12288})


def gemm_ar(ranks, program):
    for k in (4096, 12288):
        for m in (1, 8, 32, 512, 4096):
            yield ["bench", "gemm-ar", *set_of(m=m, n=4096, k=k)]


def decode(ranks, program):
    for batch in (1, 4, 8):
        for keys in (8, 32, 128, 512):
            if batch * keys <= 1024:
                shape = {
                    "batch": batch,
                    "query_heads": 96,
                    "kv_heads": 12,
                    "head_dim": 128,
                    "max_keys": keys * 1024 // ranks,
                }
                yield ["bench", "flash-decode", *set_of(**shape, kv_shards="all", lengths="full")]


def all_reduce(ranks, program):
    for elements in (4096, 16384, 65536, 262144, 1 << 20, 1 << 22, 1 << 24, 1 << 25):
        yield ["bench", "all-reduce", *set_of(elements=elements)]


def qwen3(ranks, program):
    for batch in (1, 8, 16, 32, 64):
        yield ["bench", "qwen3", "--samples", 3, *set_of(model="qwen3-8b", batch=batch, tokens=64)]


def more(ranks, program):
    yield ["bench", "--suite", "ladder"]
    yield ["tune", "--suite", "amd2025", "--which", "benchmarks", "--out", "plans.json"]


PARTS = {
    part.__name__: part
    for part in (suites, checks, sanitizer, moe, moe_sizes, ag_gemm, gemm_rs, gemm_ar, decode, all_reduce, qwen3, more)
}


class Runs:
    def __init__(self, options):
        self.options, self.failed, self.count = options, 0, 0
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "table.txt").unlink(missing_ok=True)

    def run(self, part, words):
        """One command; prints its lines of the table."""
        self.count += 1
        log = self.options.out / f"{part}_{self.count:03}"
        results = log.with_suffix(".json").resolve()
        command = [*words] if words[0] == "compute-sanitizer" else [self.options.program, *words]
        if words[0] == "launch":
            command += ["--target", "cuda"]
        else:
            command += ["--ranks", self.options.ranks, "--target", "cuda"]
        if words[0] == "bench":
            command += ["--json", results, *([] if "--samples" in words else ["--samples", self.options.samples])]
        began = time.monotonic()
        with log.with_suffix(".log").open("w") as output:
            output.write(shlex.join(map(str, command)) + "\n")
            output.flush()
            try:
                code = subprocess.run(
                    [str(word) for word in command],
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    timeout=MOST_SECONDS,
                    check=False,
                    cwd=self.options.out,
                ).returncode
            except subprocess.TimeoutExpired:
                code = "no end"
        seconds = time.monotonic() - began
        title = shlex.join(str(word) for word in words if word != self.options.program)
        said = next((texts for name, texts in FAULTS.items() if name in words), None)
        if said is not None:  # such a check fails, and says why
            text = log.with_suffix(".log").read_text()
            code = 0 if code in (1, 4) and any(one in text for one in said) else f"{code}, not '{said[0]}'"
        if code != 0:
            self.failed += 1
            lines = [f"FAIL ({code}, {seconds:.0f} s, {log.name}.log) {title}"]
        elif words[0] == "bench" and results.exists():
            lines = list(bench_lines(title, json.loads(results.read_text())))
        else:
            lines = [f"pass ({seconds:.0f} s) {title}"]
        print(*lines, sep="\n", flush=True)
        with (self.options.out / "table.txt").open("a") as table:
            print(*lines, sep="\n", file=table)


def bench_lines(title, results):
    yield title
    for case in results["cases"]:
        times = []
        for kind in ("measurements", "baselines"):
            for name, one in case.get(kind, {}).items():
                shown = [one["time_us"]["median"], one.get("back_to_back_us"), one.get("graph_us")]
                times.append(f"{name[:44]} " + " / ".join(f"{us:.1f}" for us in shown if us))
        floor = case.get("floor_us")
        yield f"    {case['label']}: " + "; ".join(times) + (f"; floor {floor:.1f}" if floor else "")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", action="append", choices=PARTS)
    parser.add_argument("--ranks", type=int, default=8, choices=(2, 4, 8))
    parser.add_argument("--program", type=pathlib.Path, default=pathlib.Path("build/release/apps/farwarp/farwarp"))
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("build/ranks_on_gpus"))
    parser.add_argument("--samples", type=int, default=40)
    parser.add_argument("--list", action="store_true", help="print the commands")
    options = parser.parse_args()
    if not options.program.is_file():
        parser.error(f"--program is '{options.program}'; allowed: farwarp, built with kernels for these GPUs")
    options.program = options.program.resolve()
    if options.list:
        for part in options.part or PARTS:
            for words in PARTS[part](options.ranks, options.program):
                print(part, shlex.join(map(str, words)))
        return 0
    runs = Runs(options)
    for part in options.part or PARTS:
        for words in PARTS[part](options.ranks, options.program):
            runs.run(part, words)
    print(f"{runs.count - runs.failed} of {runs.count} commands passed")
    return 1 if runs.failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
