"""Products of matrices of tensor parallelism."""

from __future__ import annotations

from . import _c, dtypes
from .arguments import flag
from .call import Call
from .descriptor import choice, new_desc, set_fields
from .device_streams import StreamLike
from .errors import MisuseError
from .gemm import OneResult
from .operator import Operator
from .tensors import Result, Results, Tensor, TensorSpec
from .world import World

_PATHS = ("own", "unfused", "best")  # in the order of farwarp_product_path


class ParallelGemm(Operator):
    """What AllGatherGemm, GemmReduceScatter and GemmAllReduce have in common. It cannot be created itself.

    Collective to create, and every rank makes every call. Tensors begin at multiples of 256 bytes, as those of torch
    and World.empty() do. Messages of the library call `out` y.

    Parameters
    ----------
    world : World
        Its ranks are the R ranks of the product.
    m, n, k : int
        Sizes of the whole problem.
    bias : bool
        Whether calls have one. One that is the same on all ranks enters a reduced result once for each rank.
    dtype : str, numpy.dtype or torch.dtype
        "bfloat16" or "float16", of all tensors.
    path : str
        "own" (farwarp's kernels), "unfused" (NCCL and cuBLASLt one after the other) or "best" (the one that was
        measured to be faster).
    max_sms : int
        Multiprocessors of a call; 0: all.

    Raises
    ------
    InvalidArgumentError
        A parameter is outside what is allowed.
    OutOfMemoryError
        The symmetric heap has no room.
    MismatchError
        The ranks gave different parameters.
    UnavailableError
        `path` needs a library that is not here.
    MisuseError
        The world is closed.
    """

    _c_prefix = "product"
    _kind = -1  # farwarp_product_kind; here of no product

    def __init__(
        self,
        world: World,
        m: int,
        n: int,
        k: int,
        *,
        bias: bool = False,
        dtype: dtypes.DTypeLike = "bfloat16",
        path: str = "best",
        max_sms: int = 0,
    ) -> None:
        self._create(world, m, n, k, bias, dtype, path, max_sms, return_x=False)

    def _create(
        self,
        world: World,
        m: int,
        n: int,
        k: int,
        bias: bool,
        dtype: dtypes.DTypeLike,
        path: str,
        max_sms: int,
        return_x: bool,
    ) -> None:
        if self._kind < 0:
            raise MisuseError(
                f"{type(self).__name__} has no calls; allowed: AllGatherGemm, GemmReduceScatter, GemmAllReduce"
            )
        desc = new_desc(_c.ProductDesc)
        self._open(
            world,
            set_fields(
                desc,
                kind=self._kind,
                m=m,
                n=n,
                k=k,
                has_bias=flag("bias", bias),
                return_x=return_x,
                dtype=dtype,
                path=choice("path", path, _PATHS),
                max_sms=max_sms,
            ),
        )
        self.m, self.n, self.k, self.dtype = m, n, k, dtypes.name_of(dtype)
        self._y_shape = self._shape_of_y()
        self._call = Call(world, "product_call", "x w bias", "out all_x", optional="" if bias else "bias")

    def _shape_of_y(self) -> tuple[int, int]:
        raise NotImplementedError

    def result_specs(self) -> tuple[TensorSpec, ...]:
        """Shape and type of each result of a call."""
        return (TensorSpec(self._y_shape, self.dtype),)


class AllGatherGemm(ParallelGemm):
    """Of R ranks: x [m/R, k] of all ranks, gathered, times w [n/R, k] -> y [m, n/R].

    Parameters and failures: ParallelGemm, and

    Parameters
    ----------
    return_x : bool
        Calls return the gathered x [m, k], too.
    """

    _kind = 0

    def __init__(
        self,
        world: World,
        m: int,
        n: int,
        k: int,
        *,
        bias: bool = False,
        dtype: dtypes.DTypeLike = "bfloat16",
        path: str = "best",
        return_x: bool = False,
        max_sms: int = 0,
    ) -> None:
        self._create(world, m, n, k, bias, dtype, path, max_sms, return_x)
        self.return_x = bool(return_x)

    def _shape_of_y(self) -> tuple[int, int]:
        return self.m, self.n // self.world.size

    def result_specs(self) -> tuple[TensorSpec, ...]:
        """Shape and type of each result of a call."""
        gathered = (TensorSpec((self.m, self.k), self.dtype),) if self.return_x else ()
        return super().result_specs() + gathered

    def __call__(
        self,
        x: Tensor,
        w: Tensor,
        bias: Tensor | None = None,
        *,
        out: Result | None = None,
        all_x: Result | None = None,
        stream: StreamLike = None,
    ) -> Results:
        """Enqueue a product. Every rank calls it.

        Parameters
        ----------
        x : tensor [m/R, k]
            This rank's rows.
        w : tensor [n/R, k]
            This rank's columns of the second factor, transposed.
        bias : tensor [n/R], optional
            Given exactly if the operator has one.
        out : tensor [m, n/R], optional
            For the result. None: a new tensor.
        all_x : tensor [m, k], optional
            For the gathered x, with return_x. None: a new tensor.
        stream : farwarp.Stream, torch.cuda.Stream or int, optional
            None: the current stream.

        Returns
        -------
        Array or torch.Tensor [m, n/R], or with return_x a tuple
            `out` or a new tensor; with return_x (y, all_x).

        Raises
        ------
        InvalidArgumentError
            A tensor's shape, type, strides or device is not allowed, or tensors overlap.
        MisuseError
            The operator is closed.
        """
        if out is None:
            out = self._new(x, self._y_shape, self.dtype)
        if all_x is None and self.return_x:
            all_x = self._new(x, (self.m, self.k), self.dtype)
        self._call.enqueue(self, (x, w, bias, out, all_x), stream)
        return out if all_x is None or not self.return_x else (out, all_x)


class ReducedGemm(OneResult, ParallelGemm):
    """What GemmReduceScatter and GemmAllReduce have in common: the sum over ranks of x [m, k/R] times w [n, k/R]."""

    def _product(self, x: Tensor, w: Tensor, bias: Tensor | None, out: Result | None, stream: StreamLike) -> Result:
        if out is None:
            out = self._new(x, self._y_shape, self.dtype)
        self._call.enqueue(self, (x, w, bias, out, None), stream)
        return out


class GemmReduceScatter(ReducedGemm):
    """Of R ranks: the sum over ranks of x [m, k/R] times w [n, k/R], of which each rank gets m/R rows.

    Parameters and failures: ParallelGemm.
    """

    _kind = 1

    def _shape_of_y(self) -> tuple[int, int]:
        return self.m // self.world.size, self.n


class GemmAllReduce(ReducedGemm):
    """Of R ranks: the sum over ranks of x [m, k/R] times w [n, k/R], which all ranks get.

    Parameters and failures: ParallelGemm.
    """

    _kind = 2

    def _shape_of_y(self) -> tuple[int, int]:
        return self.m, self.n
