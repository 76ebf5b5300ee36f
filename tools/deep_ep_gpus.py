#!/usr/bin/env python3
"""farwarp.deep_ep on GPUs: its calls against plain torch, then their times.

    torchrun --nproc-per-node 2 tools/deep_ep_gpus.py [--calls N] [--samples N]
    python tools/deep_ep_gpus.py --emulated          the checks alone, on two emulated ranks

The shapes are the benchmarks of suites/amd2025.json in low-latency mode, and NORMAL in normal mode. Times are the
slowest rank's, in us: medians of samples that begin with a flushed L2, traffic on the links and ranks that meet
(device_timing.py); dispatch and combine by events. train: a CUDA graph of TRAIN pairs of dispatch and combine, back to
back, divided by TRAIN. host: what the host needs to enqueue a pair. Normal mode is timed with num_worst_tokens, with 20
multiprocessors, DeepEP's default, and with all; fp8 with the copies into rows of bytes and out of them.
"""

import argparse
import json
import os
import pathlib
import time

import torch

import device_timing
import farwarp
from deep_ep_checks import (
    Layer,
    check,
    check_graph,
    check_in_flight,
    check_normal,
    check_normal_graph,
    quantised,
)
from farwarp import deep_ep

SUITE = pathlib.Path(__file__).resolve().parents[1] / "suites/amd2025.json"
AIMS = (27, 27, 33, 46, 63)
TRAIN = 20
NORMAL = {"num_experts": 256, "experts_per_token": 8, "hidden_dim": 7168, "max_num_tokens": 4096}
NORMAL_AIM = 400  # dispatch and combine, bf16
NORMAL_CHECKED = {**NORMAL, "max_num_tokens": 700}
SMALL = ({"num_experts": 8, "experts_per_token": 2, "hidden_dim": 384, "max_num_tokens": 16},)


def shapes():
    return json.loads(SUITE.read_text())["ops"]["moe-a2a"]["benchmarks"]


def slowest(mine, group):
    """mine: this rank's samples. See device_timing.slowest()."""
    everyone = [None] * torch.distributed.get_world_size(group)
    torch.distributed.all_gather_object(everyone, mine, group=group)
    return device_timing.slowest(everyone)


def cold(buffer, layer, fp8, samples, group):
    """dispatch, combine, both."""
    x, indices, weights = layer.inputs(layer.rank, 0, full=True)
    y = torch.zeros(layer.local, layer.most * layer.size, layer.hidden, dtype=torch.bfloat16, device=layer.device)

    def dispatch():
        return buffer.low_latency_dispatch(x, indices, layer.most, layer.experts, use_fp8=fp8)[2]

    return cold_pairs(
        buffer, dispatch, lambda handle: buffer.low_latency_combine(y, indices, weights, handle), samples, group
    )


def cold_normal(buffer, layer, fp8, samples, group):
    """The same of normal mode."""
    x, indices, weights = layer.inputs(layer.rank, 0, full=True)
    _, _, per_expert, _, _ = buffer.get_dispatch_layout(indices, layer.experts)
    worst = layer.most * layer.size
    y = torch.zeros(worst, layer.hidden, dtype=torch.bfloat16, device=layer.device)
    sent = quantised(x) if fp8 else x

    def dispatch():
        routing = {"num_tokens_per_expert": per_expert, "topk_idx": indices, "topk_weights": weights}
        return buffer.dispatch(sent, num_worst_tokens=worst, **routing)[4]

    return cold_pairs(buffer, dispatch, lambda handle: buffer.combine(y, handle), samples, group)


def cold_pairs(buffer, dispatch, combine, samples, group):
    handles = []
    calls = (lambda: handles.append(dispatch()), lambda: combine(handles.pop()))
    stream = device_timing.HeldStream(buffer._world, lambda: torch.distributed.barrier(group))
    found = [stream.sample(number, calls) for number in range(samples + 3)]
    stream.close()
    return slowest([times and [*times, sum(times)] for times in found[3:]], group)


def train(buffer, layer, fp8, samples, group):
    """A pair of dispatch and combine, back to back; and what the host needs for a pair that is not in a graph."""
    x, indices, weights = layer.inputs(layer.rank, 0, full=True)
    y = torch.zeros(layer.local, layer.most * layer.size, layer.hidden, dtype=torch.bfloat16, device=layer.device)

    def pair():
        _, _, handle, _, _ = buffer.low_latency_dispatch(x, indices, layer.most, layer.experts, use_fp8=fp8)
        buffer.low_latency_combine(y, indices, weights, handle)

    for _ in range(5):
        pair()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(TRAIN):
            pair()
    found = []
    for _ in range(samples):
        torch.distributed.barrier(group)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        found.append([1000 * begin.elapsed_time(end) / TRAIN])
    host = []
    for _ in range(samples):
        torch.distributed.barrier(group)
        torch.cuda._sleep(20_000_000)  # longer than the host takes, so that it never waits for the device
        started = time.perf_counter()
        for _ in range(TRAIN):
            pair()
        host.append([1e6 * (time.perf_counter() - started) / TRAIN])
        torch.cuda.synchronize()
    return slowest(found, group) + slowest(host, group)


