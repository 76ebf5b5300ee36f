#!/usr/bin/env python3
"""farwarp.deep_ep on GPUs: low-latency calls against plain torch, then their times.

    torchrun --nproc-per-node 2 tools/deep_ep_gpus.py [--calls N] [--samples N]
    python tools/deep_ep_gpus.py --emulated          the checks alone, on two emulated ranks

The shapes are the benchmarks of suites/amd2025.json. Times are the slowest rank's, in us. cold: median of samples that begin with a
flushed L2 and the ranks aligned by an all-reduce; dispatch and combine by events. train: a CUDA graph of TRAIN pairs of dispatch and
combine, back to back, divided by TRAIN. host: what the host needs to enqueue a pair.
"""

import argparse
import json
import os
import pathlib
import statistics
import time

import farwarp
import torch
from farwarp import deep_ep

SUITE = pathlib.Path(__file__).resolve().parents[1] / "suites/amd2025.json"
AIMS = (27, 27, 33, 46, 63)
TRAIN = 20
SMALL = ({"num_experts": 8, "experts_per_token": 2, "hidden_dim": 384, "max_num_tokens": 16},)


def shapes():
    return json.loads(SUITE.read_text())["ops"]["moe-a2a"]["benchmarks"]


class Layer:
    """Inputs of every rank, generated alike on all ranks, and what each rank must get."""

    def __init__(self, shape, rank, size, device):
        self.rank, self.size, self.device = rank, size, device
        self.experts, self.k, self.hidden, self.most = (shape[n] for n in ("num_experts", "experts_per_token", "hidden_dim", "max_num_tokens"))
        self.local = self.experts // size

    def inputs(self, rank, call, full=False, index_type=torch.int64):
        random = torch.Generator().manual_seed(1000 * call + rank)
        tokens = self.most if full else int(torch.randint(0, self.most + 1, (1,), generator=random))
        x = torch.randn(tokens, self.hidden, generator=random).bfloat16()
        indices = torch.rand(tokens, self.experts, generator=random).argsort(1)[:, : self.k].to(index_type)
        if not full:
            indices[torch.rand(tokens, self.k, generator=random) < 0.1] = -1
        weights = torch.rand(tokens, self.k, generator=random)
        return x.to(self.device), indices.contiguous().to(self.device), weights.to(self.device)

    def factor(self, expert):
        return expert % 3 + 1

    def check_received(self, recv_x, count, everyone):
        """Rows of an expert come in the order of source rank and token; bf16 to the bit, fp8 within half a step."""
        for local in range(self.local):
            rows = torch.cat([x[(indices == self.rank * self.local + local).any(1)] for x, indices, _ in everyone])
            if int(count[local]) != len(rows):
                raise AssertionError(f"expert {local}: {int(count[local])} rows, expected {len(rows)}")
            if isinstance(recv_x, tuple):
                numbers, scales = (tensor[local, : len(rows)].float() for tensor in recv_x)
                got = numbers * scales.repeat_interleave(128, 1)[:, : self.hidden]
                torch.testing.assert_close(got, rows.float(), rtol=2**-4, atol=2**-9)
            elif not torch.equal(recv_x[local, : len(rows)], rows):
                raise AssertionError(f"rows of expert {local} differ")

    def outputs(self, recv_x):
        """The experts' outputs, in bf16. Rows that nobody has sent are whatever memory has."""
        if isinstance(recv_x, tuple):
            numbers, scales = recv_x
            recv_x = (numbers.float() * scales.repeat_interleave(128, 2)[:, :, : self.hidden]).bfloat16()
        factors = torch.tensor([self.factor(self.rank * self.local + local) for local in range(self.local)], device=self.device)
        return (recv_x * factors[:, None, None]).bfloat16().contiguous()

    def check_combined(self, out, x, indices, weights, fp8):
        factors = torch.where(indices >= 0, weights * (indices % 3 + 1), 0.0).sum(1)
        rounding = 2**-4 + 2**-6 if fp8 else 2**-6
        torch.testing.assert_close(out.float(), x.float() * factors[:, None], rtol=rounding, atol=2**-6)


