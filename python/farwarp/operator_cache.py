"""Operators that a module creates by itself, for shapes that its callers' tensors have.

They are kept while there is room, and given back when there is none.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Callable, TypeVar, cast

from .errors import MisuseError, OutOfMemoryError
from .operator import Operator
from .world import World

OperatorT = TypeVar("OperatorT", bound=Operator)

MOST_OPERATORS = 64  # of a World


class OperatorCache:
    """Operators of one World by what they were created for, those used last at the end.

    All ranks make the same calls, so they keep and close the same ones.
    """

    def __init__(self, world: World, most: int = MOST_OPERATORS) -> None:
        self._streams, self._most = world.streams, most
        self._kept: dict[Hashable, Sequence[Operator]] = {}
        self._captured: set[Hashable] = set()  # graphs call them as long as they exist

    def __len__(self) -> int:
        return sum(map(len, self._kept.values()))

    def __iter__(self) -> Iterator[Hashable]:
        """The keys."""
        return iter(self._kept)

    def get(self, key: Hashable, create: Callable[[], list[OperatorT]], what: object) -> list[OperatorT]:
        """The operators of `key`.

        Collective if there are none: `create` makes them; where the heap or the World's slots do not suffice, those of
        other keys are closed before, the ones used longest ago first. `what`: of messages.
        """
        with self._streams.exclusive():
            found = cast("list[OperatorT] | None", self._kept.pop(key, None))  # create() of that key made them
            capturing = self._streams.is_capturing()
            if found is None:
                if capturing:
                    raise MisuseError(
                        f"a first call of {what} is captured in a CUDA graph; allowed: after a call that is not"
                    )
                found = self._create(create)
            self._kept[key] = found
            if capturing:
                self._captured.add(key)
            return found

    def _create(self, create: Callable[[], list[OperatorT]]) -> list[OperatorT]:
        while len(self) >= self._most and self._close_oldest():
            pass
        while True:
            try:
                return create()
            except OutOfMemoryError:  # on all ranks: their heaps are alike
                if not self._close_oldest():
                    raise

    def _close_oldest(self) -> bool:
        """Collective. False if there is none to close."""
        key = next((key for key in self._kept if key not in self._captured), None)
        if key is None:
            return False
        for operator in self._kept.pop(key):
            operator.close()
        return True

    def close(self) -> None:
        """Collective."""
        with self._streams.exclusive():
            for operators in self._kept.values():
                for operator in operators:
                    operator.close()
            self.forget()

    def forget(self) -> None:
        """Of a World that is closed."""
        self._kept.clear()
        self._captured.clear()
