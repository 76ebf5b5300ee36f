"""Failures as exceptions: one class for each code of c.h.

Their text names the parameter, its value and what is allowed. Most are the library's, some the package's.
"""

from __future__ import annotations

import re

from . import _c

_STRUCT = re.compile(r"(?<!\S)(desc|sampling)\.(?=[a-z_]+\b)")  # of c.h; here its fields are arguments


class Error(RuntimeError):
    """A failure. `code` is that of c.h."""

    code = 0


class InvalidArgumentError(Error, ValueError):
    """A parameter is outside what is allowed."""

    code = 1


class UnavailableError(Error):
    """The machine lacks a device, a driver, a library or a kernel."""

    code = 2


class OutOfMemoryError(Error, MemoryError):
    """The device, the host or the symmetric heap has no room."""

    code = 3


class MismatchError(Error):
    """Ranks disagree."""

    code = 4


class MisuseError(Error):
    """Calls in an order that is not allowed: of a closed operator, in a child process, ..."""

    code = 5


class CapacityError(Error):
    """More rows arrived than there is room for."""

    code = 6


class BadInputError(Error):
    """A kernel found data that is not allowed, an expert that does not exist for one."""

    code = 7


class DeadlineError(Error, TimeoutError):
    """A wait passed its deadline; the text says who waited where for whom."""

    code = 8


class AbortedError(Error):
    """Another rank gave up; that rank's error says why."""

    code = 9


class PeerLostError(Error):
    """A rank is gone; the world is lost."""

    code = 10


class InternalError(Error):
    """A broken invariant of farwarp, or an unexpected error of a driver."""

    code = 11


_BY_CODE = {kind.code: kind for kind in Error.__subclasses__()}


def error_of(code: int) -> Error:
    """The failure of the calling thread's last call."""
    text = (_c.lib.message() or b"").decode(errors="replace")
    return _BY_CODE.get(code, InternalError)(_STRUCT.sub("", text))


def check(code: int) -> None:
    """Raises unless `code` is FARWARP_OK."""
    if code:
        raise error_of(code)
