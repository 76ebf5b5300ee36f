"""The process of one rank of a submission in Python: `farwarp submit` runs `python -m farwarp.submission FILE SOCKET`.

The file defines `custom_kernel(data)`, as in the AMD Developer Challenge 2025 (KernelBot). Shapes are those of one
rank, tensors lie on its device, and torch.distributed is initialised with NCCL.

==============================  ====================================================================================
operator                        data
==============================  ====================================================================================
gemm, ag-gemm, gemm-rs,         (x, w, bias or None)
gemm-ar
moe-a2a                         (cfg, rank_data, rank, world_size); cfg: num_experts, experts_per_token, hidden_dim,
                                max_num_tokens, in_dtype, out_dtype; rank_data: num_tokens, indices, weights, x,
                                expert_local_weight [local experts, 1, 1]
the others                      a tuple of the operator's inputs (docs/submissions.md)
==============================  ====================================================================================

It returns the output, or a tuple of them: torch.Tensor of the output's shape and dtype, in any memory of the device. It
is called once with zeros (topk_indices: 0, 1, ...) before calls count, so that compilers can run.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import math
import os
import sys
import traceback
import types
from ctypes import CFUNCTYPE, POINTER, Structure, c_char_p, c_int, c_int32, c_int64, c_size_t, c_uint32, c_void_p
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable

from . import _c

if TYPE_CHECKING:
    from ctypes import _Pointer

    import torch

_PRODUCTS = ("gemm", "ag-gemm", "gemm-rs", "gemm-ar")


class _Tensor(Structure):
    """farwarp_submission_tensor."""

    _fields_ = [
        ("name", c_char_p),
        ("dtype", c_int32),
        ("dims", c_int32),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("data", c_void_p),
    ]


_ALLGATHER = CFUNCTYPE(c_int, c_void_p, c_void_p, c_size_t, c_void_p)


class _Problem(Structure):
    """farwarp_submission_problem."""

    _fields_ = [
        ("abi_version", c_uint32),
        ("rank", c_int32),
        ("ranks", c_int32),
        ("device", c_int32),
        ("target", c_char_p),
        ("op", c_char_p),
        ("case_json", c_char_p),
        ("inputs", POINTER(_Tensor)),
        ("input_count", c_int32),
        ("outputs", POINTER(_Tensor)),
        ("output_count", c_int32),
        ("context", c_void_p),
        ("allgather", _ALLGATHER),
        ("barrier", CFUNCTYPE(c_int, c_void_p)),
    ]


_CREATE = CFUNCTYPE(c_int, POINTER(_Problem))
_PREPARE = CFUNCTYPE(c_int, POINTER(_Tensor), c_int32, POINTER(_Tensor), c_int32, c_void_p)
_STEP, _DESTROY, _LAST_ERROR = CFUNCTYPE(c_int), CFUNCTYPE(None), CFUNCTYPE(c_void_p)


class _Callbacks(Structure):
    """farwarp_submission_callbacks of judge/loaded.h."""

    _fields_ = [
        ("create", _CREATE),
        ("prepare", _PREPARE),
        ("run", _STEP),
        ("deliver", _STEP),
        ("destroy", _DESTROY),
        ("last_error", _LAST_ERROR),
    ]


@dataclass
class MoEConfig:
    """Of a moe-a2a, under the challenge's names."""

    num_experts: int
    experts_per_token: int
    hidden_dim: int
    max_num_tokens: int
    in_dtype: torch.dtype
    out_dtype: torch.dtype


@dataclass
class RankTestData:
    """A rank's inputs of moe-a2a, under the challenge's names."""

    num_tokens: int
    indices: torch.Tensor
    weights: torch.Tensor
    x: torch.Tensor
    expert_local_weight: torch.Tensor


