#!/usr/bin/env python3
"""Times grouped products of a MoE layer's experts on an idle Hopper GPU: farwarp.GroupedGemm, and PyTorch's.

    grouped_pytorch.py [--scaling none,blocks] [--samples 30] [--json FILE]

Shapes are those of DeepSeek-V3's and Qwen3-30B-A3B's experts, of one of 8 or 2 ranks: many rows of each group, whose
offsets are given, and few, whose counts are given. PyTorch's way is torch.nn.functional.grouped_mm() in bf16; there is
none with scales of blocks. farwarp's are also timed with the activation, where the product is that of gate and up.

A time is the median of samples. A sample is one launch of a CUDA graph of one call between two events. Before it 256 MB
are written and read, so that the L2 holds nothing of the operands. Results of two groups are compared with fp32. Exit
status: 0; 1 if results differ; 2 for bad usage; 3 without PyTorch or a GPU.
"""

import argparse
import functools
import json
import pathlib

from pytorch_timing import Flush, capture, fail, median_us

SHAPES = (  # groups, rows of each, columns, k, whether it is the product of gate and up
    (8, 1024, 4096, 7168, True),
    (8, 1024, 7168, 2048, False),
    (32, 128, 4096, 7168, True),
    (32, 256, 7168, 2048, False),
    (64, 128, 1536, 2048, True),
    (64, 256, 2048, 768, False),
    (128, 4, 4096, 7168, True),
    (128, 4, 7168, 2048, False),
    (64, 8, 1536, 2048, True),
    (64, 8, 2048, 768, False),
)
FEW = 8  # rows of a group, of which counts are given
ROOM = 128  # that such a group has
HOLD_CYCLES = 400_000
MOST_DIFFERENCE = 2**-6  # of the largest result


class Experts:
    """A shape's operands, and the calls that are timed."""

    def __init__(self, torch, farwarp, world, shape: tuple, scaling: str):
        groups, rows, n, k, gated = shape
        counts = rows <= FEW
        self.rows, self.groups = rows, groups
        self.of_group = (lambda x, g: x[g, :rows]) if counts else (lambda x, g: x[g * rows : (g + 1) * rows])
        sizes = (groups, ROOM, k) if counts else (groups * rows, k)
        self.x = torch.randn(sizes, device="cuda", dtype=torch.bfloat16)
        self.w = torch.randn((groups, n, k), device="cuda", dtype=torch.bfloat16) * k**-0.5
        scales = ()
        self.x_scale = self.w_scale = None
        if scaling == "blocks":
            steps = -(-k // 128)
            self.x, self.w = self.x.to(torch.float8_e4m3fn), (self.w * 16).to(torch.float8_e4m3fn)
            self.x_scale = torch.rand((*sizes[:-1], steps), device="cuda") + 0.5
            self.w_scale = torch.rand((groups, -(-n // 128), steps), device="cuda") + 0.5
            scales = self.x_scale, self.w_scale
        offsets = torch.arange(groups + 1, dtype=torch.int32, device="cuda") * rows
        given = torch.full((groups,), rows, dtype=torch.int32, device="cuda") if counts else offsets
        options = {
            "group_rows": "counts" if counts else "offsets",
            "scaling": scaling,
            "expected_rows": rows,
        }
        room = ROOM if counts else groups * rows
        self.operators = {"farwarp": farwarp.GroupedGemm(world, groups, room, n, k, **options)}
        if gated:
            self.operators["activated"] = farwarp.GroupedGemm(
                world, groups, room, n // 2, k, activation="swiglu", **options
            )
        self.calls = {}
        for name, operator in self.operators.items():
            spec = operator.result_specs()[0]
            out = torch.empty(spec.shape, dtype=torch.bfloat16, device="cuda")
            self.calls[name] = functools.partial(operator, self.x, self.w, given, *scales, out=out)
        if scaling == "none" and not counts:
            theirs = torch.nn.functional.grouped_mm
            self.calls["pytorch"] = functools.partial(theirs, self.x, self.w.transpose(-2, -1), offs=offsets[1:])
        self.weight_bytes = groups * n * k * self.w.element_size()
        self.flops = 2 * groups * rows * n * k

    def difference(self, torch) -> float:
        """The largest of the first and the last group, divided by the largest result."""

        def numbers(values, scale, block_rows):
            if scale is None:
                return values.float()
            scale = scale.repeat_interleave(128, -1)[..., : values.shape[-1]]
            return values.float() * scale.repeat_interleave(block_rows, -2)[: values.shape[-2]]

        most = 0.0
        for name in self.operators:
            y = self.calls[name]()
            for group in (0, self.groups - 1):
                x_scale = None if self.x_scale is None else self.of_group(self.x_scale, group)
                x = numbers(self.of_group(self.x, group), x_scale, 1)
                w = numbers(self.w[group], None if self.w_scale is None else self.w_scale[group], 128)
                exact = x @ w.T
                if name == "activated":
                    gate, up = exact.chunk(2, -1)
                    exact = torch.nn.functional.silu(gate) * up
                found = self.of_group(y, group).float()
                most = max(most, ((found - exact).abs().max() / exact.abs().max()).item())
        return most


def run(torch, farwarp, arguments) -> None:
    torch.backends.cuda.matmul.allow_tf32 = False
    device = f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}"
    print(device)
    flush = Flush(torch)
    results = []

    def before(sample):
        flush.write(sample)
        flush.read()

    with farwarp.World(target="cuda") as world:
        for scaling in arguments.scaling.split(","):
            for shape in SHAPES:
                torch.manual_seed(1)
                experts = Experts(torch, farwarp, world, shape, scaling)
                difference = experts.difference(torch)
                if not difference <= MOST_DIFFERENCE:
                    fail(f"{scaling}, {shape}: results differ by {difference} of the largest", 1)
                us = {
                    name: median_us(torch, capture(torch, [call]), 1, arguments.samples, HOLD_CYCLES, before)
                    for name, call in experts.calls.items()
                }
                for operator in experts.operators.values():
                    operator.close()
                groups, rows, n, k, _ = shape
                results.append({"groups": groups, "rows": rows, "n": n, "k": k, "scaling": scaling, "us": us})
                ours = us["farwarp"]
                flops, weights = experts.flops / ours * 1e-6, experts.weight_bytes / ours * 1e-3
                times = ", ".join(f"{name} {value:.1f}" for name, value in us.items())
                rates = f"{flops:.0f} TFLOP/s, weights {weights:.0f} GB/s"
                print(f"{scaling}: {groups} x {rows} x {n} x {k}: {times} us; {rates}", flush=True)
                if arguments.json:
                    text = json.dumps({"device": device, "results": results}, indent=1)
                    pathlib.Path(arguments.json).write_text(text + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scaling", default="none,blocks")
    parser.add_argument("--samples", type=int, default=30)
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args()
    if arguments.samples < 1:
        fail(f"--samples is {arguments.samples}; allowed is 1 or more")
    for scaling in arguments.scaling.split(","):
        if scaling not in ("none", "blocks"):
            fail(f"--scaling has '{scaling}'; allowed are none, blocks")
    try:
        import torch
    except ImportError as error:
        fail(f"PyTorch is missing: {error}", 3)
    if torch.cuda.device_count() < 1:
        fail("no GPU; needed is a Hopper GPU", 3)
    import farwarp

    run(torch, farwarp, arguments)


if __name__ == "__main__":
    main()
