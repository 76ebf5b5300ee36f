"""The worlds of this process: what becomes of them at its end, and in the child of a fork()."""

from __future__ import annotations

import atexit
import os
import weakref
from typing import Protocol

from .errors import MisuseError


class Member(Protocol):
    """A world, as this module sees it."""

    def leave(self) -> None:
        """Ends without the other ranks, unless it has ended."""

    def forked(self, why: str) -> None:
        """In the child of a fork(): cannot be used, for the reason that messages give."""


_members: weakref.WeakSet[Member] = weakref.WeakSet()
_used = False  # whether this process has had a world
_used_before_fork: str | None = None  # in the child of a process that had


def check_can_have_worlds() -> None:
    """Raise MisuseError in the child of a process that had a world: what runs devices has no threads there."""
    if _used_before_fork is not None:
        raise MisuseError(
            f"{_used_before_fork}; allowed: a process that begins anew, as multiprocessing's method 'spawn' starts it"
        )


def begin() -> None:
    """Before a world is created: from now on children of fork() can have none."""
    global _used
    _used = True


def add(world: Member) -> None:
    """Of a world that was created. It is held weakly."""
    _members.add(world)


def _leave_all() -> None:
    for world in list(_members):
        world.leave()


def _forked() -> None:
    """In the child: its copy of a world has no place among the ranks."""
    global _used_before_fork
    parent = os.getppid()
    if _used:
        _used_before_fork = f"farwarp was used before fork(), in process {parent}"
    for world in _members:
        world.forked(f"the World was created before fork(), in process {parent}")


atexit.register(_leave_all)
os.register_at_fork(after_in_child=_forked)
