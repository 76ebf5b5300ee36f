"""Products of matrices on one device."""

from __future__ import annotations

from typing import overload

from . import _c, dtypes
from .arguments import flag
from .array import Array
from .call import Call
from .descriptor import choice, new_desc, set_fields
from .device_streams import StreamLike
from .operator import Operator
from .tensors import HostTensor, Result, ResultT, Tensor, TensorSpec
from .world import World

_SCALINGS = ("blocks", "rows", "tensor")  # in the order of farwarp_gemm_scaling, after its first


class OneResult(Operator):
    """Calls of products that have one result: of Gemm, GemmReduceScatter and GemmAllReduce."""

    @overload
    def __call__(
        self, x: Tensor, w: Tensor, bias: Tensor | None = None, *, out: ResultT, stream: StreamLike = None
    ) -> ResultT: ...
    @overload
    def __call__(
        self, x: HostTensor, w: Tensor, bias: Tensor | None = None, *, out: None = None, stream: StreamLike = None
    ) -> Array: ...
    @overload
    def __call__(
        self, x: Tensor, w: Tensor, bias: Tensor | None = None, *, out: None = None, stream: StreamLike = None
    ) -> Result: ...
    def __call__(
        self,
        x: Tensor,
        w: Tensor,
        bias: Tensor | None = None,
        *,
        out: Result | None = None,
        stream: StreamLike = None,
    ) -> Result:
        """Enqueue a product. Gemm's is of this rank alone; of the other classes every rank calls it.

        Parameters
        ----------
        x : tensor [m, k/R], of Gemm [m, k]
            Of the operator's dtype, as all tensors here. Of R ranks this rank's part of k.
        w : tensor [n, k/R], of Gemm [n, k]
            The transpose of the second factor. Of R ranks this rank's part.
        bias : tensor [n], optional
            Given exactly if the operator has one.
        out : tensor, optional
            For the result, of its shape; messages of the library call it y. It must not overlap an input. None: a new
            tensor.
        stream : farwarp.Stream, torch.cuda.Stream or int, optional
            None: the current stream.

        Returns
        -------
        Array or torch.Tensor
            `out`, or a new tensor: [m, n]; of GemmReduceScatter [m/R, n].

        Raises
        ------
        InvalidArgumentError
            A tensor's shape, type, strides or device is not allowed, or tensors overlap.
        MisuseError
            The operator is closed.
        """
        return self._product(x, w, bias, out, stream)

    def _product(self, x: Tensor, w: Tensor, bias: Tensor | None, out: Result | None, stream: StreamLike) -> Result:
        raise NotImplementedError


class Gemm(OneResult):
    """y = x @ w.T (+ bias), with sums in fp32, rounded once. Collective to create; a world of one rank is enough.

    Parameters
    ----------
    world : World
        Whose device has the tensors.
    m, n, k : int
        Sizes; n and k are multiples of 8.
    bias : bool
        Whether calls have one.
    dtype : str, numpy.dtype or torch.dtype
        "bfloat16" or "float16", of all tensors.
    max_sms : int
        Multiprocessors of a call; 0: all.

    Raises
    ------
    InvalidArgumentError
        A parameter is outside what is allowed.
    OutOfMemoryError
        The symmetric heap has no room.
    MisuseError
        The world is closed.
    """

    _c_prefix = "gemm"

    def __init__(
        self,
        world: World,
        m: int,
        n: int,
        k: int,
        *,
        bias: bool = False,
        dtype: dtypes.DTypeLike = "bfloat16",
        max_sms: int = 0,
    ) -> None:
        desc = new_desc(_c.GemmDesc)
        self._open(world, set_fields(desc, m=m, n=n, k=k, has_bias=flag("bias", bias), dtype=dtype, max_sms=max_sms))
        self.m, self.n, self.k, self.dtype = m, n, k, dtypes.name_of(dtype)
        self._call = Call(world, "gemm_call", "x w bias", "out", optional="" if bias else "bias")

    def result_specs(self) -> tuple[TensorSpec, ...]:
        """Shape and type of each result of a call."""
        return (TensorSpec((self.m, self.n), self.dtype),)

    def _product(self, x: Tensor, w: Tensor, bias: Tensor | None, out: Result | None, stream: StreamLike) -> Result:
        if out is None:
            out = self._new(x, (self.m, self.n), self.dtype)
        self._call.enqueue(self, (x, w, bias, out), stream)
        return out


