"""Descriptors of the operators of both modes."""

from __future__ import annotations

import ctypes
from typing import Protocol

from .. import _c
from ..descriptor import new_desc, set_fields
from ..errors import check
from ..targets import TARGETS


class AnyShape(Protocol):
    """What the Shapes of both modes have."""

    @property
    def num_experts(self) -> int: ...
    @property
    def top_k(self) -> int: ...
    @property
    def hidden(self) -> int: ...
    @property
    def max_tokens(self) -> int: ...
    @property
    def index_type(self) -> str: ...


def descriptor(shape: AnyShape, **more: object) -> ctypes.Structure:
    """Of the shape of either mode, with the fields that only this mode has."""
    return set_fields(
        new_desc(_c.MoeDesc),
        num_experts=shape.num_experts,
        experts_per_token=shape.top_k,
        hidden=shape.hidden,
        max_tokens=shape.max_tokens,
        index_type=shape.index_type,
        **more,
    )


def heap_bytes_of(desc: ctypes.Structure, ranks: int, target: str, device: int) -> int:
    """Of the symmetric heap, for an operator."""
    result = ctypes.c_int64()
    check(_c.lib.moe_heap_bytes(ctypes.addressof(desc), TARGETS.index(target), device, ranks, ctypes.addressof(result)))
    return result.value
