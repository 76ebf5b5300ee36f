"""What all operators share: creation, closing, and tensors for results."""

from __future__ import annotations

import ctypes
import sys
from typing import Any, Sequence

from . import _c
from .arguments import Handle
from .array import Array
from .call import Tensor, is_torch
from .errors import InvalidArgumentError, MisuseError, check
from .world import World

__all__ = ["Operator", "Tensor"]


class Operator(Handle):
    """Created once, collectively, by all ranks of a world, and called many times. It is closed with its world, or by
    close(), or by `with`.

    Calls take farwarp.Array and torch tensors in the memory of the world's device; on the emulator also NumPy arrays
    and torch tensors in the host's memory, which are copied. Results are what `out=` names, which is then returned;
    else new torch tensors if the first input is one on the device, else new Arrays. Calls only enqueue, on `stream`
    (farwarp.Stream, torch.cuda.Stream, a handle), or torch's current stream on a GPU, or the default stream. They can
    be captured in CUDA graphs. What a kernel finds later is raised by World.check(), by Array.numpy(), and when the
    world is closed. torch tensors that are used on a side stream need torch's record_stream(), as always.

    Failures that are known at once are raised at once: InvalidArgumentError names the parameter, its value and what is
    allowed.
    """

    _name = ""  # of its functions in c.h
    _copying = "another operator, which all ranks create"
    _torch_name: str | None = None  # that torch_ops.register() has given it

    def _open(self, world: World, desc: ctypes.Structure) -> None:
        """Collective."""
        self._handle: ctypes.c_void_p | None = None
        if not isinstance(world, World):
            raise InvalidArgumentError(f"world is a {type(world).__name__}; allowed: a farwarp.World")
        self.world = world
        handle = ctypes.c_void_p()
        with world._lock:
            world._usable()
            check(getattr(_c.lib, self._name + "_create")(world._handle, ctypes.addressof(desc), ctypes.addressof(handle)))
            self._handle = handle
            world._operators[id(self)] = self

    def close(self) -> None:
        """Collective; waits for the streams of the world's calls first. Does nothing if it is closed."""
        if self._handle is None:
            return
        with self.world._lock:
            self.world.synchronize()
            if self._handle is not None:  # another thread has not closed it meanwhile
                self._close()

    def _close(self) -> None:
        handle, self._handle = self._handle, None
        self.world._operators.pop(id(self), None)
        check(getattr(_c.lib, self._name + "_close")(handle))

    def _recovered(self) -> None:
        """After World.recover()."""

    def __enter__(self) -> Any:
        self._open_handle()
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        """close(); not after an exception, because the other ranks may not close it now: the world does it."""
        if kind is None:
            self.close()

    def _open_handle(self) -> ctypes.c_void_p:
        handle = self._handle
        if handle is None:
            self.world._usable()
            raise MisuseError(f"{type(self).__name__} is closed; allowed: calls before close()")
        return handle

    def _new(self, like: Any, shape: Sequence[int], dtype: str) -> Any:
        """A tensor for a result: of torch if `like` is one on the device. Not for an operator that cannot be called: in the
        child of a fork() torch would refuse in its own words."""
        if self._handle is None:
            self._open_handle()
        if self.world.emulated or like.__class__ is Array or not is_torch(like):
            return Array(self.world, shape, dtype)
        return like.new_empty(shape, dtype=getattr(sys.modules["torch"], dtype))
