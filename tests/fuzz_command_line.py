#!/usr/bin/env python3
"""Runs the built farwarp program with random command lines and mutated suites.

For any input the program must end by itself, without a signal, with an exit code that the README lists. An error must
be one line on stderr. Shapes are tiny, because the test is of the command line, the parsers and the reports, not of the
kernels.

    fuzz_command_line.py PROGRAM SUITE [--lines 2000] [--suites 1000] [--seed 1] [--jobs 2]
"""

import argparse
import collections
import concurrent.futures
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile

from fuzz_parameters import LARGE, MOE, NEAR, ODD_TEXTS, OPERATORS, SIZES, SMALL

EXIT_CODES = {0, 1, 2, 3, 4, 130}
TIMEOUT_S = 60
# The longest wait of a kernel, in virtual time. The host waits six times as long.
DEADLINE_MS = "1000"


def random_fault(rng):
    rank, late = rng.choice(["0", "0", "1", "1", "7"]), rng.choice(["0", "1", "30", "2000", "999999999"])
    return rng.choice(
        [
            f"drop_put:{rng.choice(['0', '1', '2', '5', '999'])}",
            f"delay:{rank}:{late}",
            f"kill:{rank}",
            f"mismatch:{rank}",
        ]
        * 3
        + ["fire:1", "kill", rng.choice(ODD_TEXTS)]
    )


def random_settings(rng, operator):
    values = dict(SMALL.get(operator, {}))
    parameters = OPERATORS.get(operator, MOE)
    for name in rng.sample(sorted(parameters), min(len(parameters), rng.randrange(5))):
        values[name] = rng.choice(parameters[name])
        if rng.random() < 0.06:
            values[name] = rng.choice(ODD_TEXTS + NEAR + ([] if name in SIZES else LARGE))
    if rng.random() < 0.03:
        values[rng.choice(["hiden", "", "m ", "\n"])] = "1"
    text = ",".join(f"{name}={value}" for name, value in values.items())
    return rng.choice(ODD_TEXTS) if rng.random() < 0.02 else text


def random_selection(rng, command, folder):
    """Options of check, bench and tune. A line has few of them, so that most lines reach an operator."""
    operator = rng.choice(sorted(OPERATORS)) if rng.random() < 0.97 else rng.choice(ODD_TEXTS + ["no-such-op"])
    line = [command, operator, "--deadline-ms", DEADLINE_MS]
    settings = random_settings(rng, operator)
    if settings or rng.random() < 0.1:
        line += ["--set", settings]
    line += [
        "--target",
        rng.choice(["emu_sm90", "emu_gfx942"])
        if rng.random() < 0.93
        else rng.choice(["auto", "cuda", "hip", "tpu", rng.choice(ODD_TEXTS)]),
    ]
    line += [
        "--ranks",
        rng.choice(["1", "2", "2", "2", "3", "4", "8"]) if rng.random() < 0.97 else rng.choice(ODD_TEXTS + NEAR),
    ]
    out, pipe = str(folder / "out.json"), str(folder / "pipe")
    choices = [
        ["--seed", rng.choice(NEAR + ["9223372036854775807"])],
        ["--which", rng.choice(["all", "tests"])],
        ["--problem", rng.choice(["whole", "share"])],
        ["--json", rng.choice(["-", out, pipe, "", "/no/such/x.json", str(folder), "/dev/null", "/dev/full"])],
    ]
    if command == "check":
        choices += [["--fault", random_fault(rng)] for _ in range(4)]
        choices += [["--schedules", rng.choice(["1", "2", "3"])], ["--calls", rng.choice(["1", "2", "3"])]]
    else:
        choices += [["--samples", rng.choice(["1", "2"])], ["--no-baselines"]]
    for option in rng.sample(choices, rng.randrange(3)):
        if rng.random() < 0.05 and len(option) > 1:
            option = [option[0], rng.choice(ODD_TEXTS)]
        if option[0] not in line:
            line += option
    if command == "bench" and "--samples" not in line:
        line += ["--samples", "1"]
    if rng.random() < 0.03:
        line += rng.choice(
            [
                ["--wat"],
                ["--set"],
                ["--json"],
                ["extra"],
                ["--help"],
                ["--version"],
                ["-n"],
                ["--suite", rng.choice(["no-such-suite", str(folder), pipe, "/dev/null", "", "a\nb"])],
            ]
        )
    return line