class _Memory:
    """Bytes of the device, for torch.as_tensor()."""

    def __init__(self, address: int, count: int) -> None:
        self.__cuda_array_interface__ = {
            "data": (address, False),
            "shape": (count,),
            "typestr": "|u1",
            "strides": None,
            "version": 3,
        }


class Submission:
    """What the judge calls, on one thread."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._error = ctypes.create_string_buffer(4096)
        self._kernel: Callable[[Any], Any] | None = None
        self._result: Any = None

    def guarded(self, step: Callable[..., None]) -> Callable[..., int]:
        """`step`, which returns 0, or 1 if it raised; then last_error() says what."""

        def call(*arguments: Any) -> int:
            try:
                step(*arguments)
                return 0
            except BaseException as error:  # nothing may pass through C
                traceback.print_exc()
                self._error.value = f"{type(error).__name__}: {error}".encode()[:4000]
                return 1

        return call

    def last_error(self) -> int:
        """The address of the text."""
        return ctypes.addressof(self._error)

    def create(self, problem_pointer: _Pointer[_Problem]) -> None:
        """Joins the ranks, loads the file, and calls it once with zeros."""
        import torch

        self._torch = torch
        self._dtypes = [torch.float16, torch.bfloat16, torch.float32, torch.int32, torch.int64]
        problem = problem_pointer.contents
        self._rank, self._ranks, self._op = problem.rank, problem.ranks, problem.op.decode()
        self._device = torch.device("cuda", problem.device)
        self._params: dict[str, str] = json.loads(problem.case_json)["params"]
        torch.cuda.set_device(self._device)
        self._join(problem)
        self._kernel = self._load()
        inputs = [self._zeros(problem.inputs[i]) for i in range(problem.input_count)]
        outputs = [self._zeros(problem.outputs[i]) for i in range(problem.output_count)]
        names = [problem.inputs[i].name.decode() for i in range(problem.input_count)]
        self._outputs, self._result = outputs, self._kernel(self._data(dict(zip(names, inputs))))
        self._copy()
        torch.cuda.synchronize()

    def prepare(
        self,
        inputs: _Pointer[_Tensor],
        input_count: int,
        outputs: _Pointer[_Tensor],
        output_count: int,
        stream: int,
    ) -> None:
        """Before run(), not timed: makes tensors of its inputs and outputs, and `stream` the current one."""
        views = {inputs[i].name.decode(): self._view(inputs[i]) for i in range(input_count)}
        self._outputs = [self._view(outputs[i]) for i in range(output_count)]
        self._inputs = self._data(views)
        self._result = None
        self._torch.cuda.set_stream(self._torch.cuda.ExternalStream(stream, self._device))

    def run(self) -> None:
        """The call that is timed; its result is kept."""
        assert self._kernel is not None
        self._result = self._kernel(self._inputs)

    def deliver(self) -> None:
        """After run(), not timed: copies its result to the outputs, in the stream."""
        self._copy()
        self._result = None

    def destroy(self) -> None:
        """The process ends at once: nothing to do."""

    def _join(self, problem: _Problem) -> None:
        import torch.distributed as dist

        ranks = self._ranks
        store = dist.TCPStore("127.0.0.1", 0, ranks, True, wait_for_workers=False) if self._rank == 0 else None
        mine = c_int64(store.port if store is not None else 0)
        ports = (c_int64 * ranks)()
        if problem.allgather(problem.context, ctypes.byref(mine), ctypes.sizeof(mine), ports) != 0:
            raise RuntimeError("the ranks cannot meet")
        if store is None:
            store = dist.TCPStore("127.0.0.1", ports[0], ranks, False)
        os.environ.update(
            MASTER_ADDR="127.0.0.1", MASTER_PORT=str(ports[0]), RANK=str(self._rank), WORLD_SIZE=str(ranks)
        )
        dist.init_process_group("nccl", store=store, rank=self._rank, world_size=ranks, device_id=self._device)

    def _load(self) -> Callable[[Any], Any]:
        task = types.ModuleType("task")  # submissions import the types of their data from it
        task.input_t = task.output_t = Any  # type: ignore[attr-defined]
        sys.modules["task"] = task
        spec = importlib.util.spec_from_file_location("submission", self._path)
        if spec is None or spec.loader is None:
            raise ImportError(f"{self._path} is no Python file")
        module = importlib.util.module_from_spec(spec)
        sys.modules["submission"] = module
        spec.loader.exec_module(module)
        kernel = getattr(module, "custom_kernel", None)
        if not callable(kernel):
            raise ImportError(f"{self._path} does not define custom_kernel(data)")
        return kernel  # type: ignore[no-any-return]

    def _dtype(self, tensor: _Tensor) -> torch.dtype:
        return self._dtypes[tensor.dtype] if tensor.dtype < len(self._dtypes) else self._torch.float8_e4m3fn

    def _zeros(self, tensor: _Tensor) -> torch.Tensor:
        shape = tensor.shape[: tensor.dims]
        zeros = self._torch.zeros(shape, dtype=self._dtype(tensor), device=self._device)
        if tensor.name == b"topk_indices":  # distinct experts
            zeros += self._torch.arange(shape[-1], dtype=zeros.dtype, device=self._device)
        return zeros

    def _view(self, tensor: _Tensor) -> torch.Tensor:
        shape, dtype = tensor.shape[: tensor.dims], self._dtype(tensor)
        count = math.prod(shape) * dtype.itemsize
        if count == 0:
            return self._zeros(tensor)
        return self._torch.as_tensor(_Memory(tensor.data, count), device=self._device).view(dtype).view(shape)

    def _data(self, inputs: dict[str, torch.Tensor]) -> Any:
        if self._op in _PRODUCTS:
            return inputs["x"], inputs["w"], inputs.get("bias")
        if self._op != "moe-a2a":
            return tuple(inputs.values())
        names = ("num_experts", "experts_per_token", "hidden_dim", "max_num_tokens")
        x = inputs["x"]
        experts, chosen, hidden, most = (int(self._params[name]) for name in names)
        config = MoEConfig(experts, chosen, hidden, most, x.dtype, x.dtype)
        of_rank = RankTestData(
            x.shape[0], inputs["topk_indices"], inputs["topk_weights"], x, inputs["expert_scales"][:, None, None]
        )
        return config, of_rank, self._rank, self._ranks

    def _copy(self) -> None:
        results = self._result if isinstance(self._result, tuple) else (self._result,)
        if len(results) != len(self._outputs):
            raise TypeError(f"custom_kernel returned {len(results)} results: allowed is {len(self._outputs)}")
        for output, result in zip(self._outputs, results):
            if type(result) is not self._torch.Tensor:
                raise TypeError(f"custom_kernel returned {type(result).__name__}: allowed is torch.Tensor")
            if result.shape != output.shape or result.dtype != output.dtype or result.device != output.device:
                raise TypeError(
                    f"custom_kernel returned {tuple(result.shape)} {result.dtype} on {result.device}: allowed is "
                    f"{tuple(output.shape)} {output.dtype} on {output.device}"
                )
            output.copy_(result)


def main(path: str, socket: str) -> int:
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # a pipe, and the process ends at once
    submission = Submission(path)
    steps = (submission.create, submission.prepare, submission.run, submission.deliver)
    create, prepare, run, deliver = (submission.guarded(step) for step in steps)
    callbacks = _Callbacks(
        _CREATE(create),
        _PREPARE(prepare),
        _STEP(run),
        _STEP(deliver),
        _DESTROY(submission.destroy),
        _LAST_ERROR(submission.last_error),
    )
    rank_main = ctypes.CDLL(_c.lib.path).farwarp_submission_rank
    rank_main.argtypes, rank_main.restype = [c_int, POINTER(_Callbacks)], c_int
    return int(rank_main(int(socket), ctypes.byref(callbacks)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
