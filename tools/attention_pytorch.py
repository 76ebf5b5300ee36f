#!/usr/bin/env python3
"""Times PyTorch's scaled_dot_product_attention on the shapes of `farwarp bench attention`, on an idle GPU.

    attention_pytorch.py SHAPES [--json FILE] [--samples 30] [--backends cudnn,flash]

SHAPES is a suite with benchmarks of attention (suites/prefill.json), or a file with a JSON list of their entries, or
such a list itself: '[{"heads": 32, "kv_heads": 4, "head_dim": 128, "queries": 4096, "keys": 4096, "causal": true}]'.
The other parameters of a shape are batch (1) and dtype (bf16). Shapes that scaled_dot_product_attention has no argument
for are refused.

A time is the median of samples. Before each sample 256 MB are written, so that the L2 holds nothing of the inputs. Two
events enclose one launch of a CUDA graph of one call. Samples use two sets of inputs in turn, or one if two do not fit.
A delay holds the stream while the host enqueues a sample. FLOPs are 4 * head_dim for each pair of a query and a key
that it sees. Exit status: 0; 2 for bad usage; 3 without PyTorch or a GPU.
"""

import argparse
import functools
import json
import pathlib

from pytorch_timing import Flush, capture, fail, median_us

DEFAULTS = {
    "batch": 1,
    "heads": 4,
    "kv_heads": 2,
    "head_dim": 64,
    "queries": 200,
    "keys": 0,
    "causal": False,
    "dtype": "bf16",
}
IGNORED = {"seed", "lse", "mapping", "step_keys", "max_sms", "inputs", "graph"}
HOLD_CYCLES = 1_000_000  # about half a millisecond
MOST_BYTES_OF_TWO_SETS = 16 << 30


def read_shapes(text: str) -> list:
    """Every shape with all keys of DEFAULTS."""
    try:
        data = json.loads(text if text.lstrip().startswith("[") else pathlib.Path(text).read_text())
    except (OSError, ValueError) as error:
        fail(f"{text[:80]}: {error}")
    common = {}
    if isinstance(data, dict):
        op = data.get("ops", {}).get("attention", {})
        common = {"dtype": op["dtype"]} if "dtype" in op else {}
        data = op.get("benchmarks", [])
    if not isinstance(data, list) or not data or not all(isinstance(entry, dict) for entry in data):
        fail(f"{text[:80]}: allowed is a suite with benchmarks of attention, or a list of its entries")
    shapes = []
    for entry in data:
        for key in entry:
            if key not in DEFAULTS and key not in IGNORED:
                fail(f"'{key}' is {json.dumps(entry[key])}; allowed are {', '.join(DEFAULTS)}")
        shape = {key: entry.get(key, common.get(key, value)) for key, value in DEFAULTS.items()}
        shape["keys"] = shape["keys"] or shape["queries"]
        shape["causal"] = bool(int(shape["causal"]))
        if shape["dtype"] not in ("bf16", "fp16"):
            fail(f"'dtype' is {json.dumps(shape['dtype'])}; allowed are bf16, fp16")
        if shape["heads"] % shape["kv_heads"] != 0:
            fail(f"'kv_heads' is {shape['kv_heads']}; allowed is a divisor of heads ({shape['heads']})")
        shapes.append(shape)
    return shapes


def gigaflops(shape: dict) -> float:
    queries, keys = shape["queries"], shape["keys"]
    pairs = queries * keys
    if shape["causal"]:  # the last query is at the last key's place
        pairs = sum(min(keys, max(0, i + keys - queries + 1)) for i in range(queries))
    return 4e-9 * shape["head_dim"] * shape["batch"] * shape["heads"] * pairs


def describe(shape: dict) -> str:
    return (
        f"batch {shape['batch']}, {shape['queries']} x {shape['keys']}, {shape['heads']}/{shape['kv_heads']} heads of "
        f"{shape['head_dim']}, {shape['dtype']}{', causal' if shape['causal'] else ''}"
    )


