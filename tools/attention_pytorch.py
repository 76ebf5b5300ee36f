#!/usr/bin/env python3
"""Times PyTorch's scaled_dot_product_attention, and FlashAttention 3, on the shapes of `farwarp bench attention`.

    attention_pytorch.py SHAPES [--json FILE] [--samples 30] [--backends cudnn,flash,fa3,farwarp] [--fa3 LIBRARY]

Backend fa3 is the FlashAttention 3 that vLLM ships: _vllm_fa3_C.abi3.so of its wheel, LIBRARY or that of the installed
vLLM. It needs a Hopper GPU. Backend farwarp is farwarp.Attention, called from Python. The GPU must be idle.

SHAPES is a suite with benchmarks of attention (suites/prefill.json), or a file with a JSON list of their entries, or
such a list itself: '[{"heads": 32, "kv_heads": 4, "head_dim": 128, "queries": 4096, "keys": 4096, "causal": true}]'.
The other parameters of a shape are batch (1) and dtype (bf16). Shapes that scaled_dot_product_attention has no argument
for are refused.

A time is the median of samples. Before each sample 256 MB are written, so that the L2 holds nothing of the inputs. Two
events enclose one launch of a CUDA graph of one call. Samples use two sets of inputs in turn, or one if two do not fit.
A delay holds the stream while the host enqueues a sample. FLOPs are 4 * head_dim for each pair of a query and a key
that it sees. Exit status: 0; 2 for bad usage; 3 without PyTorch, a GPU or FlashAttention 3.
"""

import argparse
import functools
import importlib.util
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
FA3, FARWARP = "fa3", "farwarp"
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


def load_fa3(torch, library: str) -> None:
    """Registers torch.ops._vllm_fa3_C."""
    if not library:
        spec = importlib.util.find_spec("vllm")
        if spec is None or not spec.submodule_search_locations:
            fail("backend fa3 needs --fa3 with _vllm_fa3_C.abi3.so of a vLLM wheel, or vLLM itself", 3)
        library = str(pathlib.Path(spec.submodule_search_locations[0], "vllm_flash_attn", "_vllm_fa3_C.abi3.so"))
    try:
        torch.ops.load_library(library)
    except OSError as error:
        fail(f"--fa3 {library}: {error}", 3)


def fa3_call(torch, shape: dict):
    """FlashAttention 3's forward pass. vLLM's build wants all sequences' rows in one tensor, and where they start."""
    batch, causal, scale = shape["batch"], shape["causal"], shape["head_dim"] ** -0.5
    queries, keys = shape["queries"], shape["keys"]
    query_starts, key_starts = (
        torch.arange(batch + 1, dtype=torch.int32, device="cuda") * rows for rows in (queries, keys)
    )
    forward = torch.ops._vllm_fa3_C.fwd

    def call(q, k, v):
        q, k, v = (tensor.transpose(1, 2).flatten(0, 1) for tensor in (q, k, v))
        # fmt: off
        return forward(
            q, k, v,
            None, None, None,               # new keys and values, qv
            None,                           # out
            query_starts, key_starts, None, # starts of sequences, of new keys
            None, None, queries, keys,      # used rows, longest sequences
            None, None, None,               # block table, indices into the cache, left padding
            None, None, None,               # rotary embedding
            None, None, None,               # scales of fp8
            scale, causal, -1, -1, 0.0,     # window, softcap
            True, None, 1, None, 0, None,   # interleaved, scheduler's metadata, splits, packed heads, margin, sinks
            1, 0, None,                     # context parallelism
        )[0]
        # fmt: on

    return call


def farwarp_call(world, shape: dict):
    import farwarp

    names = ("batch", "heads", "kv_heads", "head_dim", "queries", "keys", "causal")
    operator = farwarp.Attention(
        world, **{name: shape[name] for name in names}, dtype={"bf16": "bfloat16", "fp16": "float16"}[shape["dtype"]]
    )
    return lambda q, k, v: operator(*(tensor.transpose(1, 2) for tensor in (q, k, v)))


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
        self.world = None

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
        if backend == FA3:
            return fa3_call(torch, shape)
        if backend == FARWARP:
            return farwarp_call(self.world, shape)
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
    parser.add_argument("--fa3", metavar="LIBRARY", default="")
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
        FA3: FA3,
        FARWARP: FARWARP,
    }
    names = arguments.backends.split(",")
    for name in names:
        if name not in known:
            fail(f"--backends has '{name}'; allowed are {', '.join(known)}")
    if not torch.cuda.is_available():
        fail("no GPU", 3)
    if FA3 in names:
        load_fa3(torch, arguments.fa3)
    device = f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}"
    print(device)
    timer = Timer(torch, arguments.samples)
    if FARWARP in names:
        import farwarp

        timer.world = farwarp.World(target="cuda")
    results = []
    for shape in shapes:
        results.append(measure(timer, shape, {name: known[name] for name in names}))
        print(line_of(results[-1]), flush=True)
        if arguments.json:
            pathlib.Path(arguments.json).write_text(json.dumps({"device": device, "results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
