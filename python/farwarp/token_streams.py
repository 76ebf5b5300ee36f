"""Streams of a model that run at the same time: which sequences each has, and the launches that decode all of them."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

from . import _c
from .errors import MisuseError, check

if TYPE_CHECKING:
    from .world import World

T = TypeVar("T")


class Sequenced:
    """A prompt of a request, in a column of the model."""

    def __init__(self, number: int, column: int, prompt: list[int], last: int) -> None:
        self.number, self.column, self.prompt, self.last = number, column, prompt, last
        self.done = 0  # positions, of `last`


class Request:
    """Prompts that are answered together."""

    def __init__(self, ends: frozenset[int], sampling: _c.Desc, tokens_per_launch: int, stream: int | None) -> None:
        self.ends, self.sampling, self.tokens_per_launch, self.stream = ends, sampling, tokens_per_launch, stream
        self.sequences: list[Sequenced] = []  # those that have not ended
        self.started = False
        self.ready: deque[tuple[int, int]] = deque()  # (number of the prompt, token): not asked for yet
        self.lost: str | None = None  # why its sequences ended before their time


class TokenStream(Iterator[T], Generic[T]):
    """An iterator that has sequences of a model until it ends, is closed or is dropped."""

    def __init__(self, items: Iterator[T], request: Request, model: Streaming) -> None:
        self._items, self._request, self._model = items, request, model

    def __next__(self) -> T:
        return next(self._items)

    def close(self) -> None:
        """Gives the sequences back; nothing comes any more."""
        self._items = iter(())
        self._model.end_request(self._request)

    def __del__(self) -> None:
        if self._request.sequences:
            self._model.dropped.append(self._request)  # on any thread; the model's next call ends them


class Streaming:
    """A model whose launches decode the sequences of all requests that have started.

    What a launch brings to another request than the one that asked waits there. Requests change within the world's
    exclusive().
    """

    world: World

    def _start(self, request: Request, one: Sequenced) -> int:
        """Returns the positions that are done."""
        raise NotImplementedError

    def _stop(self, column: int, stream: int | None) -> int:
        """Returns a code of c.h."""
        raise NotImplementedError

    def _launch(self, steps: int, end_tokens: list[int], stream: int | None) -> list[list[int]]:
        """Returns the choices of each column."""
        raise NotImplementedError

    def __init__(self, sequences: int, positions: int) -> None:
        self.sequences, self.positions = sequences, positions
        self._free = list(range(sequences))  # columns
        self._started: list[Request] = []  # with sequences
        self.dropped: deque[Request] = deque()

    def _reserve(self, request: Request, prompts: Sequence[list[int]], max_tokens: int) -> None:
        """Gives each prompt a column, or raises."""
        with self.world.exclusive():
            self._end_dropped()
            if len(prompts) > len(self._free):
                raise MisuseError(
                    f"prompts are {len(prompts)}; "
                    f"allowed: up to {len(self._free)}, because open streams have the others of "
                    f"{self.sequences} sequences; a stream gives them back when it ends or by close()"
                )
            for number, prompt in enumerate(prompts):
                column, last = heapq.heappop(self._free), len(prompt) + max_tokens - 1
                request.sequences.append(Sequenced(number, column, prompt, last))

    def _tokens(self, request: Request) -> Iterator[tuple[int, int]]:
        """What the request's prompts bring, until all have ended."""
        while True:
            with self.world.exclusive():
                found = self._next(request)
            if found is None:
                return
            yield found

    def _next(self, request: Request) -> tuple[int, int] | None:
        """None: all prompts have ended."""
        while not request.ready:
            if request.lost is not None:
                raise MisuseError(f"the stream has lost its sequences: {request.lost}; allowed: a new stream")
            if not request.sequences:
                return None
            self._end_dropped()
            self._start_new(request)
            self._advance(request)
        return request.ready.popleft()

    def _start_new(self, request: Request) -> None:
        if request.started:
            return
        request.started = True
        self._started.append(request)
        try:
            for one in request.sequences:
                one.done = self._start(request, one)
        except BaseException:
            self.end_request(request)
            raise

    def _advance(self, request: Request) -> None:
        """A launch, of as many positions as `request` wants and all sequences have room for."""
        everyone = [one for other in self._started for one in other.sequences]
        needed = max(one.last - one.done for one in request.sequences)
        steps = min(request.tokens_per_launch, needed, *(self.positions - one.done for one in everyone))
        # A launch ends all sequences at the same tokens. Where requests have others, it goes on behind them, and
        # _take() finds the end.
        ends = {other.ends for other in self._started}
        common = sorted(ends.pop()) if len(ends) == 1 else []
        try:
            choices = self._launch(steps, common, request.stream)
            for other in list(self._started):
                for one in list(other.sequences):
                    self._take(other, one, choices[one.column])
        except BaseException as error:  # what others would have got is lost, too
            self._lose_all(f"a launch failed with {type(error).__name__}")
            raise

    def _take(self, request: Request, one: Sequenced, choices: list[int]) -> None:
        for choice in choices:
            one.done += 1
            if one.done < len(one.prompt):
                continue  # the prompt has the next input
            request.ready.append((one.number, choice))
            if choice in request.ends or one.done == one.last:
                self._release(request, one)
                check(self._stop(one.column, request.stream))
                return

    def _release(self, request: Request, one: Sequenced) -> None:
        request.sequences.remove(one)
        heapq.heappush(self._free, one.column)
        if not request.sequences and request in self._started:
            self._started.remove(request)

    def end_request(self, request: Request) -> None:
        """The request's sequences are free again, and nothing of it is left."""
        with self.world.exclusive():
            request.ready.clear()
            for one in list(request.sequences):
                self._release(request, one)
                if request.started:
                    self._stop(one.column, request.stream)  # after a failure of the world recover() ends them

    def _lose_all(self, why: str) -> None:
        """All sequences that have started have ended. What their requests have got already they keep."""
        for request in list(self._started):
            request.lost = why
            for one in list(request.sequences):
                self._release(request, one)
                self._stop(one.column, request.stream)

    def _end_dropped(self) -> None:
        while self.dropped:
            self.end_request(self.dropped.popleft())
