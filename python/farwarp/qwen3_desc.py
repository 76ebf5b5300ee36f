"""What a Qwen3 is created from, the room that it needs, and how its answers end."""

from __future__ import annotations

import ctypes
import operator
import os
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypedDict, Union

from . import _c
from .arguments import shown, whole
from .descriptor import choice, new_desc, set_fields
from .errors import InvalidArgumentError, check
from .targets import choose_target, target_number

if TYPE_CHECKING:
    from typing_extensions import TypeIs  # not needed to run

    from .device_streams import StreamLike

Ids = Sequence[int]
Prompt = Union[str, Ids]
Answer = Union[str, "list[int]"]

_MOST_END_TOKENS = 8  # FARWARP_MOST_END_TOKENS
_VECTORS = ("faster", "packets", "streamed")  # in the order of farwarp_qwen3_vectors
_WORLD_BYTES = 1 << 20  # of the heap, beside what a decoder takes


class Limits(TypedDict, total=False):
    """Parameters of Qwen3 that the room depends on, and seed, which only random weights depend on."""

    seed: int
    sequences: int
    positions: int
    most_top_k: int
    prefill_tokens: int
    max_sms: int
    splits: int
    vectors: str


class Arguments(Limits, total=False):
    """Parameters of Qwen3 that have defaults."""

    target: str


class Options(TypedDict, total=False):
    """Those of Qwen3.stream()."""

    end_token: int | Sequence[int] | None
    temperature: float | None
    top_k: int
    top_p: float
    seed: int
    tokens_per_launch: int
    stream: StreamLike


def descriptor(model: str, limits: Limits) -> _c.Desc:
    """The farwarp_qwen3_desc of a model with limits of the class."""
    vectors = choice("vectors", limits.get("vectors", "faster"), _VECTORS)
    desc = set_fields(new_desc(_c.Qwen3Desc), **{**limits, "vectors": vectors})
    try:
        desc.model = os.fsencode(model)
    except (TypeError, ValueError):
        raise InvalidArgumentError(f"model is {shown(model)}; allowed: a folder, random:NAME") from None
    if b"\0" in os.fsencode(model):  # C would see its beginning
        raise InvalidArgumentError(f"model is {shown(model)}; allowed: a name without zero bytes")
    return desc


def heap_bytes(model: str, ranks: int, target: str, device: int, limits: Limits) -> int:
    """What Qwen3.heap_bytes() says."""
    needed = ctypes.c_int64()
    number = target_number(choose_target(target))
    desc = descriptor(model, limits)
    device, ranks = whole("device", device, 0, 2**31 - 1), whole("ranks", ranks, 1, 8)
    check(_c.lib.qwen3_heap_bytes(ctypes.addressof(desc), number, device, ranks, ctypes.addressof(needed)))
    return needed.value + _WORLD_BYTES


def launched_ranks() -> int:
    """Ranks that a launcher has started; 1 without one."""
    rank, ranks = ctypes.c_int32(), ctypes.c_int32()
    check(_c.lib.environment_ranks(ctypes.addressof(rank), ctypes.addressof(ranks)))
    return ranks.value


def generation(handle: ctypes.c_void_p) -> tuple[tuple[int, ...], dict[str, float]]:
    """What the model's generation_config.json says: its end tokens, and how tokens are drawn."""
    tokens, count, asked = (ctypes.c_int32 * _MOST_END_TOKENS)(), ctypes.c_int32(), new_desc(_c.Sampling)
    check(_c.lib.qwen3_generation(handle, *(ctypes.addressof(one) for one in (tokens, count, asked))))
    sampling = {"temperature": asked.temperature, "top_k": asked.top_k, "top_p": asked.top_p}
    return tuple(tokens[: count.value]), sampling if asked.temperature != 0 else {}


def end_tokens(given: int | Sequence[int], vocabulary: int) -> list[int]:
    """A caller's end_token, which is a token or several; InvalidArgumentError unless there are such tokens."""
    allowed = f"None, or up to {_MOST_END_TOKENS} tokens of 0 to {vocabulary - 1}"
    try:
        tokens = [whole("end_token", token) for token in ([given] if _is_integer(given) else given)]
    except (TypeError, InvalidArgumentError):
        raise InvalidArgumentError(f"end_token is {given!r}; allowed: {allowed}") from None
    if len(tokens) > _MOST_END_TOKENS or not all(0 <= token < vocabulary for token in tokens):
        raise InvalidArgumentError(f"end_token is {given!r}; allowed: {allowed}")
    return tokens


def _is_integer(value: object) -> TypeIs[int]:
    try:
        operator.index(value)  # type: ignore[arg-type]  # what is none raises
    except TypeError:
        return False
    return True


def sampling_of(asked: dict[str, float], temperature: float | None, top_k: int, top_p: float, seed: int) -> _c.Desc:
    """The farwarp_sampling of a call of Qwen3's, in whose caller's name it warns; `asked`: as generation() says."""
    if temperature is None:
        temperature = 0.0
        if asked and top_k == 0:
            values = ", ".join(f"{name}={value:g}" for name, value in asked.items())
            warnings.warn(
                f"the model asks for draws: {values}; without a temperature the best tokens are taken", stacklevel=4
            )
    return set_fields(new_desc(_c.Sampling), temperature=temperature, top_k=top_k, top_p=top_p, seed=seed)


def is_token(value: object) -> bool:
    """Whether it is a token, where a prompt may be."""
    return hasattr(value, "__index__") and getattr(value, "ndim", 0) == 0  # arrays have it, too