def check(buffer, layer, calls):
    """Whole calls, calls on the communication stream, hooks; int64 and int32; -1 entries, ranks without tokens."""
    for call in range(calls):
        fp8, index_type = call % 2 == 1, (torch.int64, torch.int32)[call // 2 % 2]
        way = ("whole", "async", "hooks")[call % 3]
        everyone = [layer.inputs(rank, call, index_type=index_type) for rank in range(layer.size)]
        x, indices, weights = everyone[layer.rank]
        recv_x, count, handle, event, hook = buffer.low_latency_dispatch(
            x, indices, layer.most, layer.experts, use_fp8=fp8, async_finish=way == "async", return_recv_hook=way == "hooks"
        )
        hook() if way == "hooks" else way == "async" and event.current_stream_wait()
        layer.check_received(recv_x, count, everyone)
        out, event, hook = buffer.low_latency_combine(
            layer.outputs(recv_x), indices, weights, handle, async_finish=way == "async", return_recv_hook=way == "hooks"
        )
        hook() if way == "hooks" else way == "async" and event.current_stream_wait()
        layer.check_combined(out, x, indices, weights, fp8)


def check_in_flight(buffer, layer, calls):
    """Two calls at a time, the second dispatched before the first is combined."""
    for pair in range(calls):
        under_way = []
        for call in (2 * pair, 2 * pair + 1):
            everyone = [layer.inputs(rank, call) for rank in range(layer.size)]
            x, indices, weights = everyone[layer.rank]
            under_way.append((everyone, buffer.low_latency_dispatch(x, indices, layer.most, layer.experts, use_fp8=False, return_recv_hook=True)))
        for everyone, (recv_x, count, handle, _, hook) in under_way:
            hook()
            layer.check_received(recv_x, count, everyone)
            x, indices, weights = everyone[layer.rank]
            out, _, _ = buffer.low_latency_combine(layer.outputs(recv_x), indices, weights, handle)
            layer.check_combined(out, x, indices, weights, False)


def check_graph(buffer, layer, replays):
    """A captured layer, replayed with other inputs in the same tensors."""
    for fp8 in (False, True):
        x, indices, weights = layer.inputs(layer.rank, 0, full=True)

        def run():
            recv_x, count, handle, _, hook = buffer.low_latency_dispatch(
                x, indices, layer.most, layer.experts, use_fp8=fp8, return_recv_hook=True
            )
            hook()
            return recv_x, count, buffer.low_latency_combine(layer.outputs(recv_x), indices, weights, handle)[0]

        run()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            recv_x, count, out = run()
        for call in range(1, replays + 1):
            everyone = [layer.inputs(rank, call, full=True) for rank in range(layer.size)]
            for tensor, values in zip((x, indices, weights), everyone[layer.rank]):
                tensor.copy_(values)
            graph.replay()
            layer.check_received(recv_x, count, everyone)
            layer.check_combined(out, x, indices, weights, fp8)


# ---- times


def slowest(values, group):
    """The medians over samples of the slowest rank's times. values: of each sample, a list."""
    everyone = [None] * torch.distributed.get_world_size(group)
    torch.distributed.all_gather_object(everyone, values, group=group)
    worst = [[max(rank[sample][i] for rank in everyone) for i in range(len(values[0]))] for sample in range(len(values))]
    return [statistics.median(column) for column in zip(*worst)]


def cold(buffer, layer, fp8, samples, group):
    """dispatch, combine, both."""
    x, indices, weights = layer.inputs(layer.rank, 0, full=True)
    y = torch.zeros(layer.local, layer.most * layer.size, layer.hidden, dtype=torch.bfloat16, device=layer.device)
    flush = torch.empty(256 << 20, dtype=torch.uint8, device=layer.device)
    align, one = farwarp.AllReduce(buffer._world, 64, dtype="float32"), torch.ones(64, device=layer.device)
    found = []
    for _ in range(samples + 3):
        events = [torch.cuda.Event(enable_timing=True) for _ in range(3)]
        torch.distributed.barrier(group)
        flush.zero_()
        torch.cuda._sleep(1_000_000)  # the host enqueues everything meanwhile
        align(one)
        events[0].record()
        _, _, handle, _, _ = buffer.low_latency_dispatch(x, indices, layer.most, layer.experts, use_fp8=fp8)
        events[1].record()
        buffer.low_latency_combine(y, indices, weights, handle)
        events[2].record()
        torch.cuda.synchronize()
        first, second = (1000 * a.elapsed_time(b) for a, b in zip(events, events[1:]))
        found.append([first, second, first + second])
    align.close()
    return slowest(found[3:], group)


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
        buffer = deep_ep.Buffer(group, 0, 2 * needed, low_latency_mode=True, num_qps_per_rank=layer.local, explicitly_destroy=True)
        check(buffer, layer, arguments.calls)
        check_in_flight(buffer, layer, arguments.calls // 4)
        check_graph(buffer, layer, arguments.calls // 4)
        times = []
        for fp8 in (False, True):
            times += cold(buffer, layer, fp8, arguments.samples, group) + train(buffer, layer, fp8, arguments.samples, group)
        rows.append((layer, aim, times))
        buffer.destroy()
    if rank == 0:
        print(f"{size}x {torch.cuda.get_device_name()}, torch {torch.__version__}; all results right; us, slowest rank, {arguments.samples} samples")
        columns = f"{'dispatch':>9}{'combine':>8}{'both':>7}{'train':>7}{'host':>6}"
        print(f"{'':<35} | {'bf16':<{len(columns)}} | fp8")
        print(f"{'experts, top-k, hidden, tokens':<31}{'aim':>4} | {columns} | {columns}")
        for layer, aim, times in rows:
            name = f"{layer.experts}, {layer.k}, {layer.hidden}, {layer.most}"
            cells = ["".join(f"{value:>{width}.1f}" for value, width in zip(half, (9, 8, 7, 7, 6))) for half in (times[:5], times[5:])]
            print(f"{name:<31}{aim:>4} | {cells[0]} | {cells[1]}")
    torch.distributed.destroy_process_group()


def emulated(arguments):
    def body(world):
        for shape in SMALL:
            layer = Layer(shape, world.rank, world.size, torch.device("cpu"))
            buffer = deep_ep.Buffer(world, low_latency_mode=True)
            check(buffer, layer, arguments.calls)
            check_in_flight(buffer, layer, arguments.calls // 4)
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
