"""What deep_ep_gpus.py checks: calls of farwarp.deep_ep against plain torch. Imported by name."""

import torch


class Layer:
    """Inputs of every rank, generated alike on all ranks, and what each rank must get."""

    def __init__(self, shape, rank, size, device):
        self.rank, self.size, self.device = rank, size, device
        self.experts, self.k, self.hidden, self.most = (
            shape[n] for n in ("num_experts", "experts_per_token", "hidden_dim", "max_num_tokens")
        )
        self.local = self.experts // size
        # Of the rank's experts; on the device before a graph is captured.
        self.factors = torch.tensor(
            [self.factor(rank * self.local + local) for local in range(self.local)], device=device
        )

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
            x,
            indices,
            layer.most,
            layer.experts,
            use_fp8=fp8,
            async_finish=way == "async",
            return_recv_hook=way == "hooks",
        )
        hook() if way == "hooks" else way == "async" and event.current_stream_wait()
        layer.check_received(recv_x, count, everyone)
        out, event, hook = buffer.low_latency_combine(
            layer.outputs(recv_x),
            indices,
            weights,
            handle,
            async_finish=way == "async",
            return_recv_hook=way == "hooks",
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
            under_way.append(
                (
                    everyone,
                    buffer.low_latency_dispatch(
                        x, indices, layer.most, layer.experts, use_fp8=False, return_recv_hook=True
                    ),
                )
            )
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
        everyone = [
            layer.inputs(rank, call, index_type=(torch.int64, torch.int32)[call // 2 % 2]) for rank in range(size)
        ]
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
            [
                torch.where(mask, i - layer.rank * layer.local, -1)[keep]
                for (_, i, _), mask, keep in zip(everyone, here, kept)
            ]
        )
        factors = torch.cat([torch.where(mask, w, 0.0)[keep] for (_, _, w), mask, keep in zip(everyone, here, kept)])
        count = len(rows)
        if not worst and counts != [int((entries == local).sum()) for local in range(layer.local)]:
            raise AssertionError("num_recv_tokens_per_expert_list is wrong")
        if (
            not torch.equal(recv_idx[:count], entries)
            or not torch.equal(recv_weights[:count], factors)
            or (recv_idx[count:] != -1).any()
        ):
            raise AssertionError("entries of rows differ")
        got = recv_x
        if fp8:
            numbers, scales = quantised(rows)
            if not torch.equal(recv_x[0][:count].view(torch.uint8), numbers.view(torch.uint8)) or not torch.equal(
                recv_x[1][:count], scales
            ):
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
    """A captured worst-case call, replayed with other inputs in the same tensors, against the same call."""
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


def capture_layer(buffer, layer, tensors, fp8):
    """A CUDA graph of a layer, its received rows, counts and result."""
    x, indices, weights = tensors

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
        results = run()
    return graph, *results


def check_graph(buffer, layer, replays):
    """A captured layer, replayed with other inputs in the same tensors."""
    for fp8 in (False, True):
        tensors = x, indices, weights = layer.inputs(layer.rank, 0, full=True)
        graph, recv_x, count, out = capture_layer(buffer, layer, tensors, fp8)
        for call in range(1, replays + 1):
            everyone = [layer.inputs(rank, call, full=True) for rank in range(layer.size)]
            for tensor, values in zip(tensors, everyone[layer.rank]):
                tensor.copy_(values)
            graph.replay()
            layer.check_received(recv_x, count, everyone)
            layer.check_combined(out, x, indices, weights, fp8)
