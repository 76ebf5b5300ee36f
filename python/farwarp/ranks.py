"""run(): ranks as threads of this process."""

from __future__ import annotations

import contextlib
import ctypes
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Callable, TypeVar

from . import _c
from .arguments import MOST_DEADLINE, milliseconds, whole
from .creation import Seat
from .errors import AbortedError, MisuseError, PeerLostError, check
from .targets import choose_target
from .world import World

Returned = TypeVar("Returned")

_here = threading.local()  # depth: of how many run()s this thread is a rank
_turns: defaultdict[int, threading.Lock] = defaultdict(threading.Lock)  # of the ranks of each depth


@contextlib.contextmanager
def _turn(depth: int, deadline: float) -> Iterator[None]:
    """Calls of run() by several threads, or by several ranks of one, take turns.

    They share devices, on which kernels of several worlds that wait for peers may not fit at the same time.
    """
    if not _turns[depth].acquire(timeout=deadline):
        whose = "another rank's run()" if depth > 0 else "another thread's run()"
        raise MisuseError(f"run() was called, and {whose} has not ended within {deadline} s; allowed: one at a time")
    try:
        yield
    finally:
        _turns[depth].release()


def run(
    function: Callable[..., Returned],
    ranks: int = 4,
    target: str = "emu_sm90",
    args: Sequence[object] = (),
    *,
    deadline: float = 10.0,
    heap_bytes: int = 256 << 20,
) -> list[Returned]:
    """Call function(world, *args) on threads, each with a World of its own.

    An exception on one rank ends the waits of all, and is raised. Waits of the function's own (a barrier, a queue) it
    has to end itself. Threads that call run() at the same time take turns, and so do ranks that call it.

    Parameters
    ----------
    function : callable
        What each rank does.
    ranks : int
        1 to 8.
    target : str
        As of World, but the emulator if it is not given: there each rank has a device on any machine, and operators
        take NumPy arrays. On GPUs, also by "auto", each rank needs the GPU of its number.
    deadline, heap_bytes
        As of World.
    args : sequence
        Further arguments of the function.

    Returns
    -------
    list
        What each rank has returned.

    Raises
    ------
    InvalidArgumentError
        A parameter is outside what is allowed.
    MisuseError
        Another thread's or rank's run() has not ended within the deadline.
    """
    ranks = whole("ranks", ranks, 1, 8)
    depth = getattr(_here, "depth", 0)
    with _turn(depth, milliseconds("deadline", deadline, MOST_DEADLINE) / 1000):
        return _run(function, ranks, target, args, depth, deadline, heap_bytes)


def _run(
    function: Callable[..., Returned],
    ranks: int,
    target: str,
    args: Sequence[object],
    depth: int,
    deadline: float,
    heap_bytes: int,
) -> list[Returned]:
    target = choose_target(target)
    threads = ctypes.c_void_p()
    results: dict[int, Returned] = {}  # by ranks
    failures: list[tuple[int, BaseException]] = []  # in the order of time

    def work(rank: int) -> None:
        _here.depth = depth + 1
        try:
            with World(Seat(threads.value or 0, rank), target, deadline=deadline, heap_bytes=heap_bytes) as world:
                try:
                    results[rank] = function(world, *args)
                except BaseException as error:
                    failures.append((rank, error))  # before the others see that this rank leaves
                    raise
        except BaseException as error:
            failures.append((rank, error))

    started = [threading.Thread(target=work, args=(rank,), name=f"rank {rank}") for rank in range(ranks)]
    check(_c.lib.threads_create(ranks, ctypes.addressof(threads)))
    try:
        for thread in started:
            thread.start()
        for thread in started:
            thread.join()
    except BaseException:  # KeyboardInterrupt, or a thread that cannot start: each rank gets it when its call returns
        begun = [thread for thread in started if thread.ident is not None]
        for thread in begun:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(thread.ident or 0), ctypes.py_object(KeyboardInterrupt)
            )
        for thread in begun:
            thread.join()
        raise
    finally:
        _c.lib.threads_destroy(threads.value)
    if failures:
        first = [
            failure for failure in failures if not isinstance(failure[1], (AbortedError, PeerLostError))
        ] or failures
        rank, error = first[0]
        if hasattr(error, "add_note"):  # Python 3.11
            error.add_note(f"on rank {rank} of {ranks}")
        raise error
    return [results[rank] for rank in range(ranks)]
