"""Numbers, flags, durations and shapes that callers pass: what is not exactly what it stands for is refused."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import NoReturn, SupportsIndex

import numpy as np

from .errors import InvalidArgumentError, MisuseError

MOST_SECONDS = 10**9
MOST_DEADLINE = 86400
"""A day, in seconds: the longest deadline of a World."""
_MOST_SHOWN = 80


def shown(value: object) -> str:
    """How a message shows it."""
    text = repr(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[: _MOST_SHOWN - 3]}..."


def _refuse(name: str, value: object, allowed: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"{name} is {shown(value)}; allowed: {allowed}")


def whole(name: str, value: object, least: int | None = None, most: int | None = None) -> int:
    """A whole number: an int, or what is one exactly, as NumPy's integers and torch's sizes. No bool, no float."""
    try:
        if isinstance(value, (bool, np.bool_)):
            raise TypeError
        number = operator.index(value)  # type: ignore[arg-type]  # what is no number raises
    except (TypeError, ValueError, RuntimeError):  # torch raises the last for tensors without data
        raise _refuse(name, value, "a whole number") from None
    if (least is not None and number < least) or (most is not None and number > most):
        allowed = (
            f"{least} to {most}"
            if least is not None and most is not None
            else f"{least} or more"
            if most is None
            else f"up to {most}"
        )
        raise _refuse(name, number, allowed)
    return number


def real(name: str, value: object, allowed: str = "a number") -> float:
    """A finite number: a float, or what is one, as NumPy's scalars. No bool, no text, no complex number."""
    if (
        isinstance(value, (bool, np.bool_, str, bytes, bytearray, complex, np.complexfloating))
        or getattr(value, "ndim", 0) != 0
    ):
        raise _refuse(name, value, allowed)
    try:
        number = float(value)  # type: ignore[arg-type]  # what is no number raises
    except (TypeError, ValueError, OverflowError, RuntimeError):
        raise _refuse(name, value, allowed) from None
    if number - number != 0:  # infinite, or not a number
        raise _refuse(name, value, allowed)
    return number


def flag(name: str, value: object) -> int:
    """True or False, as C takes it; also 1 and 0."""
    if isinstance(value, (bool, np.bool_)):
        return int(value)
    try:
        return whole(name, value, 0, 1)
    except InvalidArgumentError:
        raise _refuse(name, value, "True, False") from None


def milliseconds(name: str, seconds: object, most: int = MOST_SECONDS) -> int:
    """A duration as C takes it, at most `most` seconds."""
    allowed = f"0.001 to {most} seconds"
    number = real(name, seconds, allowed)
    if not 0.001 <= number <= most:
        raise _refuse(name, seconds, allowed)
    return int(number * 1000)


def shape(sizes: object, item_bytes: int = 1, name: str = "shape") -> tuple[int, ...]:
    """A tensor's sizes as a tuple; InvalidArgumentError unless its bytes can be counted."""
    if isinstance(sizes, (str, bytes)) or not isinstance(sizes, Iterable):
        raise _refuse(name, sizes, "a sequence of sizes")
    numbers = tuple(whole(f"{name}[{i}]", size) for i, size in enumerate(sizes))
    if any(size < 0 for size in numbers):
        raise _refuse(name, numbers, "sizes of 0 or more")
    total = item_bytes
    for size in numbers:
        total *= max(size, 1)
    if total >= 2**63:
        raise _refuse(name, numbers, "up to 2**63 - 1 bytes")
    return numbers


def shape_of(name: str, tensor: object) -> tuple[int, ...]:
    """That of a tensor that a caller has given."""
    try:
        return tuple(tensor.shape)  # type: ignore[attr-defined]  # what has none raises
    except (AttributeError, TypeError):
        raise InvalidArgumentError(
            f"{name} is a {type(tensor).__name__}; allowed: a farwarp.Array, a numpy.ndarray, a torch.Tensor"
        ) from None


class NotCopyable:
    """What holds a handle of C. A copy would close it twice, or use it after its end."""

    __slots__ = ()
    _copying = "one object for each"  # what a message says is allowed

    def _refuse_copy(self, how: str) -> MisuseError:
        return MisuseError(f"a {type(self).__name__} is {how}; allowed: {self._copying}")

    def __copy__(self) -> NoReturn:
        raise self._refuse_copy("copied")

    def __deepcopy__(self, _memo: object) -> NoReturn:
        raise self._refuse_copy("copied")

    def __reduce_ex__(self, _protocol: SupportsIndex) -> NoReturn:
        raise self._refuse_copy("pickled")
