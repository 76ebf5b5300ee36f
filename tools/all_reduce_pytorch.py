#!/usr/bin/env python3
"""Times all-reduces of PyTorch, on idle GPUs, for the sizes of `farwarp bench --suite all_reduce`.

    all_reduce_pytorch.py SIZES [--ranks 2] [--dtype bf16] [--json FILE] [--samples 40]

SIZES are bytes of the tensor, separated by commas: 8K,32K,1M. Each rank is a process with a GPU of its own. Timed are
NCCL (dist.all_reduce) and two operators of symmetric memory: torch.ops.symm_mem.one_shot_all_reduce, and
two_shot_all_reduce_, which works in place. NVLink multicast is switched off before PyTorch is loaded, and the script
ends if PyTorch sees it all the same; so there are no multimem operators here.

A time is the median of samples, of the slowest rank. A sample is one launch of a CUDA graph of one call between two
events. Before it 256 MB are written, two all-reduces of 64 MB wake the links, and 256 MB are read, so that the L2 holds
nothing of the tensor and nothing dirty; then the ranks meet in a small all-reduce. A delay holds the stream while the
host enqueues a sample. Each way's result is compared with the sum first. Exit status: 0; 1 if a result is wrong; 2 for
bad usage; 3 without PyTorch, enough GPUs or a way to switch multicast off.
"""

import argparse
import json
import os
import pathlib

from pytorch_timing import Flush, capture, fail, median_us, spawn

UNITS = {"K": 1 << 10, "M": 1 << 20}
LARGEST = 1 << 30
WAKE_BYTES = 64 << 20
HOLD_CYCLES = 4_000_000  # about two milliseconds
DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
ELEMENT_BYTES = {"bf16": 2, "fp16": 2, "fp32": 4}


def read_sizes(text: str) -> list:
    sizes = []
    for part in text.split(","):
        number, unit = (part[:-1], UNITS[part[-1]]) if part[-1:] in UNITS else (part, 1)
        size = int(number) * unit if number.isascii() and number.isdigit() and len(number) < 12 else 0
        if size < 16 or size > LARGEST or size % 16 != 0:
            fail(f"size '{part[:40]}'; allowed is a multiple of 16 from 16 to {LARGEST}, with K or M for 2^10 or 2^20")
        sizes.append(size)
    return sizes


def make_ways(torch, symm_mem, source):
    """Name -> (tensor that a call reads, a call that returns its result)."""
    group = torch.distributed.group.WORLD
    plain = source.clone()
    shared = symm_mem.empty(source.numel(), dtype=source.dtype, device=source.device)
    handle = symm_mem.rendezvous(shared, group)
    if handle.multicast_ptr != 0:
        fail("PyTorch made a multicast object; allowed is none", 3)

    def nccl():
        torch.distributed.all_reduce(plain)
        return plain

    return {
        "nccl": (plain, nccl),
        "one_shot": (shared, lambda: torch.ops.symm_mem.one_shot_all_reduce(shared, "sum", group.group_name)),
        "two_shot": (shared, lambda: torch.ops.symm_mem.two_shot_all_reduce_(shared, "sum", group.group_name)),
    }


def check(torch, name: str, size: int, result, source, ranks: int) -> None:
    terms = [torch.empty_like(source) for _ in range(ranks)]
    torch.distributed.all_gather(terms, source)
    exact = sum(term.double() for term in terms)
    allowed = torch.finfo(source.dtype).eps * ranks * sum(term.double().abs() for term in terms)
    wrong = ((result.double() - exact).abs() > allowed).sum().item()
    if wrong:
        fail(f"{name}, {size} bytes: {wrong} elements are wrong", 1)


def time_way(torch, tensor, call, source, arguments, flush, wake) -> float:
    def before(sample):
        tensor.copy_(source)
        flush.write(sample)
        for _ in range(2):
            torch.distributed.all_reduce(wake)
        flush.read()

    return median_us(torch, capture(torch, [call]), arguments.ranks, arguments.samples, HOLD_CYCLES, before)


def run_rank(rank: int, arguments, sizes: list) -> None:
    import torch
    import torch.distributed._symmetric_memory as symm_mem
    from torch._C._autograd import DeviceType

    torch.cuda.set_device(rank)
    torch.distributed.init_process_group(
        "nccl", rank=rank, world_size=arguments.ranks, device_id=torch.device("cuda", rank)
    )
    if torch._C._distributed_c10d._SymmetricMemory.has_multicast_support(DeviceType.CUDA, rank):
        fail("PyTorch would use NVLink multicast in spite of TORCH_SYMM_MEM_DISABLE_MULTICAST", 3)
    nccl = ".".join(map(str, torch.cuda.nccl.version()))
    device = f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, NCCL {nccl}"
    if rank == 0:
        print(f"{device}, {arguments.ranks} ranks, {arguments.dtype}")
    flush = Flush(torch)
    wake = torch.zeros(WAKE_BYTES, dtype=torch.uint8, device="cuda")
    torch.manual_seed(rank)
    results = []
    for size in sizes:
        source = (torch.rand(size // ELEMENT_BYTES[arguments.dtype], device="cuda") * 2 - 1).to(
            getattr(torch, DTYPES[arguments.dtype])
        )
        result = {"bytes": size, "ranks": arguments.ranks, "dtype": arguments.dtype, "us": {}, "refused": {}}
        for name, (tensor, call) in make_ways(torch, symm_mem, source).items():
            try:
                tensor.copy_(source)
                torch.distributed.barrier()
                reduced = call().clone()
            except RuntimeError as error:  # the same on all ranks: the operator does not take the size
                result["refused"][name] = (str(error).strip().splitlines() or ["?"])[0][:200]
                continue
            torch.cuda.synchronize()
            check(torch, name, size, reduced, source, arguments.ranks)
            result["us"][name] = time_way(torch, tensor, call, source, arguments, flush, wake)
        results.append(result)
        if rank == 0:
            print(
                f"{size} bytes: {', '.join(f'{name} {us:.1f}' for name, us in result['us'].items())} us"
                f"{'; refused: ' + str(result['refused']) if result['refused'] else ''}",
                flush=True,
            )
            if arguments.json:
                pathlib.Path(arguments.json).write_text(
                    json.dumps({"device": device, "results": results}, indent=1) + "\n"
                )
    torch.distributed.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sizes", metavar="SIZES")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--dtype", choices=DTYPES, default="bf16")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--samples", type=int, default=40)
    arguments = parser.parse_args()
    sizes = read_sizes(arguments.sizes)
    for name, least in (("ranks", 2), ("samples", 1)):
        if getattr(arguments, name) < least:
            fail(f"--{name} is {getattr(arguments, name)}; allowed is {least} or more")
    os.environ |= {
        "NCCL_NVLS_ENABLE": "0",
        "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
    }  # before PyTorch is loaded, here and in the ranks
    try:
        import torch
    except ImportError as error:
        fail(f"PyTorch is missing: {error}", 3)
    if torch.cuda.device_count() < arguments.ranks:
        fail(f"{torch.cuda.device_count()} GPUs; needed are {arguments.ranks}", 3)
    spawn(torch, run_rank, arguments.ranks, arguments, sizes)


if __name__ == "__main__":
    main()
