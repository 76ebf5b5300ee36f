"""How a world begins: what tells the ranks of each other."""

from __future__ import annotations

import ctypes
import sys
from typing import TYPE_CHECKING, NamedTuple, Union

from . import _c
from .errors import InvalidArgumentError, check, error_of

if TYPE_CHECKING:
    import torch


class Seat(NamedTuple):
    """A rank that run() has started."""

    threads: int
    rank: int


GroupLike = Union[Seat, "torch.distributed.ProcessGroup", None]


def create(group: GroupLike, desc: ctypes.Structure) -> int:
    """A farwarp_world. Collective.

    Parameters
    ----------
    group : torch.distributed.ProcessGroup or Seat, optional
        None: the ranks that a launcher has started, else one rank alone.
    desc : WorldDesc
        The farwarp_world_desc.

    Returns
    -------
    int
        The handle.
    """
    world, address = ctypes.c_void_p(), ctypes.addressof(desc)
    to = ctypes.addressof(world)
    if isinstance(group, Seat):
        check(_c.lib.world_from_threads(group.threads, group.rank, address, to))
    elif group is not None:
        _create_from_group(group, address, to)
    elif _c.lib.environment_has_ranks():
        check(_c.lib.world_from_environment(address, to))
    else:
        alone = ctypes.c_void_p()
        check(_c.lib.threads_create(1, ctypes.addressof(alone)))
        code = _c.lib.world_from_threads(alone.value, 0, address, to)
        failure = error_of(code) if code else None
        _c.lib.threads_destroy(alone.value)
        if failure is not None:
            raise failure
    return world.value or 0


def _create_from_group(group: torch.distributed.ProcessGroup, desc: int, world: int) -> None:
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and group is distributed.GroupMember.NON_GROUP_MEMBER:
        raise InvalidArgumentError(
            "group has not this rank among its ranks; allowed: a group of which this process is a member"
        )
    if distributed is None or not isinstance(group, distributed.ProcessGroup):
        raise InvalidArgumentError(
            f"group is a {type(group).__name__}; allowed: None, a torch.distributed.ProcessGroup"
        )
    failures: list[BaseException] = []
    size = distributed.get_world_size(group)

    def allgather(_context: int, mine: int, nbytes: int, everyone: int) -> int:
        try:
            gathered = [b""] * size
            distributed.all_gather_object(gathered, ctypes.string_at(mine, nbytes), group=group)
            ctypes.memmove(everyone, b"".join(gathered), nbytes * size)
            return 0
        except BaseException as error:  # it must not leave a callback
            failures.append(error)
            return 1

    rank = distributed.get_rank(group)
    code = _c.lib.world_from_allgather(rank, size, _c.ALLGATHER(allgather), None, desc, world)
    if failures:
        raise failures[0]
    check(code)