class Fp8Gemm(Operator):
    """y = x @ w.T (+ bias) of e4m3 numbers with scales, on Hopper. Collective to create, as Gemm.

    Sums of 128 of k are scaled and added in fp32, and the result is rounded once.

    Parameters
    ----------
    world : World
        Whose device has the tensors.
    m, n, k : int
        Sizes; n is a multiple of 8, k of 16.
    scaling : str
        What shares a scale. "blocks": 128 of k of a row of x, and 128 x 128 of w, as in DeepSeek-V3's checkpoints;
        "rows": a row of x, and one of w; "tensor": all of x, and all of w.
    x_scale_by_column : bool
        With "blocks": x_scale is [ceil(k / 128), m] and not its transpose.
    bias : bool
        Whether calls have one.
    dtype : str, numpy.dtype or torch.dtype
        "bfloat16" or "float16", of the result and the bias.
    max_sms : int
        Multiprocessors of a call; 0: all.

    Raises
    ------
    InvalidArgumentError
        A parameter is outside what is allowed, or the device is no Hopper.
    OutOfMemoryError
        The symmetric heap has no room.
    MisuseError
        The world is closed.
    """

    _c_prefix = "gemm"

    def __init__(
        self,
        world: World,
        m: int,
        n: int,
        k: int,
        *,
        scaling: str = "blocks",
        x_scale_by_column: bool = False,
        bias: bool = False,
        dtype: dtypes.DTypeLike = "bfloat16",
        max_sms: int = 0,
    ) -> None:
        desc = new_desc(_c.GemmDesc)
        self._open(
            world,
            set_fields(
                desc,
                m=m,
                n=n,
                k=k,
                scaling=1 + choice("scaling", scaling, _SCALINGS),
                x_scale_by_column=x_scale_by_column,
                has_bias=flag("bias", bias),
                dtype=dtype,
                max_sms=max_sms,
            ),
        )
        self.m, self.n, self.k, self.scaling, self.dtype = m, n, k, scaling, dtypes.name_of(dtype)
        optional = "" if bias else "bias"
        self._call = Call(world, "gemm_call_scaled", "x w x_scale w_scale bias", "out", optional=optional)

    def result_specs(self) -> tuple[TensorSpec, ...]:
        """Shape and type of each result of a call."""
        return (TensorSpec((self.m, self.n), self.dtype),)

    def __call__(
        self,
        x: Tensor,
        w: Tensor,
        x_scale: Tensor,
        w_scale: Tensor,
        bias: Tensor | None = None,
        *,
        out: Result | None = None,
        stream: StreamLike = None,
    ) -> Result:
        """Enqueue a product of this rank.

        Parameters
        ----------
        x : tensor [m, k]
            e4m3 numbers: of uint8, on a GPU also of torch.float8_e4m3fn.
        w : tensor [n, k]
            The transpose of the second factor; of the same type.
        x_scale : tensor
            float32; a number of x times its scale is the number meant. "blocks": [m, ceil(k / 128)]; "rows": [m];
            "tensor": [1].
        w_scale : tensor
            The same of w. "blocks": [ceil(n / 128), ceil(k / 128)]; "rows": [n]; "tensor": [1].
        bias : tensor [n], optional
            Given exactly if the operator has one.
        out : tensor [m, n], optional
            For the result; messages of the library call it y. It must not overlap an input. None: a new tensor.
        stream : farwarp.Stream, torch.cuda.Stream or int, optional
            None: the current stream.

        Returns
        -------
        Array or torch.Tensor [m, n]
            `out`, or a new tensor.

        Raises
        ------
        InvalidArgumentError
            A tensor's shape, type, strides or device is not allowed, or tensors overlap.
        MisuseError
            The operator is closed.
        """
        if out is None:
            out = self._new(x, (self.m, self.n), self.dtype)
        self._call.enqueue(self, (x, w, x_scale, w_scale, bias, out), stream)
        return out
