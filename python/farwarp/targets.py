"""Kinds of devices."""

from __future__ import annotations

from . import _c
from .arguments import shown
from .errors import InvalidArgumentError

TARGETS = ("cuda", "hip", "emu_sm90", "emu_gfx942")  # in the order of farwarp_target


def device_count(target: str) -> int:
    """Devices of a target on this machine that this build has kernels for. The emulator has 8."""
    return _c.lib.device_count(target_number(target))


def choose_target(target: str) -> str:
    """What "auto" stands for on this machine: "cuda", else "hip", else "emu_sm90"."""
    if not isinstance(target, str) or target != "auto":
        return target
    return next((name for name in ("cuda", "hip") if device_count(name) > 0), "emu_sm90")


def target_number(target: str) -> int:
    """As c.h has it."""
    if not isinstance(target, str) or target not in TARGETS:
        raise InvalidArgumentError(f"target is {shown(target)}; allowed: auto, {', '.join(TARGETS)}")
    return TARGETS.index(target)
