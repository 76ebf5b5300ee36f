"""torch tensors: in the host's memory on the emulator, and as DLTensors. Tests on GPUs are in test_gpu.py."""

import contextlib
import types

import numpy as np
import pytest

import farwarp
from farwarp import _c, call
from farwarp.call import Parameter
from oracle import assert_rounded, f64
from processes import outputs
from test_world import script

torch = pytest.importorskip("torch")


def test_operator_on_the_emulator():
    x, w = torch.rand(8, 64).bfloat16(), torch.rand(16, 64).bfloat16()

    def multiply(world):
        gemm = farwarp.Gemm(world, 8, 16, 64)
        with pytest.raises(
            farwarp.InvalidArgumentError, match="x has strides .1, 8. for shape .8, 64.; allowed: a contiguous tensor"
        ):
            gemm(x.T.contiguous().T, w)
        with pytest.raises(farwarp.InvalidArgumentError, match="x is of float32; allowed: bfloat16"):
            gemm(x.float(), w)
        with pytest.raises(farwarp.InvalidArgumentError, match="x is on meta; allowed: cpu, on the emulator"):
            gemm(x.to("meta"), w)
        with pytest.raises(farwarp.InvalidArgumentError, match="out is a Tensor; allowed: a farwarp.Array"):
            gemm(x, w, out=torch.empty(8, 16).bfloat16())
        return gemm(x, torch.nn.Parameter(w)).torch()

    y = farwarp.run(multiply, ranks=1)[0]
    assert y.dtype == torch.bfloat16
    assert_rounded(y.float().numpy(), f64(x.float()) @ f64(w.float()).T, "bfloat16", sums=64)


@pytest.mark.parametrize("dtype", (torch.bfloat16, torch.float16, torch.float32, torch.int32, torch.int64, torch.uint8))
def test_arrays(dtype):
    def copy(world):
        tensor = torch.arange(12, dtype=dtype).reshape(3, 4)
        array = world.asarray(tensor)
        assert world.empty((3, 4), dtype).dtype == array.dtype == str(dtype)[6:]
        assert torch.equal(world.zeros((4, 3), dtype).copy_from(tensor.T).torch(), tensor.T)
        return torch.equal(array.torch(), tensor)

    assert farwarp.run(copy, ranks=1) == [True]


def described(tensor, parameter):
    """The DLTensor that the library would get."""
    reference = parameter.input(tensor, None, [])
    got = reference._obj
    return (
        got.data,
        got.byte_offset,
        (got.dtype.code, got.dtype.bits, got.dtype.lanes),
        (got.device.device_type, got.device.device_id),
        [got.shape[i] for i in range(got.ndim)],
        [got.strides[i] for i in range(got.ndim)],
    )


@pytest.mark.parametrize("fast", (False, True))
def test_tensors_of_the_device_are_not_copied(fast, monkeypatch):
    """As on a GPU, but with tensors in the host's memory."""
    if not fast:
        monkeypatch.setattr(call.exchange, "fill_of", lambda kind: None)
    elif not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
        pytest.skip("this torch has no exchange API")
    monkeypatch.setattr(call, "_fills", {})
    parameter = Parameter("x", types.SimpleNamespace(emulated=False, dl_device=_c.DLDevice(_c.CUDA, 1)))
    base = torch.zeros(8, 64, dtype=torch.float16)
    for tensor, code in (
        (base, (2, 16, 1)),
        (base[2:], (2, 16, 1)),
        (base, (2, 16, 1)),
        (base.bfloat16(), (4, 16, 1)),
        (base.T, (2, 16, 1)),
        (base[:, ::2], (2, 16, 1)),
        (base.int(), (0, 32, 1)),
        (torch.nn.Parameter(base), (2, 16, 1)),
        (base.to(torch.float8_e4m3fn), (10, 8, 1)),
        (base.bool(), (6 if fast else 255, 8, 1)),
        (base[0, 0], (2, 16, 1)),
        (base.view(2, 4, 64), (2, 16, 1)),
    ):
        assert described(tensor, parameter) == (
            tensor.data_ptr(),
            0,
            code,
            (_c.CPU, 0),
            list(tensor.shape),
            list(tensor.stride()),
        )
    for size in range(1, 200):
        assert described(base.new_zeros(size), parameter)[4] == [size]
    assert len(parameter._prepared) <= 64
    with pytest.raises(
        farwarp.InvalidArgumentError, match="x is a ndarray; allowed: a torch.Tensor on the device, a farwarp.Array"
    ):
        parameter.input(np.zeros((8, 64), np.float16), None, [])


