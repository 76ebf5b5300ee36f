#!/usr/bin/env python3
"""Times farwarp's products on idle GPUs beside PyTorch's: cuBLAS, and NCCL and cuBLAS one after the other.

    products_pytorch.py SUITE [--ranks 1] [--ops gemm,ag-gemm,...] [--rows 16,512,...] [--scaling blocks]
                        [--samples 30] [--json FILE]

SUITE is a suite with benchmarks of gemm (for one rank), ag-gemm, gemm-rs or gemm-ar, as suites/tp.json. Timed are those
of its shapes that are for RANKS ranks, each once, without a bias; --ops and --rows take some of them. Each rank is a
process with a GPU of its own. farwarp is called from Python with path "own".

--scaling, of gemm: x and w are e4m3, and scales are shared as Fp8Gemm says; PyTorch's product is scaled_mm() without
fast accumulation. Without: all is bf16.

A time is the median of samples, of the slowest rank. A sample is one launch of a CUDA graph of one call between two
events. Before it 256 MB are written and read, so that the L2 holds nothing of the operands; with ranks, two all-reduces
wake the links, and the ranks meet. A delay holds the stream while the host enqueues a sample. Results of both ways are
compared.

A line has the time of farwarp, of PyTorch, of cuBLAS's product alone and, with ranks, the ideal: the longer of that
product and the link's time + 5 us, + 3 us. The link's time is that of the bytes which a rank must receive, at the rate
of a large copy between two GPUs, measured first. Last come geometric means. Exit status: 0; 1 if results differ; 2 for
bad usage; 3 without PyTorch or enough GPUs.
"""

import argparse
import functools
import json
import math
import pathlib

from pytorch_timing import Flush, capture, fail, median_us, spawn

OPERATORS = ("gemm", "ag-gemm", "gemm-rs", "gemm-ar")
HOLD_CYCLES = {1: 200_000}  # about 0.1 ms for one rank
HOLD_CYCLES_OF_RANKS = 4_000_000
WAKE_BYTES = 64 << 20
RATE_BYTES = 512 << 20
HEAP_BYTES = 4 << 30
LINK_START_US, LEAST_US = 5, 3  # of the ideal
MOST_DIFFERENCE = 2**-6  # of the largest result: both round sums of many products to 16 bits, PyTorch more than once


def read_shapes(arguments) -> list:
    try:
        suite = json.loads(pathlib.Path(arguments.suite).read_text())
        operators = suite["ops"]
        found = [
            (name, entry["m"], entry["n"], entry["k"])
            for name in OPERATORS
            for entry in operators.get(name, {}).get("benchmarks", [])
            if entry.get("ranks", 1) == arguments.ranks
        ]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        fail(f"{arguments.suite}: {error!r}; allowed is a suite with benchmarks of products")
    wanted = arguments.ops.split(",") if arguments.ops else OPERATORS
    if arguments.scaling and wanted != ["gemm"]:
        fail(f"--scaling is {arguments.scaling} with --ops '{arguments.ops}'; allowed: with --ops gemm")
    for name in wanted:
        if name not in OPERATORS:
            fail(f"--ops has '{name}'; allowed are {', '.join(OPERATORS)}")
    rows = arguments.rows.split(",") if arguments.rows else []
    for number in rows:
        if not number.isdecimal():
            fail(f"--rows has '{number}'; allowed are whole numbers")
    shapes = [shape for shape in dict.fromkeys(found) if shape[0] in wanted and (not rows or str(shape[1]) in rows)]
    if not shapes:
        fail(f"{arguments.suite}: no shape with {arguments.ranks} ranks is wanted")
    return shapes