def random_decode(rng, folder):
    (folder / "prompts.txt").write_text("3 1 4\n7\n")
    model = rng.choice(["random:nano"] * 8 + ["random:tiny", "random:wat", str(folder), rng.choice(ODD_TEXTS)])
    choices = [
        [
            "--prompt",
            rng.choice(["1,2,3", "39", "40", "1,,2", str(folder / "prompts.txt"), str(folder), str(folder / "pipe")]),
        ],
        ["--batch", rng.choice(NEAR)],
        ["--positions", rng.choice(NEAR)],
        ["--end-token", rng.choice(NEAR)],
        ["--prefill", rng.choice([*NEAR, "16"])],
        ["--dispatcher", rng.choice(["static", "graph", "gang"])],
        ["--seed", rng.choice(NEAR)],
        ["--ranks", rng.choice(NEAR)],
        ["--temperature", rng.choice(["0", "0.7", "1", "1e9", "nan", "-1"]), "--top-k", rng.choice(NEAR)],
        ["--top-p", rng.choice(["0", "0.9", "1", "2"])],
        ["--sampling-seed", rng.choice(NEAR)],
        [
            "--logits",
            rng.choice([str(folder / "x.npy"), str(folder / "pipe"), str(folder), "/no/such/x.npy", "/dev/full"]),
        ],
        ["--json", rng.choice(["-", str(folder / "out.json"), str(folder / "pipe"), "/no/such/x.json", "/dev/full"])],
    ]
    line = [
        "decode",
        "--model",
        model,
        "--target",
        rng.choice(["emu_sm90", "emu_sm90", "emu_gfx942", "tpu"]),
        "--tokens",
        rng.choice(["0", "1", "3", "17", "-1", "x"]),
    ]
    for option in rng.sample(choices, rng.randrange(4)):
        line += option if rng.random() < 0.93 else [option[0], rng.choice(ODD_TEXTS)]
    return line


def random_graph(rng):
    choices = [
        ["--batch", rng.choice(NEAR)],
        ["--workers", rng.choice(NEAR)],
        ["--format", rng.choice(["text", "dot", "png"])],
        ["--all"],
        ["--model", rng.choice(["random:nano", "random:qwen3-32b", "random:", rng.choice(ODD_TEXTS)])],
    ]
    options = rng.sample(choices, rng.randrange(4))
    return [
        "graph",
        rng.choice(["qwen3", "qwen3", "qwen3", rng.choice(ODD_TEXTS)]),
        *(word for option in options for word in option),
    ]


def random_line(rng, program, folder):
    command = rng.choice(
        ["check"] * 16
        + ["bench"] * 2
        + ["decode"] * 2
        + ["graph", "tune", "list", "suites", "doctor", "launch", "", "fly"]
        + [rng.choice(ODD_TEXTS)]
    )
    if command == "decode":
        return random_decode(rng, folder)
    if command == "graph":
        return random_graph(rng)
    if command in ("check", "bench", "tune"):
        return random_selection(rng, command, folder)
    if command == "suites":
        return [
            "suites",
            *rng.choice(
                [[], ["serving"], ["no-such-suite"], [str(folder)], [str(folder / "pipe")], [rng.choice(ODD_TEXTS)]]
            ),
            *rng.choice([[], [], ["--json", "-"], ["-o", str(folder)], ["--export-flashinfer", "gemm-rs"]]),
        ]
    if command == "list":
        return ["list", *rng.sample(["--kernels", "--wat", "extra"], rng.randrange(2))]
    if command == "doctor":
        return [
            "doctor",
            *rng.choice(
                [
                    [],
                    ["--measure"],
                    ["--ranks", "2"],
                    ["--measure", "--target", "emu_gfx942", "--ranks", "2"],
                    ["--measure", "--target", rng.choice(ODD_TEXTS)],
                    ["--measure", "--ranks", "9"],
                ]
            ),
        ]
    if command == "launch":
        inner = rng.choice(
            [["true"], ["false"], ["/no/such/program"], [], [program, *random_selection(rng, "check", folder)]]
        )
        # Half of the lines launch a program without arguments: a group whose processes take different paths waits for
        # minutes.
        return [
            "launch",
            "-n",
            rng.choice(["1", "2", "0", "9", "x", ""]),
            "--",
            *(inner if rng.random() < 0.5 else inner[:1]),
        ]
    return [command, *rng.sample(["--help", "--version", "check", "-n"], rng.randrange(2))]


def replace_value(rng, data, value):
    """Replaces a value that follows a colon or a comma with `value`."""
    before = [i for i in range(len(data)) if data[i : i + 1] in (b":", b",")]
    if before:
        at = rng.choice(before) + 1
        end = next((i for i in range(at, len(data)) if data[i : i + 1] in (b",", b"}", b"]")), len(data))
        data[at:end] = value


def mutated(rng, text):
    """Cuts, repeats and overwrites bytes, and replaces numbers and strings with odd values."""
    data = bytearray(text)
    for _ in range(rng.choice([1, 1, 1, 2, 5])):
        if not data:
            break
        at, length = rng.randrange(len(data)), rng.randrange(1, 40)
        kind = rng.randrange(9)
        if kind == 0:
            del data[at : at + length]
        elif kind == 1:
            data[at:at] = data[at : at + length]
        elif kind == 2:
            data[at] = rng.randrange(256)
        elif kind == 3:
            del data[at + 1 :]
        elif kind == 4:
            opened, closed = rng.choice([(b"[", b"]"), (b'{"a":', b"}")])
            levels = rng.choice([1, 10, 20, 100000])
            replace_value(rng, data, opened * levels + b"1" + closed * rng.choice([levels, levels, 0]))
        elif kind == 5:
            quotes = [i for i in range(len(data)) if data[i : i + 1] == b'"']
            at = rng.choice(quotes) + 1 if quotes else 0
            data[at:at] = rng.choice(
                [b"\\n", b"\\u0000", b"\\u001b[31m", b"\xff", b"y" * 5000, b"speed_of_light_us_\\n"]
            )
        else:
            replace_value(
                rng,
                data,
                rng.choice(
                    [
                        b"-1",
                        b"0",
                        b"1e999",
                        b"null",
                        b"[]",
                        b"{}",
                        b'"\\n"',
                        b"true",
                        b"1",
                        b"2",
                        b"8",
                        b"16",
                        b"64",
                        b"99999999999999999999",
                    ]
                ),
            )
    # Digits of two numbers may have been joined. Such a large shape is no error but takes long, so it is shortened.
    return re.sub(rb"[0-9]{4,9}", lambda digits: digits.group()[:2], bytes(data))


