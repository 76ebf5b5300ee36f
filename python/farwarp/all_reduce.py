"""The sum over all ranks, on each of them."""

from __future__ import annotations

from typing import overload

from . import _c, dtypes
from .arguments import shape_of
from .array import Array
from .call import Call
from .descriptor import choice, new_desc, set_fields
from .device_streams import StreamLike
from .operator import Operator
from .tensors import HostTensor, Result, ResultT, Tensor, TensorSpec
from .world import World

_MODES = ("auto", "one_shot", "two_shot")  # in the order of farwarp_all_reduce_mode


class AllReduce(Operator):
    """out = the sum over ranks of x: terms are added in fp32 in the order of the ranks, and rounded once.

    Collective to create, and every rank makes every call, with the same number of elements.

    Parameters
    ----------
    world : World
        Whose ranks have the terms.
    max_elements : int
        Of a call.
    dtype : str, numpy.dtype or torch.dtype
        "bfloat16", "float16" or "float32", of all tensors.
    mode : str
        "one_shot" (each rank sends all to all), "two_shot" (each rank adds a part and sends it to all) or "auto" (by
        the size of the call). All give the same bits.
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
    MisuseError
        The world is closed.
    """

    _c_prefix = "all_reduce"

    def __init__(
        self,
        world: World,
        max_elements: int,
        *,
        dtype: dtypes.DTypeLike = "bfloat16",
        mode: str = "auto",
        max_sms: int = 0,
    ) -> None:
        desc = new_desc(_c.AllReduceDesc)
        number = choice("mode", mode, _MODES)
        self._open(world, set_fields(desc, max_elements=max_elements, dtype=dtype, mode=number, max_sms=max_sms))
        self.max_elements, self.dtype = max_elements, dtypes.name_of(dtype)
        self._call = Call(world, "all_reduce_call", "x", "out")

    def result_specs(self, x: Tensor) -> tuple[TensorSpec, ...]:
        """Shape and type of each result of a call."""
        return (TensorSpec(shape_of("x", x), self.dtype),)

    @overload
    def __call__(self, x: Tensor, *, out: ResultT, stream: StreamLike = None) -> ResultT: ...
    @overload
    def __call__(self, x: HostTensor, *, out: None = None, stream: StreamLike = None) -> Array: ...
    @overload
    def __call__(self, x: Tensor, *, out: None = None, stream: StreamLike = None) -> Result: ...
    def __call__(self, x: Tensor, *, out: Result | None = None, stream: StreamLike = None) -> Result:
        """Enqueue a sum. Every rank calls it.

        Parameters
        ----------
        x : tensor
            Of any shape with up to max_elements elements, of the operator's dtype. It begins at a multiple of 16 bytes.
        out : tensor, optional
            Like x: x itself, or one that does not overlap it. None: a new tensor.
        stream : farwarp.Stream, torch.cuda.Stream or int, optional
            None: the current stream.

        Returns
        -------
        Array or torch.Tensor
            `out`, or a new tensor, of x's shape.

        Raises
        ------
        InvalidArgumentError
            A tensor's size, type, strides, address or device is not allowed.
        MisuseError
            The operator is closed.
        """
        if out is None:
            out = self._new(x, shape_of("x", x), self.dtype)
        self._call.enqueue(self, (x, out), stream)
        return out