@pytest.mark.parametrize("fast", (False, True))
def test_calls_with_tensors_of_the_device(fast, monkeypatch):
    """As on a GPU, with tensors in the host's memory: what reaches the function.

    Also when a combination of classes comes again with other tensors, and what is remembered of it.
    """
    if not fast:
        monkeypatch.setattr(call.exchange, "fill_of", lambda kind: None)
    elif not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
        pytest.skip("this torch has no exchange API")
    monkeypatch.setattr(call, "_fills", {})
    busy, given = {}, []

    def function(handle, *references, stream):
        given.append((handle, stream))
        for reference in references:
            tensor = None if reference is None else reference._obj
            given.append(tensor and (tensor.data, [tensor.shape[i] for i in range(tensor.ndim)]))
        return 0

    streams = types.SimpleNamespace(
        exclusive=contextlib.nullcontext,
        emulated=False,
        busy=busy,
        use=lambda on: busy.setdefault(on, f"stream {on}"),
        current=lambda: 7,
        handle_of=lambda stream: stream,
    )
    world = types.SimpleNamespace(emulated=False, dl_device=_c.DLDevice(_c.CUDA, 1), streams=streams)
    operator = types.SimpleNamespace(handle="handle")
    made = call.Call(
        world,
        lambda handle, *rest: function(handle, *rest[:-1], stream=rest[-1]),
        "x w bias",
        "out lse",
        optional="bias",
    )
    for size in (2, 3, 4):
        for kind in (torch.Tensor, torch.nn.Parameter):
            for bias in (None, torch.rand(size)):
                x, w, out = torch.rand(size, 8), torch.rand(5, size), torch.rand(size, 5)
                x = torch.nn.Parameter(x) if kind is torch.nn.Parameter else x
                stream = None if size == 2 else size
                given.clear()
                assert made.enqueue(operator, (x, w, bias, out, None), stream) == []
                wanted = [
                    tensor if tensor is None else (tensor.data_ptr(), list(tensor.shape))
                    for tensor in (x, w, bias, out, None)
                ]
                assert given == [("handle", f"stream {stream or 7}"), *wanted]
    assert (len(made._known), len(made._slow)) == ((4, 0) if fast else (0, 4))
    with pytest.raises(farwarp.InvalidArgumentError, match="w is a ndarray; allowed: a torch.Tensor on the device"):
        made.enqueue(operator, (x, np.zeros(3), None, out, None), None)
    assert len(made._known) + len(made._slow) == 4


def test_process_group():
    printed = outputs(
        """
        pair = dist.new_group([0, 2])
        if rank == 1:
            try:
                farwarp.World(pair, target="emu_sm90")
            except farwarp.InvalidArgumentError as error:
                print(error)
        else:
            with farwarp.World(pair, target="emu_sm90") as world:
                product = farwarp.GemmAllReduce(world, 8, 16, 128, dtype="float16")
                y = product(torch.ones(8, 64).half(), torch.ones(16, 64).half())
                print(f"rank {world.rank} of {world.size}: {y.numpy().max()}")
        dist.barrier()
        """,
        ranks=3,
    )
    assert printed == [
        "rank 0 of 2: 128.0\n",
        "group has not this rank among its ranks; allowed: a group of which this process is a member\n",
        "rank 1 of 2: 128.0\n",
    ]


def test_process_group_of_too_many_ranks():
    assert script("""
        import farwarp, torch.distributed as dist
        from torch.testing._internal.distributed.fake_pg import FakeStore
        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=9)
        try:
            farwarp.World(dist.group.WORLD, target="emu_sm90")
        except farwarp.InvalidArgumentError as error:
            print(error)
    """) == (0, "size is 9; allowed: 1 to 8\n")


def test_process_groups_of_different_sizes():
    """Ranks that do not agree who they are meet in no collective: the group's own timeout ends the wait."""
    printed = outputs(
        """
        import datetime
        some = [dist.new_group(ranks, timeout=datetime.timedelta(seconds=3)) for ranks in ([0, 1], [0, 1, 2])]
        try:
            farwarp.World(some[rank > 0], target="emu_sm90")
        except RuntimeError:
            print("raised")
        """,
        ranks=3,
    )
    assert printed == ["raised\n"] * 3