def run(program, line, folder, full):
    """The exit code, and what was wrong with this run, or None. `full`: the standard output is /dev/full."""
    environment = {
        "PATH": os.environ.get("PATH", ""),
        "HOME": str(folder),
        "LC_ALL": "C",
        "CUDA_VISIBLE_DEVICES": "",
        "FARWARP_HIP_LIBRARY": "/no/such/library.so",
        "FARWARP_SUITES": str(folder),
    }
    with open("/dev/full", "wb") as nowhere:
        process = subprocess.Popen(
            [program, *line],
            stdin=subprocess.DEVNULL,
            stdout=nowhere if full else subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            cwd=folder,
            start_new_session=True,
        )
    try:
        output, error = process.communicate(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # the program and its children, which are one session
        process.communicate()
        return None, f"no end after {TIMEOUT_S} s"
    return process.returncode, verdict(line, process.returncode, output or b"", error.decode(errors="replace"), full)


def verdict(line, code, output, error, full):
    lines = error.splitlines()
    if code < 0:
        return f"ended by signal {-code}; {lines[-1:]}"
    if line[:1] != ["launch"] and code == 0:
        if full:
            return "exit code 0, and nothing of it could be printed"
        fault = line[line.index("--fault") + 1] if "--fault" in line else ""
        if (
            line[0] == "check"
            and fault.startswith(("drop_put", "kill", "mismatch"))
            and not {"--help", "--version"} & set(line)
        ):
            return "passed in spite of its fault"
    if line[:1] == ["launch"]:  # the launched program determines the exit code and the lines
        return "a launched process was ended by a signal" if code in (128 + 6, 128 + 8, 128 + 11) else None
    if code not in EXIT_CODES:
        return f"exit code {code}; {lines[-1:]}"
    errors = [text for text in lines if text.startswith("farwarp: ")]
    others = [text for text in lines if not text.startswith(("farwarp: ", "target auto: "))]
    if len(errors) > (2 if full else 1) or (code != 0 and not output and not others and not errors):
        return f"{len(errors)} lines of errors on stderr, exit code {code}: {errors}"
    if others and "-" not in line:  # with "--json -" the table is on stderr
        return f"stderr has {others[:3]}"
    return None


def shown(line):
    return " ".join(repr(part if len(part) < 200 else part[:200] + "...") for part in line)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("suite", type=pathlib.Path, help="the suite that is mutated")
    parser.add_argument("--lines", type=int, default=2000, help="random command lines")
    parser.add_argument("--suites", type=int, default=1000, help="mutated suites")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2, help="programs at once")
    options = parser.parse_args()
    program = str(pathlib.Path(options.program).resolve())
    original = options.suite.read_bytes()
    with (
        tempfile.TemporaryDirectory(prefix="farwarp_fuzz_") as name,
        concurrent.futures.ThreadPoolExecutor(options.jobs) as pool,
    ):
        root = pathlib.Path(name)

        def one(number):
            rng = random.Random(f"{options.seed} {number}")
            folder = root / str(number)
            folder.mkdir()
            os.mkfifo(folder / "pipe")
            if number < options.lines:
                line = random_line(rng, program, folder)
            else:
                (folder / "mutated.json").write_bytes(mutated(rng, original))
                line = [
                    "check",
                    "mutated.json",
                    "--target",
                    rng.choice(["emu_sm90", "emu_gfx942"]),
                    "--deadline-ms",
                    DEADLINE_MS,
                    "--calls",
                    "1",
                ]
            code, wrong = run(program, line, folder, full=rng.random() < 0.1)
            if wrong is None:
                shutil.rmtree(folder)
            return number, line, code, wrong

        failures, codes = 0, collections.Counter()
        for number, line, code, wrong in pool.map(one, range(options.lines + options.suites)):
            codes[code] += 1
            if wrong is not None:
                failures += 1
                print(f"FAIL {number}: {wrong}\n     {shown(line)}", flush=True)
                mutant = root / str(number) / "mutated.json"
                if mutant.exists():
                    print(f"     {mutant.read_bytes()[:400]!r}", flush=True)
        print(
            f"seed {options.seed}: {options.lines} command lines, {options.suites} suites, {failures} failures; "
            f"exit codes {dict(sorted(codes.items(), key=str))}"
        )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
