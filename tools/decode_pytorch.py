#!/usr/bin/env python3
"""Times decode attention assembled from PyTorch, on idle GPUs, for the shapes of `farwarp bench flash-decode`.

    decode_pytorch.py SHAPES [--ranks 1] [--json FILE] [--samples 30]

SHAPES is a JSON list: '[{"batch": 1, "query_heads": 96, "kv_heads": 12, "head_dim": 128, "max_keys": 4096}]'. Keys and
values are contiguous, bf16, max_keys of each sequence on each rank. With --ranks, each rank is a process with a GPU of
its own and has max_keys keys of every sequence.

A call is: attention with LSE of the rank's own keys (cuDNN, and PyTorch's flash backend, each timed), NCCL's all-gather
of output and LSE in one message, and a weighted sum. Two further times are of the attention alone. A time is the median
of samples, of the slowest rank. Before each sample 256 MB are written, so that the L2 holds nothing of the inputs. Two
events enclose one launch of a CUDA graph of one call. A delay holds the stream while the host enqueues a sample. Exit
status: 0; 2 for bad usage; 3 without PyTorch or enough GPUs.
"""

import argparse
import json
import pathlib

from pytorch_timing import Flush, capture, fail, median_us, spawn

DEFAULTS = {"batch": 1, "query_heads": 32, "kv_heads": 8, "head_dim": 128, "max_keys": 1024}
HOLD_CYCLES = 1_000_000  # about half a millisecond


def read_shapes(text: str) -> list:
    try:
        data = json.loads(text if text.lstrip().startswith("[") else pathlib.Path(text).read_text())
    except (OSError, ValueError) as error:
        fail(f"{text[:80]}: {error}")
    if not isinstance(data, list) or not data or not all(isinstance(entry, dict) for entry in data):
        fail(f"{text[:80]}: allowed is a list of shapes")
    for entry in data:
        for key, value in entry.items():
            if key not in DEFAULTS:
                fail(f"'{key}' is {json.dumps(value)}; allowed are {', '.join(DEFAULTS)}")
            if not isinstance(value, int) or value < 1:
                fail(f"'{key}' is {json.dumps(value)}; allowed is 1 or more")
    shapes = [DEFAULTS | entry for entry in data]
    for shape in shapes:
        if shape["query_heads"] % shape["kv_heads"] != 0:
            fail(f"'query_heads' is {shape['query_heads']}; allowed is a multiple of kv_heads ({shape['kv_heads']})")
    return shapes


def describe(shape: dict) -> str:
    return (
        f"{shape['batch']} x {shape['max_keys']} keys of a rank, {shape['query_heads']}/{shape['kv_heads']} heads of "
        f"{shape['head_dim']}"
    )


def attention(torch, backend: str, q, k, v):
    """Output [batch, query_heads, 1, head_dim] and LSE [batch, query_heads, 1].

    Both backends take fewer KV heads than query heads.
    """
    if backend == "flash":
        out, lse = torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, 0.0, False, return_debug_mask=False)[:2]
    else:
        out, lse = torch.ops.aten._scaled_dot_product_cudnn_attention(q, k, v, None, True, 0.0, False, False)[:2]
    return out, lse.reshape(q.shape[0], q.shape[1], 1)


def make_call(torch, shape: dict, backend: str, ranks: int, inputs, whole: bool):
    q, k, v = inputs
    rows, dim = shape["batch"] * shape["query_heads"], shape["head_dim"]
    part = torch.empty(rows, dim * 2 + 4, dtype=torch.uint8, device="cuda")
    gathered = torch.empty(ranks, rows, dim * 2 + 4, dtype=torch.uint8, device="cuda")

    def call():
        out, lse = attention(torch, backend, q, k, v)
        if not whole:
            return out
        part[:, : dim * 2].view(torch.bfloat16).copy_(out.reshape(rows, dim))
        part[:, dim * 2 :].view(torch.float32).copy_(lse.reshape(rows, 1))
        torch.distributed.all_gather_into_tensor(gathered, part)
        weights = torch.softmax(gathered[:, :, dim * 2 :].view(torch.float32), dim=0)
        return (gathered[:, :, : dim * 2].view(torch.bfloat16) * weights).sum(0).to(torch.bfloat16)

    return call


def time_call(torch, call, arguments, flush) -> float:
    def before(sample):
        flush.write(sample)
        flush.read()

    return median_us(torch, capture(torch, [call]), arguments.ranks, arguments.samples, HOLD_CYCLES, before)


def run_rank(rank: int, arguments, shapes: list) -> None:
    import torch

    torch.cuda.set_device(rank)
    if arguments.ranks > 1:
        torch.distributed.init_process_group(
            "nccl", rank=rank, world_size=arguments.ranks, device_id=torch.device("cuda", rank)
        )
    device = f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}"
    if rank == 0:
        print(device)
    flush = Flush(torch)
    results = []
    for shape in shapes:

        def tensor(heads, keys, batch=shape["batch"], head_dim=shape["head_dim"]):
            return torch.randn(batch, keys, heads, head_dim, dtype=torch.bfloat16, device="cuda").transpose(1, 2)

        inputs = (
            tensor(shape["query_heads"], 1),
            tensor(shape["kv_heads"], shape["max_keys"]),
            tensor(shape["kv_heads"], shape["max_keys"]),
        )
        result = {"shape": shape, "ranks": arguments.ranks, "local_us": {}, "us": {}, "refused": {}}
        for backend in ("flash", "cudnn"):
            try:
                result["local_us"][backend] = time_call(
                    torch, make_call(torch, shape, backend, arguments.ranks, inputs, False), arguments, flush
                )
                if arguments.ranks > 1:
                    result["us"][backend] = time_call(
                        torch, make_call(torch, shape, backend, arguments.ranks, inputs, True), arguments, flush
                    )
            except RuntimeError as error:  # the same on all ranks: the backend does not take the shape
                result["refused"][backend] = str(error).strip().splitlines()[0][:200]
        results.append(result)
        if rank == 0:
            print(
                f"{describe(shape)}: attention alone {best(result['local_us'])}, all {best(result['us'])}"
                f"{'; refused: ' + str(result['refused']) if result['refused'] else ''}",
                flush=True,
            )
            if arguments.json:
                pathlib.Path(arguments.json).write_text(
                    json.dumps({"device": device, "results": results}, indent=1) + "\n"
                )
    if arguments.ranks > 1:
        torch.distributed.destroy_process_group()


def best(times: dict) -> str:
    if not times:
        return "-"
    name = min(times, key=times.get)
    return (
        f"{times[name]:.1f} us ({name}{''.join(f'; {other} {us:.1f}' for other, us in times.items() if other != name)})"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shapes", metavar="SHAPES")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--samples", type=int, default=30)
    arguments = parser.parse_args()
    shapes = read_shapes(arguments.shapes)
    for name in ("ranks", "samples"):
        if getattr(arguments, name) < 1:
            fail(f"--{name} is {getattr(arguments, name)}; allowed is 1 or more")
    try:
        import torch
    except ImportError as error:
        fail(f"PyTorch is missing: {error}", 3)
    if torch.cuda.device_count() < arguments.ranks:
        fail(f"{torch.cuda.device_count()} GPUs; needed are {arguments.ranks}", 3)
    if arguments.ranks == 1:
        run_rank(0, arguments, shapes)
        return
    spawn(torch, run_rank, arguments.ranks, arguments, shapes)


if __name__ == "__main__":
    main()
