"""Kinds of devices."""

from __future__ import annotations

from . import _c
from .arguments import shown
from .errors import InvalidArgumentError

TARGETS = ("cuda", "hip", "emu_sm90", "emu_gfx942")  # in the order of farwarp_target


def device_count(target: str) -> int:
    """Devices of a target on this machine that this build has kernels for.

    Parameters
    ----------
    target : str
        "cuda", "hip", "emu_sm90" or "emu_gfx942".

    Returns
    -------
    int
        0 if there is none. The emulator has 8.

    Raises
    ------
    InvalidArgumentError
        There is no such target.
    """
    count: int = _c.lib.device_count(target_number(target))
    return count


def choose_target(target: str) -> str:
    """What a World's `target` stands for on this machine.

    Parameters
    ----------
    target : str
        "auto", or a target.

    Returns
    -------
    str
        Of "auto" "cuda" if there is such a device, else "hip", else "emu_sm90". Anything else is returned as it is.
    """
    if not isinstance(target, str) or target != "auto":
        return target
    return next((name for name in ("cuda", "hip") if device_count(name) > 0), "emu_sm90")


def target_number(target: str) -> int:
    """As c.h has it."""
    if not isinstance(target, str) or target not in TARGETS:
        raise InvalidArgumentError(f"target is {shown(target)}; allowed: auto, {', '.join(TARGETS)}")
    return TARGETS.index(target)
