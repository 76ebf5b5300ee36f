#!/usr/bin/env python3
"""farwarp.deep_ep on GPUs: its calls against plain torch, then their times.

    torchrun --nproc-per-node 2 tools/deep_ep_gpus.py [--calls N] [--samples N]
    python tools/deep_ep_gpus.py --emulated          the checks alone, on two emulated ranks

The shapes are the benchmarks of suites/amd2025.json in low-latency mode, and NORMAL in normal mode. Times are the slowest rank's, in us: medians of
samples that begin with a flushed L2, traffic on the links and ranks that meet (device_timing.py); dispatch and combine by events. train: a CUDA graph of TRAIN pairs of
dispatch and combine, back to back, divided by TRAIN. host: what the host needs to enqueue a pair. Normal mode is timed with num_worst_tokens, with 20
multiprocessors, DeepEP's default, and with all; fp8 with the copies into rows of bytes and out of them.
"""

import argparse
import json
import os
import pathlib
import time

import device_timing
import farwarp
import torch
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


class Layer:
    """Inputs of every rank, generated alike on all ranks, and what each rank must get."""

    def __init__(self, shape, rank, size, device):
        self.rank, self.size, self.device = rank, size, device
        self.experts, self.k, self.hidden, self.most = (shape[n] for n in ("num_experts", "experts_per_token", "hidden_dim", "max_num_tokens"))
        self.local = self.experts // size
        # Of the rank's experts; on the device before a graph is captured.
        self.factors = torch.tensor([self.factor(rank * self.local + local) for local in range(self.local)], device=device)

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
        return (recv_x * self.factors[:, None, None]).bfloat16().contiguous()

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


