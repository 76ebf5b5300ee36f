"""Worlds and operators of symm_mem's groups."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypedDict

import torch

from .errors import InvalidArgumentError, MisuseError
from .operator_cache import OperatorCache, OperatorT
from .world import World

if TYPE_CHECKING:
    from typing_extensions import Unpack  # not needed to run


class WorldOptions(TypedDict, total=False):
    """World's."""

    target: str
    device: int
    deadline: float
    heap_bytes: int


class Group:
    """A World and its operators."""

    def __init__(self, world: World, owned: bool) -> None:
        self.world, self.owned = world, owned
        self.operators = OperatorCache(world)

    def operator(self, kind: Callable[..., OperatorT], *sizes: int, **options: object) -> OperatorT:
        """The operator of these sizes. Collective, if there is none yet."""
        key = (kind, sizes, *sorted(options.items()))
        create = partial(kind, self.world, *sizes, **options)
        return self.operators.get(key, lambda: [create()], f"{kind.__name__}{sizes}")[0]

    def close(self) -> None:
        """Collective."""
        if self.owned:
            self.world.close()
            self.operators.forget()
        else:
            self.operators.close()


groups: dict[str, Group] = {}
_lock = threading.RLock()


def enable_symm_mem_for_group(group_name: str, *, world: World | None = None, **options: Unpack[WorldOptions]) -> None:
    """Give a group its World. Collective.

    Without this call the first operator makes one with the defaults: on a GPU, torch's current one. Operators take room
    in its heap.

    Parameters
    ----------
    group_name : str
        Of the ProcessGroup.
    world : World, optional
        It stays the caller's. None: a new one.
    **options
        World's, of a new one: deadline, heap_bytes, ...

    Raises
    ------
    MisuseError
        The group has a World.
    InvalidArgumentError
        There is no such group, or a world and options are given.
    """
    with _lock:
        if group_name in groups and groups[group_name].world.is_open:
            raise MisuseError(
                f"group_name is {group_name!r}, which has a World; allowed: before the group's first call, or after "
                "close()"
            )
        if world is None:
            if "device" not in options and options.get("target", "auto") == "auto" and torch.cuda.is_available():
                options["device"] = torch.cuda.current_device()
            groups[group_name] = Group(World(process_group(group_name), **options), True)
        elif options:
            raise InvalidArgumentError(f"world is given, and {', '.join(options)}; allowed: one of them")
        else:
            groups[group_name] = Group(world, False)


def is_symm_mem_enabled_for_group(group_name: str) -> bool:
    """Whether the group has a World. Local."""
    group = groups.get(group_name)
    return group is not None and group.world.is_open


def close(group_name: str) -> None:
    """Close a group's operators, and its World if this module has made it. Collective.

    Call it before the process group is destroyed. It does nothing if the group has no World.

    Parameters
    ----------
    group_name : str
        Of the ProcessGroup.
    """
    with _lock:
        group = groups.pop(group_name, None)
    if group is not None:
        group.close()


def process_group(group_name: str) -> torch.distributed.ProcessGroup:
    """The torch.distributed.ProcessGroup of that name."""
    try:
        distributed: Any = torch.distributed.distributed_c10d  # what resolves names is not public
        found: torch.distributed.ProcessGroup = distributed._resolve_process_group(group_name)
        return found
    except Exception as error:
        raise InvalidArgumentError(
            f"group_name is {group_name!r} ({error}); allowed: the group_name of a ProcessGroup"
        ) from None


def group_of(group_name: str) -> Group:
    """The group's World and operators. Collective, if it has none yet."""
    group = groups.get(group_name)
    if group is None:
        with _lock:
            if group_name not in groups:
                enable_symm_mem_for_group(group_name)
            group = groups[group_name]
    return group


def size_of(group_name: str) -> int:
    """The group's ranks. Local."""
    group = groups.get(group_name)
    return group.world.size if group is not None else int(process_group(group_name).size())
