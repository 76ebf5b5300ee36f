"""The operators of a world that are open."""

from __future__ import annotations

from typing import Protocol

from .errors import Error


class OpenOperator(Protocol):
    """An operator, as its world sees it."""

    def close_handle(self) -> None:
        """Collective: closes it, whose streams are idle, and takes it out of the registry."""

    def recovered(self) -> None:
        """After World.recover()."""

    def forked(self) -> None:
        """In the child of a fork(): its handle is of no use."""


class Registry:
    """Open operators in the order of their creation, which is the same on all ranks."""

    def __init__(self) -> None:
        self._open: dict[int, OpenOperator] = {}

    def __len__(self) -> int:
        return len(self._open)

    def add(self, operator: OpenOperator) -> None:
        """Of an operator that was created."""
        self._open[id(operator)] = operator

    def remove(self, operator: OpenOperator) -> None:
        """Of one that is being closed; it may be gone already."""
        self._open.pop(id(operator), None)

    def close_all(self) -> Error | None:
        """Collective: closes them, the last one first. Returns the first failure."""
        failure: Error | None = None
        for operator in reversed(list(self._open.values())):
            try:
                operator.close_handle()
            except Error as error:
                failure = failure or error
        return failure

    def recovered(self) -> None:
        """After World.recover()."""
        for operator in list(self._open.values()):
            operator.recovered()

    def forked(self) -> None:
        """In the child of a fork()."""
        for operator in self._open.values():
            operator.forked()