class Timer:
    def __init__(self, torch, samples: int):
        self.torch = torch
        self.samples = samples
        self.flush = Flush(torch)

    def inputs_of(self, shape: dict) -> list:
        """Sets of q, k and v as [batch, heads, rows, head_dim], in memory as [batch, rows, heads, head_dim]."""
        torch = self.torch
        dtype = torch.bfloat16 if shape["dtype"] == "bf16" else torch.float16
        rows = shape["queries"] * shape["heads"] + shape["keys"] * shape["kv_heads"]
        sets = 2 if 8 * shape["batch"] * shape["head_dim"] * rows <= MOST_BYTES_OF_TWO_SETS else 1

        def tensor(count, heads):
            return torch.randn(shape["batch"], count, heads, shape["head_dim"], dtype=dtype, device="cuda").transpose(
                1, 2
            )

        return [
            (
                tensor(shape["queries"], shape["heads"]),
                tensor(shape["keys"], shape["kv_heads"]),
                tensor(shape["keys"], shape["kv_heads"]),
            )
            for _ in range(sets)
        ]

    def call_of(self, shape: dict, backend):
        torch = self.torch
        from torch.nn.attention import sdpa_kernel
        from torch.nn.attention.bias import causal_lower_right

        options = {"enable_gqa": True} if shape["heads"] != shape["kv_heads"] else {}
        if shape["causal"] and shape["queries"] == shape["keys"]:
            options["is_causal"] = True
        elif shape["causal"]:
            options["attn_mask"] = causal_lower_right(shape["queries"], shape["keys"])

        def call(q, k, v):
            with sdpa_kernel([backend]), torch.no_grad():
                return torch.nn.functional.scaled_dot_product_attention(q, k, v, **options)

        return call

    def time(self, shape: dict, backend, sets: list) -> float:
        """Microseconds. Raises RuntimeError if the backend does not take the shape."""
        torch = self.torch
        call = self.call_of(shape, backend)

        def before(sample):
            self.flush.write(sample)
            self.flush.read()

        graphs = capture(torch, [functools.partial(call, *inputs) for inputs in sets])
        return median_us(torch, graphs, 1, self.samples, HOLD_CYCLES, before)


def measure(timer: Timer, shape: dict, backends: dict) -> dict:
    sets = timer.inputs_of(shape)
    result = {"shape": shape, "gflop": gigaflops(shape), "us": {}, "refused": {}}
    for name, backend in backends.items():
        try:
            result["us"][name] = timer.time(shape, backend, sets)
        except RuntimeError as error:  # also out of memory
            result["refused"][name] = str(error).strip().splitlines()[0][:200]
        timer.torch.cuda.empty_cache()
    if result["us"]:
        best = min(result["us"], key=result["us"].get)
        result |= {"best": best, "best_us": result["us"][best], "tflops": result["gflop"] / result["us"][best] * 1e3}
    return result


def line_of(result: dict) -> str:
    if "best" not in result:
        return f"{describe(result['shape'])}: no backend takes it ({'; '.join(result['refused'].values())})"
    others = ", ".join(f"{name} {us:.1f}" for name, us in result["us"].items() if name != result["best"])
    return (
        f"{describe(result['shape'])}: {result['best']} {result['best_us']:.1f} us, {result['tflops']:.0f} TFLOP/s"
        f"{' (' + others + ')' if others else ''}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shapes", metavar="SHAPES")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--samples", type=int, default=30)
    parser.add_argument("--backends", default="cudnn,flash")
    arguments = parser.parse_args()
    shapes = read_shapes(arguments.shapes)
    if arguments.samples < 1:
        fail(f"--samples is {arguments.samples}; allowed is 1 or more")
    try:
        import torch
        from torch.nn.attention import SDPBackend
    except ImportError as error:
        fail(f"PyTorch is missing: {error}", 3)
    known = {
        "cudnn": SDPBackend.CUDNN_ATTENTION,
        "flash": SDPBackend.FLASH_ATTENTION,
        "efficient": SDPBackend.EFFICIENT_ATTENTION,
    }
    names = arguments.backends.split(",")
    for name in names:
        if name not in known:
            fail(f"--backends has '{name}'; allowed are {', '.join(known)}")
    if not torch.cuda.is_available():
        fail("no GPU", 3)
    device = f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}"
    print(device)
    timer = Timer(torch, arguments.samples)
    results = []
    for shape in shapes:
        results.append(measure(timer, shape, {name: known[name] for name in names}))
        print(line_of(results[-1]), flush=True)
        if arguments.json:
            pathlib.Path(arguments.json).write_text(json.dumps({"device": device, "results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