class ScaledWays:
    """The operands of a shape of gemm in e4m3, and the calls that are timed."""

    received = 0

    def __init__(self, torch, farwarp, world, shape: tuple, scaling: str):
        from torch.nn.functional import ScalingType, scaled_mm

        _, m, n, k = shape
        x, w = (torch.randn((rows, k), device="cuda").to(torch.float8_e4m3fn) for rows in (m, n))
        steps, blocks = -(-k // 128), -(-n // 128)
        kinds = {
            "blocks": ((steps, m), (blocks, steps), ScalingType.BlockWise1x128, ScalingType.BlockWise128x128),
            "rows": ((m,), (n,), ScalingType.RowWise, ScalingType.RowWise),
            "tensor": ((1,), (1,), ScalingType.TensorWise, ScalingType.TensorWise),
        }[scaling]
        of_x, of_w = (torch.rand(shape, device="cuda") + 0.5 for shape in kinds[:2])
        padded = torch.ones((-(-blocks // 4) * 4, steps), device="cuda")  # as cuBLAS takes the scales of blocks
        if scaling == "blocks":
            padded[:blocks] = of_w
        theirs = {
            "blocks": lambda: (of_x.t(), padded.t()),
            "rows": lambda: (of_x[:, None], of_w[None, :]),
            "tensor": lambda: (of_x, of_w),
        }[scaling]()

        def multiply():
            self.theirs_result = scaled_mm(
                x, w.t(), theirs[0], kinds[2], theirs[1], kinds[3], output_dtype=torch.bfloat16
            )

        self.theirs = self.alone = multiply
        self.ours_result = torch.empty(m, n, dtype=torch.bfloat16, device="cuda")
        by_column = scaling == "blocks"
        self.operator = farwarp.Fp8Gemm(world, m, n, k, scaling=scaling, x_scale_by_column=by_column)
        self.ours = functools.partial(self.operator, x, w, of_x, of_w, out=self.ours_result)


def difference(torch, ways) -> float:
    """The largest, divided by the largest result."""
    ways.ours()
    ways.theirs()
    torch.cuda.synchronize()
    theirs = ways.theirs_result.float()
    return ((ways.ours_result.float() - theirs).abs().max() / theirs.abs().max()).item()


class Ways:
    """A shape's operands on one rank, and the calls that are timed."""

    def __init__(self, torch, farwarp, world, shape: tuple):
        name, m, n, k = shape
        ranks, distributed = world.size, torch.distributed
        gathers = name == "ag-gemm"
        self.rows = m
        n_here, k_here = (n // ranks, k) if gathers else (n, k // ranks)
        self.received = {
            "gemm": 0,
            "ag-gemm": 2 * k * (m - m // ranks),
            "gemm-rs": 2 * n * (m - m // ranks),
            "gemm-ar": 4 * n * (m - m // ranks),  # the sums of others for its rows, and others' rows
        }[name]

        def random(*size):
            return torch.randn(size, dtype=torch.bfloat16, device="cuda") * k_here**-0.25

        x, w = random(m // ranks if gathers else m, k_here), random(n_here, k_here)
        all_x = random(m, k) if gathers else x
        product = torch.empty(m, n_here, dtype=torch.bfloat16, device="cuda")
        self.theirs_result = product
        if name == "gemm-rs":
            self.theirs_result = torch.empty(m // ranks, n, dtype=torch.bfloat16, device="cuda")
        self.ours_result = torch.empty_like(self.theirs_result)
        self.alone = functools.partial(torch.mm, all_x, w.t(), out=product)

        def theirs():
            if gathers:
                distributed.all_gather_into_tensor(all_x, x)
            self.alone()
            if name == "gemm-rs":
                distributed.reduce_scatter_tensor(self.theirs_result, product)
            elif name == "gemm-ar":
                distributed.all_reduce(product)

        self.theirs = theirs
        if name == "gemm":
            self.operator = farwarp.Gemm(world, m, n, k)
        else:
            kind = {
                "ag-gemm": farwarp.AllGatherGemm,
                "gemm-rs": farwarp.GemmReduceScatter,
                "gemm-ar": farwarp.GemmAllReduce,
            }[name]
            self.operator = kind(world, m, n, k, path="own")
        self.ours = functools.partial(self.operator, x, w, out=self.ours_result)


def link_rate(torch, rank: int) -> float:
    """Bytes a microsecond from the next GPU to rank 0's."""
    rate = torch.zeros(1, device="cuda")
    if rank == 0:
        source = torch.empty(RATE_BYTES, dtype=torch.uint8, device="cuda:1")
        target = torch.empty(RATE_BYTES, dtype=torch.uint8, device="cuda:0")
        for _ in range(3):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            target.copy_(source)
            end.record()
            torch.cuda.synchronize()
            rate[0] = RATE_BYTES / (start.elapsed_time(end) * 1e3)
    torch.distributed.broadcast(rate, 0)
    return rate.item()


def measure(torch, ways: Ways, arguments, before, rate: float) -> dict:
    hold = HOLD_CYCLES.get(arguments.ranks, HOLD_CYCLES_OF_RANKS)

    def time(call):
        return median_us(torch, capture(torch, [call]), arguments.ranks, arguments.samples, hold, before)

    us = {"farwarp": time(ways.ours), "pytorch": time(ways.theirs)}
    if arguments.ranks > 1:
        us["alone"] = time(ways.alone)
        us["ideal"] = max(us["alone"], ways.received / rate + LINK_START_US) + LEAST_US
    return us


def mean(values: list) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def print_means(results: list) -> None:
    for name in dict.fromkeys(result["op"] for result in results):
        times = [result["us"] for result in results if result["op"] == name]
        faster = [us["pytorch"] / us["farwarp"] for us in times]
        line = f"{name}, {len(times)} shapes: PyTorch's time / farwarp's {mean(faster):.3f}, lowest {min(faster):.3f}"
        if "ideal" in times[0]:
            slower = [us["farwarp"] / us["ideal"] for us in times]
            line += f"; farwarp's / ideal {mean(slower):.3f}, highest {max(slower):.3f}"
        print(line)


def run_rank(rank: int, arguments, shapes: list) -> None:
    import torch

    import farwarp

    torch.cuda.set_device(rank)
    distributed = torch.distributed
    distributed.init_process_group("nccl", rank=rank, world_size=arguments.ranks, device_id=torch.device("cuda", rank))
    world = farwarp.World(distributed.group.WORLD, target="cuda", heap_bytes=HEAP_BYTES)
    rate = link_rate(torch, rank) if arguments.ranks > 1 else 0
    device = f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, {arguments.ranks} ranks"
    if rank == 0:
        print(device + (f", link {rate / 1e3:.0f} GB/s" if rate else ""))
    flush = Flush(torch)
    wake = torch.zeros(WAKE_BYTES, dtype=torch.uint8, device="cuda")

    def before(sample):
        flush.write(sample)
        if arguments.ranks > 1:
            for _ in range(2):
                distributed.all_reduce(wake)
        flush.read()

    results = []
    for shape in shapes:
        torch.manual_seed(rank)
        if arguments.scaling:
            ways = ScaledWays(torch, farwarp, world, shape, arguments.scaling)
        else:
            ways = Ways(torch, farwarp, world, shape)
        try:
            found = difference(torch, ways)
        except (RuntimeError, ValueError) as error:
            if not arguments.scaling or not any(word in str(error) for word in ("NOT_SUPPORTED", "must have shape")):
                raise
            print(f"{shape}: PyTorch has no product with these scales")
            ways.operator.close()
            continue
        if not found <= MOST_DIFFERENCE:
            fail(f"{shape}: results differ by {found} of the largest", 1)
        us = measure(torch, ways, arguments, before, rate)
        results.append(
            {"op": shape[0], "m": shape[1], "n": shape[2], "k": shape[3], "ranks": arguments.ranks, "us": us}
        )
        ways.operator.close()
        if rank == 0:
            times = ", ".join(f"{name} {value:.1f}" for name, value in us.items())
            print(f"{shape[0]} {shape[1]} x {shape[2]} x {shape[3]}: {times}", flush=True)
            if arguments.json:
                data = {"device": device, "bytes_per_us": rate, "results": results}
                pathlib.Path(arguments.json).write_text(json.dumps(data, indent=1) + "\n")
    if rank == 0:
        print_means(results)
    world.close()
    distributed.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite", metavar="SUITE")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--ops", default="")
    parser.add_argument("--rows", default="")
    parser.add_argument("--scaling", choices=("blocks", "rows", "tensor"))
    parser.add_argument("--samples", type=int, default=30)
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args()
    for name in ("ranks", "samples"):
        if getattr(arguments, name) < 1:
            fail(f"--{name} is {getattr(arguments, name)}; allowed is 1 or more")
    shapes = read_shapes(arguments)
    try:
        import torch
    except ImportError as error:
        fail(f"PyTorch is missing: {error}", 3)
    if torch.cuda.device_count() < arguments.ranks:
        fail(f"{torch.cuda.device_count()} GPUs; needed are {arguments.ranks}", 3)
    spawn(torch, run_rank, arguments.ranks, arguments, shapes)


if __name__ == "__main__":
    main()
