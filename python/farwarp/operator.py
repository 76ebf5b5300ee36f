"""What all operators share: creation, closing, and tensors for results."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from types import TracebackType
from typing import TypeVar

from . import _c
from .arguments import NotCopyable
from .array import Array
from .errors import InvalidArgumentError, MisuseError, check
from .tensors import Result, Tensor, is_torch
from .world import World

__all__ = ["Operator"]

Self = TypeVar("Self", bound="Operator")


def check_world(world: World) -> World:
    """A caller's `world`, if it is one."""
    if not isinstance(world, World):
        raise InvalidArgumentError(f"world is a {type(world).__name__}; allowed: a farwarp.World")
    return world


class Operator(NotCopyable):
    """Created once, collectively, by all ranks of a world, and called many times.

    It is closed with its world, or by close(), or by `with`.

    Calls take farwarp.Array and torch tensors in the memory of the world's device; on the emulator also NumPy arrays
    and torch tensors in the host's memory, which are copied. Results are what `out=` names, which is then returned;
    else new torch tensors if the first input is one on the device, else new Arrays. Calls only enqueue, on `stream`
    (farwarp.Stream, torch.cuda.Stream, a handle), or torch's current stream on a GPU, or the default stream. They can
    be captured in CUDA graphs. What a kernel finds later is raised by later calls of operators, World.check(),
    World.synchronize() and Array.numpy(), and when the world is closed. torch tensors that are used on a side stream
    need torch's record_stream(), as always.

    Failures that are known at once are raised at once: InvalidArgumentError names the parameter, its value and what is
    allowed, MisuseError is that of a closed operator or a call out of its order.

    Attributes
    ----------
    world : World
        Whose operator it is.
    handle : ctypes.c_void_p or None
        What C calls it by; None: it is closed.
    torch_name : str or None
        That torch_ops.register() has given it.
    """

    _c_prefix = ""  # its functions of c.h are farwarp_PREFIX_...
    _copying = "another operator, which all ranks create"
    torch_name: str | None = None

    def _open(self, world: World, desc: ctypes.Structure) -> None:
        """Collective."""
        self.handle: ctypes.c_void_p | None = None
        self.world = check_world(world)
        handle = ctypes.c_void_p()
        with world.exclusive():
            world.check_open()
            create = getattr(_c.lib, self._c_prefix + "_create")
            check(create(world.handle, ctypes.addressof(desc), ctypes.addressof(handle)))
            self.handle = handle
            world.operators.add(self)

    def close(self) -> None:
        """Close it, after the streams of the world's calls. Collective. Does nothing if it is closed.

        Raises
        ------
        Error
            A call has failed, or closing.
        """
        if self.handle is None:
            return
        with self.world.exclusive():
            self.world.synchronize()
            if self.handle is not None:  # another thread has not closed it meanwhile
                self.close_handle()

    def close_handle(self) -> None:
        """Close it without waiting: the streams that used it are idle. Collective; for close() and the world."""
        handle, self.handle = self.handle, None
        self.world.operators.remove(self)
        check(getattr(_c.lib, self._c_prefix + "_close")(handle))

    def recovered(self) -> None:
        """After World.recover(), which calls it."""

    def forked(self) -> None:
        """In the child of a fork(): the handle is of no use."""
        self.handle = None

    def __enter__(self: Self) -> Self:
        self.open_handle()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """close(); not after an exception, because the other ranks may not close it now: the world does it."""
        if kind is None:
            self.close()

    def open_handle(self) -> ctypes.c_void_p:
        """What C calls it by; MisuseError if it is closed."""
        handle = self.handle
        if handle is None:
            self.world.check_open()
            raise MisuseError(f"{type(self).__name__} is closed; allowed: calls before close()")
        return handle

    def _new(self, like: Tensor, shape: Sequence[int], dtype: str) -> Result:
        """A tensor for a result: of torch if `like` is one on the device.

        Not for an operator that cannot be called: in the child of a fork() torch would refuse in its own words.
        """
        if self.handle is None:
            self.open_handle()
        if self.world.emulated or isinstance(like, Array) or not is_torch(like):
            return Array(self.world, shape, dtype)
        made: Result = like.new_empty(shape, dtype=getattr(sys.modules["torch"], dtype))
        return made