def normal_lines(arguments, rank, size, group, device):
    """Checks normal mode; a line for each number of multiprocessors."""
    deep_ep.Config.tokens = NORMAL["max_num_tokens"]
    hidden_bytes, lines = 2 * NORMAL["hidden_dim"], []
    everything = torch.cuda.get_device_properties(device).multi_processor_count // 2 * 2
    for num_sms in (20, everything):
        deep_ep.Buffer.set_num_sms(num_sms)
        room = deep_ep.Buffer.get_dispatch_config(size).get_nvl_buffer_size_hint(hidden_bytes, size)
        # bf16 and fp8, int64 and int32, in flight twice each
        buffer = deep_ep.Buffer(group, 4 * room, 0, explicitly_destroy=True)
        buffer.num_nvl_bytes = room
        checked = Layer(NORMAL_CHECKED, rank, size, device)
        check_normal(buffer, checked, arguments.calls // 2)
        check_normal_graph(buffer, checked, 8)
        layer = Layer(NORMAL, rank, size, device)
        times = [cold_normal(buffer, layer, fp8, arguments.samples, group) for fp8 in (False, True)]
        cells = " | ".join(f"{first:9.1f}{second:8.1f}{both:7.1f}" for first, second, both in times)
        lines.append(f"{f'normal, {layer.most} tokens, {num_sms} SMs':<31}{NORMAL_AIM:>4} | {cells}")
        buffer.destroy()
    return lines


def on_gpus(arguments):
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.cuda.set_device(rank)
    torch.distributed.init_process_group("gloo")
    group, device = torch.distributed.group.WORLD, torch.device("cuda", rank)
    rows = []
    for shape, aim in zip(shapes(), AIMS):
        layer = Layer(shape, rank, size, device)
        needed = deep_ep.Buffer.get_low_latency_rdma_size_hint(layer.most, layer.hidden, size, layer.experts)
        # int32 and int64, each in bf16 and fp8
        buffer = deep_ep.Buffer(
            group, 0, 2 * needed, low_latency_mode=True, num_qps_per_rank=layer.local, explicitly_destroy=True
        )
        check(buffer, layer, arguments.calls)
        check_in_flight(buffer, layer, arguments.calls // 4)
        check_graph(buffer, layer, arguments.calls // 4)
        times = []
        for fp8 in (False, True):
            times += cold(buffer, layer, fp8, arguments.samples, group) + train(
                buffer, layer, fp8, arguments.samples, group
            )
        rows.append((layer, aim, times))
        buffer.destroy()
    lines = normal_lines(arguments, rank, size, group, device)
    if rank == 0:
        print(
            f"{size}x {torch.cuda.get_device_name()}, torch {torch.__version__}; all results right; "
            f"us, slowest rank, {arguments.samples} samples"
        )
        columns = f"{'dispatch':>9}{'combine':>8}{'both':>7}{'train':>7}{'host':>6}"
        print(f"{'':<35} | {'bf16':<{len(columns)}} | fp8")
        print(f"{'experts, top-k, hidden, tokens':<31}{'aim':>4} | {columns} | {columns}")
        for layer, aim, times in rows:
            name = f"{layer.experts}, {layer.k}, {layer.hidden}, {layer.most}"
            cells = [
                "".join(f"{value:>{width}.1f}" for value, width in zip(half, (9, 8, 7, 7, 6)))
                for half in (times[:5], times[5:])
            ]
            print(f"{name:<31}{aim:>4} | {cells[0]} | {cells[1]}")
        print(f"{'':<35} | {'bf16: dispatch, combine, both':<29}| fp8")
        print("\n".join(lines))
    torch.distributed.destroy_process_group()


def emulated(arguments):
    def body(world):
        for shape in SMALL:
            layer = Layer(shape, world.rank, world.size, torch.device("cpu"))
            buffer = deep_ep.Buffer(world, 16 << 20, low_latency_mode=True)
            check(buffer, layer, arguments.calls)
            check_in_flight(buffer, layer, arguments.calls // 4)
            check_normal(buffer, layer, arguments.calls)
        return True

    torch.set_num_threads(1)
    if all(farwarp.run(body, ranks=2)):
        print("all results right")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=48, help="of each check and shape")
    parser.add_argument("--samples", type=int, default=30)
    parser.add_argument("--emulated", action="store_true")
    arguments = parser.parse_args()
    emulated(arguments) if arguments.emulated else on_gpus(arguments)


if __name__ == "__main__":
    main()