def quantised(x):
    """e4m3 numbers and a scale for each 128 of them, as a program makes them for normal mode."""
    groups = x.float().view(len(x), x.shape[1] // 128, 128)
    scales = groups.abs().amax(2).clamp(min=1e-4) / 448
    return (groups / scales[:, :, None]).view(x.shape).to(torch.float8_e4m3fn), scales


def check_normal(buffer, layer, calls):
    """Counted and worst-case calls, on both streams, bf16 and fp8, with handles that are used again."""
    size = layer.size
    for call in range(calls):
        fp8, worst = call % 2 == 1, layer.most * size if call % 3 == 2 else 0
        everyone = [layer.inputs(rank, call, index_type=(torch.int64, torch.int32)[call // 2 % 2]) for rank in range(size)]
        x, indices, weights = everyone[layer.rank]
        per_rank, _, per_expert, in_rank, _ = buffer.get_dispatch_layout(indices, layer.experts)
        wanted = torch.stack([(indices // layer.local == rank).any(1) for rank in range(size)], 1)
        if not torch.equal(in_rank, wanted) or per_rank.tolist() != wanted.sum(0).tolist():
            raise AssertionError("get_dispatch_layout() is wrong")
        sent = quantised(x) if fp8 else x
        routing = {"num_tokens_per_expert": per_expert, "topk_idx": indices, "topk_weights": weights}
        options = {"num_worst_tokens": worst, "async_finish": call % 4 == 3}
        recv_x, recv_idx, recv_weights, counts, handle, event = buffer.dispatch(sent, **routing, **options)
        if options["async_finish"]:
            event.current_stream_wait()
        if call % 5 == 4:  # the same again, by the handle
            recv_x, *_, event = buffer.dispatch(sent, handle=handle, **options)
            if options["async_finish"]:
                event.current_stream_wait()
        here = [indices // layer.local == layer.rank for _, indices, _ in everyone]
        kept = [mask.any(1) for mask in here]
        rows = torch.cat([x[keep] for (x, _, _), keep in zip(everyone, kept)])
        entries = torch.cat(
            [torch.where(mask, i - layer.rank * layer.local, -1)[keep] for (_, i, _), mask, keep in zip(everyone, here, kept)]
        )
        factors = torch.cat([torch.where(mask, w, 0.0)[keep] for (_, _, w), mask, keep in zip(everyone, here, kept)])
        count = len(rows)
        if not worst and counts != [int((entries == local).sum()) for local in range(layer.local)]:
            raise AssertionError("num_recv_tokens_per_expert_list is wrong")
        if not torch.equal(recv_idx[:count], entries) or not torch.equal(recv_weights[:count], factors) or (recv_idx[count:] != -1).any():
            raise AssertionError("entries of rows differ")
        got = recv_x
        if fp8:
            numbers, scales = quantised(rows)
            if not torch.equal(recv_x[0][:count].view(torch.uint8), numbers.view(torch.uint8)) or not torch.equal(recv_x[1][:count], scales):
                raise AssertionError("fp8 rows differ")
            got = (recv_x[0].float() * recv_x[1].repeat_interleave(128, 1)).bfloat16()
        elif not torch.equal(recv_x[:count], rows):
            raise AssertionError("rows differ")
        experts = torch.where(recv_idx >= 0, recv_idx + layer.rank * layer.local, 0)
        y = got.float() * torch.where(recv_idx >= 0, recv_weights * (experts % 3 + 1), 0.0).sum(1)[:, None]
        out, _, event = buffer.combine(y.bfloat16(), handle, async_finish=options["async_finish"])
        if options["async_finish"]:
            event.current_stream_wait()
        layer.check_combined(out, x, indices, weights, fp8)


def check_normal_graph(buffer, layer, replays):
    """A captured worst-case call, replayed with other inputs in the same tensors, against the same call outside of a graph."""
    x, indices, weights = layer.inputs(layer.rank, 0, full=True)
    per_expert, worst = torch.zeros(layer.experts, dtype=torch.int32, device=layer.device), layer.most * layer.size

    def run():
        routing = {"num_tokens_per_expert": per_expert, "topk_idx": indices, "topk_weights": weights}
        recv_x, recv_idx, recv_weights, _, handle, _ = buffer.dispatch(x, num_worst_tokens=worst, **routing)
        return buffer.combine((recv_x.float() * recv_weights.sum(1)[:, None]).bfloat16(), handle)[0]

    run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = run()
    for call in range(1, replays + 1):
        for tensor, values in zip((x, indices, weights), layer.inputs(layer.rank, call, full=True)):
            tensor.copy_(values)
        graph.replay()
        if not torch.equal(out, run()):
            raise AssertionError("a replayed call differs")


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

    return cold_pairs(buffer, dispatch, lambda handle: buffer.low_latency_combine(y, indices, weights, handle), samples, group)


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
        buffer = deep_ep.Buffer(group, 0, 2 * needed, low_latency_mode=True, num_qps_per_rank=layer.local, explicitly_destroy=True)
        check(buffer, layer, arguments.calls)
        check_in_flight(buffer, layer, arguments.calls // 4)
        check_graph(buffer, layer, arguments.calls // 4)
        times = []
        for fp8 in (False, True):
            times += cold(buffer, layer, fp8, arguments.samples, group) + train(buffer, layer, fp8, arguments.samples, group)
        rows.append((layer, aim, times))
        buffer.destroy()
    lines = normal_lines(arguments, rank, size, group, device)
    if rank == 0:
        print(f"{size}x {torch.cuda.get_device_name()}, torch {torch.__version__}; all results right; us, slowest rank, {arguments.samples} samples")
        columns = f"{'dispatch':>9}{'combine':>8}{'both':>7}{'train':>7}{'host':>6}"
        print(f"{'':<35} | {'bf16':<{len(columns)}} | fp8")
        print(f"{'experts, top-k, hidden, tokens':<31}{'aim':>4} | {columns} | {columns}")
        for layer, aim, times in rows:
            name = f"{layer.experts}, {layer.k}, {layer.hidden}, {layer.most}"
            cells = ["".join(f"{value:>{width}.1f}" for value, width in zip(half, (9, 8, 7, 7, 6))) for half in (times[:5], times[5:])]
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
