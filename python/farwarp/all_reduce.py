"""The sum over all ranks, on each of them."""

from __future__ import annotations

from typing import Any

from . import _c, dtypes
from .arguments import shape_of
from .call import Call, Tensor
from .descriptor import choice, given, new_desc
from .operator import Operator
from .world import World

_MODES = ("auto", "one_shot", "two_shot")  # in the order of farwarp_all_reduce_mode


class AllReduce(Operator):
    """out = the sum over ranks of x: terms are added in fp32 in the order of the ranks, and rounded once. Collective to
    create, and every rank makes every call, with the same number of elements.

    max_elements: of a call.
    dtype: "bfloat16", "float16" or "float32", of all tensors.
    mode: "one_shot" (each rank sends all to all), "two_shot" (each rank adds a part and sends it to all) or "auto" (by
        the size of the call). All give the same bits.
    max_sms: multiprocessors of a call; 0: all.
    """

    _name = "all_reduce"

    def __init__(self, world: World, max_elements: int, *, dtype: Any = "bfloat16", mode: str = "auto", max_sms: int = 0) -> None:
        desc = new_desc(_c.AllReduceDesc)
        self._open(world, given(desc, max_elements=max_elements, dtype=dtype, mode=choice("mode", mode, _MODES), max_sms=max_sms))
        self.max_elements, self.dtype = max_elements, dtypes.name_of(dtype)
        self._call = Call(world, "all_reduce_call", "x", "out")

    def _results(self, x: Tensor) -> tuple:
        """Shape and type of each result of a call."""
        return ((x.shape, self.dtype),)

    def __call__(self, x: Tensor, *, out: Tensor | None = None, stream: Any = None) -> Any:
        """x, any shape -> the same shape. `out` is x itself or does not overlap it; both begin at multiples of 16 bytes."""
        if out is None:
            out = self._new(x, shape_of("x", x), self.dtype)
        self._call.enqueue(self, (x, out), stream)
        return out
