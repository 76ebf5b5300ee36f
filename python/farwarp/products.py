"""Products of matrices: on one device, and of tensor parallelism."""

from __future__ import annotations

from typing import Any

from . import _c, dtypes
from .arguments import flag
from .call import Call, Tensor
from .descriptor import choice, given, new_desc
from .operator import Operator
from .world import World

_PATHS = ("own", "unfused", "best")  # in the order of farwarp_product_path


class Gemm(Operator):
    """y = x @ w.T (+ bias), with sums in fp32, rounded once. Collective to create; a world of one rank is enough.

    m, n, k: sizes; n and k are multiples of 8.
    bias: whether calls have one.
    dtype: "bfloat16" or "float16", of all tensors.
    max_sms: multiprocessors of a call; 0: all.
    """

    _name = "gemm"

    def __init__(self, world: World, m: int, n: int, k: int, *, bias: bool = False, dtype: Any = "bfloat16", max_sms: int = 0) -> None:
        desc = new_desc(_c.GemmDesc)
        self._open(world, given(desc, m=m, n=n, k=k, has_bias=flag("bias", bias), dtype=dtype, max_sms=max_sms))
        self.m, self.n, self.k, self.dtype = m, n, k, dtypes.name_of(dtype)
        self._call = Call(world, "gemm_call", "x w bias", "out")

    def _results(self) -> tuple:
        """Shape and type of each result of a call."""
        return (((self.m, self.n), self.dtype),)

    def __call__(self, x: Tensor, w: Tensor, bias: Tensor | None = None, *, out: Tensor | None = None, stream: Any = None) -> Any:
        """x [m, k], w [n, k], bias [n] -> [m, n]. `out` (messages call it y) must not overlap an input."""
        if out is None:
            out = self._new(x, (self.m, self.n), self.dtype)
        self._call.enqueue(self, (x, w, bias, out), stream)
        return out


class ParallelGemm(Operator):
    """What AllGatherGemm, GemmReduceScatter and GemmAllReduce have in common. Collective to create, and every rank
    makes every call. Tensors begin at multiples of 256 bytes, as those of torch and World.empty() do. Messages call
    `out` y.

    m, n, k: sizes of the whole problem.
    bias: whether calls have one. One that is the same on all ranks enters a reduced result once for each rank.
    dtype: "bfloat16" or "float16", of all tensors.
    path: "own" (farwarp's kernels), "unfused" (NCCL and cuBLASLt one after the other) or "best" (the one that was
        measured to be faster).
    max_sms: multiprocessors of a call; 0: all.
    """

    _name = "product"
    _kind = 0

    def __init__(
        self, world: World, m: int, n: int, k: int, *, bias: bool = False, dtype: Any = "bfloat16", path: str = "best", max_sms: int = 0
    ) -> None:
        self._create(world, m, n, k, bias, dtype, path, max_sms, return_x=False)

    def _create(self, world: World, m: int, n: int, k: int, bias: bool, dtype: Any, path: str, max_sms: int, return_x: bool) -> None:
        desc = new_desc(_c.ProductDesc)
        self._open(
            world,
            given(
                desc,
                kind=self._kind,
                m=m,
                n=n,
                k=k,
                has_bias=flag("bias", bias),
                return_x=flag("return_x", return_x),
                dtype=dtype,
                path=choice("path", path, _PATHS),
                max_sms=max_sms,
            ),
        )
        self.m, self.n, self.k, self.dtype = m, n, k, dtypes.name_of(dtype)
        self._y_shape = self._shape_of_y()
        self._call = Call(world, "product_call", "x w bias", "out all_x")

    def _shape_of_y(self) -> tuple[int, int]:
        raise NotImplementedError

    def _results(self) -> tuple:
        """Shape and type of each result of a call."""
        return ((self._y_shape, self.dtype),)

    def _multiply(self, x: Any, w: Any, bias: Any, out: Any, all_x: Any, stream: Any) -> Any:
        if out is None:
            out = self._new(x, self._y_shape, self.dtype)
        self._call.enqueue(self, (x, w, bias, out, all_x), stream)
        return out


class AllGatherGemm(ParallelGemm):
    """Of R ranks: x [m/R, k] of all ranks, gathered, times w [n/R, k] -> y [m, n/R]. return_x: calls return the
    gathered x [m, k], too. Other arguments: ParallelGemm."""

    _kind = 0

    def __init__(
        self,
        world: World,
        m: int,
        n: int,
        k: int,
        *,
        bias: bool = False,
        dtype: Any = "bfloat16",
        path: str = "best",
        return_x: bool = False,
        max_sms: int = 0,
    ) -> None:
        self._create(world, m, n, k, bias, dtype, path, max_sms, return_x)
        self.return_x = bool(return_x)

    def _shape_of_y(self) -> tuple[int, int]:
        return self.m, self.n // self.world.size

    def _results(self) -> tuple:
        gathered = (((self.m, self.k), self.dtype),) if self.return_x else ()
        return super()._results() + gathered

    def __call__(
        self,
        x: Tensor,
        w: Tensor,
        bias: Tensor | None = None,
        *,
        out: Tensor | None = None,
        all_x: Tensor | None = None,
        stream: Any = None,
    ) -> Any:
        """x [m/R, k], w [n/R, k], bias [n/R] -> y [m, n/R]; with return_x (y, all_x), all_x [m, k] being a result like
        `out`."""
        if not self.return_x:
            return self._multiply(x, w, bias, out, all_x, stream)
        if all_x is None:
            all_x = self._new(x, (self.m, self.k), self.dtype)
        return self._multiply(x, w, bias, out, all_x, stream), all_x


class GemmReduceScatter(ParallelGemm):
    """Of R ranks: the sum over ranks of x [m, k/R] times w [n, k/R], of which each rank gets m/R rows. Arguments:
    ParallelGemm."""

    _kind = 1

    def _shape_of_y(self) -> tuple[int, int]:
        return self.m // self.world.size, self.n

    def __call__(self, x: Tensor, w: Tensor, bias: Tensor | None = None, *, out: Tensor | None = None, stream: Any = None) -> Any:
        """x [m, k/R], w [n, k/R], bias [n] -> [m/R, n]."""
        return self._multiply(x, w, bias, out, None, stream)


class GemmAllReduce(ParallelGemm):
    """Of R ranks: the sum over ranks of x [m, k/R] times w [n, k/R], which all ranks get. Arguments: ParallelGemm."""

    _kind = 2

    def _shape_of_y(self) -> tuple[int, int]:
        return self.m, self.n

    def __call__(self, x: Tensor, w: Tensor, bias: Tensor | None = None, *, out: Tensor | None = None, stream: Any = None) -> Any:
        """x [m, k/R], w [n, k/R], bias [n] -> [m, n]."""
        return self._multiply(x, w, bias, out, None, stream)
