"""Qwen3, decoded by one kernel."""

from __future__ import annotations

import contextlib
import ctypes
import operator
import os
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, Union

from . import _c
from .arguments import shown, whole
from .array import Array
from .descriptor import choice, given, new_desc
from .errors import InvalidArgumentError, UnavailableError, check
from .operator import Operator
from .streams import Request, Sequenced, Stream, Streaming
from .targets import choose_target, target_number
from .world import World

Prompt = Union[str, Sequence[int]]

_VECTORS = ("faster", "packets", "streamed")  # in the order of farwarp_qwen3_vectors
_MOST_TOKENS = 1 << 16  # of a launch
_MOST_END_TOKENS = 8  # FARWARP_MOST_END_TOKENS
# What transformers reads of a tokenizer.
_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.json",
    "merges.txt",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "tokenizer.model",
)
_WORLD_BYTES = 1 << 20  # of the heap, beside what a decoder takes


class Qwen3(Streaming, Operator):
    """A dense Qwen3 on all ranks of a world (1, 2, 4 or 8), each with a share of it. Collective to create, and all
    ranks make the same calls and get the same tokens. from_pretrained() and random() create one.

    world: whose heap has heap_bytes() of room. None: one of the model's own, which close() closes, on `target`, with
        the ranks that a launcher has started.
    sequences: at once, 1 to 64; on CDNA3 to 32.
    positions: of a sequence, its prompt included.
    most_top_k: 0: tokens are not drawn; else up to 64.
    prefill_tokens: of a prompt at a time, 16 to 8192; 0: prompts are decoded.
    max_sms: multiprocessors; 0: all.
    splits: that a sequence's keys are cut into, 1 to 16; 0: the plan's choice.
    vectors: of activations, "packets" (up to 8 sequences), "streamed", or "faster", the plan's choice.

    The bits of logits, and so tokens, depend on the number of ranks, on splits and on vectors.
    """

    _name = "qwen3"

    def __init__(
        self,
        model: str,
        world: World | None = None,
        *,
        target: str = "auto",
        seed: int = 0,
        sequences: int = 1,
        positions: int = 1024,
        most_top_k: int = 0,
        prefill_tokens: int = 0,
        max_sms: int = 0,
        splits: int = 0,
        vectors: str = "faster",
    ) -> None:
        limits: dict[str, Any] = dict(
            seed=seed,
            sequences=sequences,
            positions=positions,
            most_top_k=most_top_k,
            prefill_tokens=prefill_tokens,
            max_sms=max_sms,
            splits=splits,
            vectors=vectors,
        )
        self._owns_world = world is None
        if world is None:
            target = choose_target(target)
            room = self.heap_bytes(model, _launched_ranks(), target, **limits)
            world = World(target=target, heap_bytes=room)
        try:
            self._open(world, _desc(model, limits))
        except BaseException:
            if self._owns_world:
                world.__exit__(BaseException, None, None)
            raise
        self.model = model
        self.prefill_tokens = prefill_tokens
        self.vocabulary: int = _c.lib.qwen3_vocabulary(self.handle)
        self._columns: int = _c.lib.qwen3_columns(self.handle)
        self._no_streams(sequences, positions)
        self._sampled: dict[int, Array] = {}  # by tokens of a launch
        self._tokenizer: Any = None
        self._read_generation()

    @classmethod
    def from_pretrained(cls, folder: str | os.PathLike[str], world: World | None = None, **arguments: Any) -> Qwen3:
        """The model in `folder`: config.json and safetensors, as Hugging Face saves them, bf16. Other arguments: those
        of the class, but seed."""
        return cls(os.fspath(folder), world, **arguments)

    @classmethod
    def random(cls, name: str, world: World | None = None, **arguments: Any) -> Qwen3:
        """Random weights from `seed`, in the sizes of `name`: "tiny", "qwen3-8b", ... Other arguments: those of the
        class."""
        return cls(f"random:{name}", world, **arguments)

    @staticmethod
    def heap_bytes(model: str, ranks: int = 1, target: str = "auto", *, device: int = 0, **limits: Any) -> int:
        """heap_bytes of a World that only holds this model. model: a folder, or "random:NAME". limits: those of the
        class."""
        needed = ctypes.c_int64()
        number = target_number(choose_target(target))
        desc = _desc(model, limits)
        device, ranks = whole("device", device, 0, 2**31 - 1), whole("ranks", ranks, 1, 8)
        check(_c.lib.qwen3_heap_bytes(ctypes.addressof(desc), number, device, ranks, ctypes.addressof(needed)))
        return needed.value + _WORLD_BYTES

    # ---- generation

    def _read_generation(self) -> None:
        tokens, count, asked = (ctypes.c_int32 * _MOST_END_TOKENS)(), ctypes.c_int32(), new_desc(_c.Sampling)
        check(
            _c.lib.qwen3_generation(
                self.handle, ctypes.addressof(tokens), ctypes.addressof(count), ctypes.addressof(asked)
            )
        )
        self.end_tokens: tuple[int, ...] = tuple(tokens[: count.value])
        """What the model's generation_config.json ends answers with."""
        self.asked_sampling: dict[str, Any] = {}
        """How it asks for tokens to be drawn, as arguments of generate(); empty: the best token."""
        if asked.temperature != 0:
            self.asked_sampling = {"temperature": asked.temperature, "top_k": asked.top_k, "top_p": asked.top_p}

    def generate(self, prompts: Prompt | Sequence[Prompt], max_tokens: int = 64, **options: Any) -> Any:
        """What follows a prompt, or each of several: token ids for ids, text for text. Options: those of stream()."""
        several = not isinstance(prompts, str) and len(prompts) > 0 and not _is_number(prompts[0])
        all_prompts: list[Any] = list(prompts) if several else [prompts]
        text = [isinstance(prompt, str) for prompt in all_prompts]
        found: list[list[int]] = [[] for _ in all_prompts]
        with contextlib.closing(self.stream_batch(all_prompts, max_tokens, **options)) as tokens:
            for sequence, token in tokens:
                found[sequence].append(token)
        answers = [
            self.tokenizer.decode(tokens, skip_special_tokens=True) if is_text else tokens
            for tokens, is_text in zip(found, text)
        ]
        return answers if several else answers[0]

    def stream(self, prompt: Prompt, max_tokens: int = 64, **options: Any) -> Stream[Any]:
        """Yields what follows `prompt` as it comes, a launch's tokens one after the other: ids for ids, pieces of text
        for text. Several streams can be asked in any order, generate() between. A stream has a sequence from this call
        until it ends, is closed by its close(), or is dropped; MisuseError if there is none.

        max_tokens: at most so many; the prompt's and these, less one, must be within positions.
        end_token: ends the answer, and is its last id; or up to 8 of them, each of which does. None: those of the model's
            generation_config.json, or config.json without one; if there are none, of text the tokenizer's.
        temperature: None: 0, with a warning if the model asks for draws (asked_sampling). 0: the best token; else
            0.001 to 1000, with top_k (1 to most_top_k), top_p (up to 1) and seed;
            sequence i draws with seed + i, modulo 2**64.
        tokens_per_launch: positions that a launch for this stream decodes, of it and of all that have begun.
        stream: as of operators; the model waits for it.
        """
        request = self._request([prompt], max_tokens, **options)
        tokens = (token for _, token in self._tokens(request))
        return Stream(self._text(tokens) if isinstance(prompt, str) else tokens, request, self)

    def stream_batch(self, prompts: Sequence[Prompt], max_tokens: int = 64, **options: Any) -> Stream[tuple[int, int]]:
        """Yields (number of the prompt, token id) of up to `sequences` prompts, as stream() does of one."""
        request = self._request(prompts, max_tokens, **options)
        return Stream(self._tokens(request), request, self)

    def _request(
        self,
        prompts: Sequence[Prompt],
        max_tokens: int,
        *,
        end_token: int | Sequence[int] | None = None,
        temperature: float | None = None,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int = 0,
        tokens_per_launch: int = 16,
        stream: Any = None,
    ) -> Request:
        """With sequences, which have not started."""
        self.open_handle()
        ids = [self._ids(prompt) for prompt in prompts]
        if not 1 <= len(ids) <= self.sequences:
            raise InvalidArgumentError(f"prompts are {len(ids)}; allowed: 1 to {self.sequences}, sequences")
        for name, value in (("max_tokens", max_tokens), ("tokens_per_launch", tokens_per_launch)):
            whole(name, value, 1)
        ends = self._end_tokens(end_token, isinstance(prompts[0], str))
        for i, prompt in enumerate(ids):
            if not prompt or len(prompt) + max_tokens - 1 > self.positions:
                raise InvalidArgumentError(
                    f"prompt {i} has {len(prompt)} tokens and max_tokens is {max_tokens}; allowed: a token at least, and "
                    f"together {self.positions + 1}, positions and 1"
                )
        if temperature is None:
            temperature = 0.0
            if self.asked_sampling and top_k == 0:
                asked = ", ".join(f"{name}={value:g}" for name, value in self.asked_sampling.items())
                warnings.warn(
                    f"the model asks for draws: {asked}; without a temperature the best tokens are taken", stacklevel=3
                )
        sampling = given(new_desc(_c.Sampling), temperature=temperature, top_k=top_k, top_p=top_p, seed=seed)
        request = Request(
            frozenset(ends), sampling, min(tokens_per_launch, _MOST_TOKENS), self.world.streams.handle_of(stream)
        )
        self._reserve(request, ids, max_tokens)
        return request

    def _end_tokens(self, given: Any, text: bool) -> list[int]:
        if given is None:
            if self.end_tokens or not text or self.tokenizer.eos_token_id is None:
                return list(self.end_tokens)
            given = self.tokenizer.eos_token_id
        allowed = f"None, or up to {_MOST_END_TOKENS} tokens of 0 to {self.vocabulary - 1}"
        try:
            tokens = [operator.index(token) for token in ([given] if _is_integer(given) else given)]
        except TypeError:
            raise InvalidArgumentError(f"end_token is {given!r}; allowed: {allowed}") from None
        if len(tokens) > _MOST_END_TOKENS or not all(0 <= token < self.vocabulary for token in tokens):
            raise InvalidArgumentError(f"end_token is {given!r}; allowed: {allowed}")
        return tokens

    def _start(self, request: Request, one: Sequenced) -> int:
        """Returns the positions that are done."""
        numbers = (ctypes.c_int32 * len(one.prompt))(*one.prompt)
        sampling = type(request.sampling).from_buffer_copy(request.sampling)
        sampling.seed += one.number  # a field of 64 bits: modulo 2**64
        with self.world.streams.lock:
            handle = self.open_handle()
            self.world.streams.use(request.stream)
            check(
                _c.lib.qwen3_start(
                    handle,
                    one.column,
                    ctypes.addressof(numbers),
                    len(one.prompt),
                    ctypes.addressof(sampling),
                    request.stream,
                )
            )
        return len(one.prompt) - 1 if self.prefill_tokens else 0

    def _stop(self, column: int, stream: int | None) -> int:
        with self.world.streams.lock:
            return 0 if self.handle is None else _c.lib.qwen3_stop(self.handle, column, stream)

    def recovered(self) -> None:
        self._lose_all("World.recover() has ended them")

    def _launch(self, steps: int, end_tokens: list[int], stream: Any) -> list[list[int]]:
        sampled = self._sampled.get(steps)
        if sampled is None:
            sampled = self._sampled[steps] = Array(self.world, (self._columns, steps), "int32")
        ends = (ctypes.c_int32 * len(end_tokens))(*end_tokens)
        with self.world.streams.lock:
            handle = self.open_handle()
            sampled.written(stream)
            check(
                _c.lib.qwen3_decode_until(
                    handle, steps, ctypes.addressof(ends), len(ends), sampled.address, None, stream
                )
            )
            found: list[list[int]] = sampled.numpy().tolist()
            return found

    # ---- text

    @property
    def tokenizer(self) -> Any:
        """The tokenizer in the model's folder. UnavailableError without transformers, or for random weights."""
        if self._tokenizer is None:
            if self.model.startswith("random:"):
                raise UnavailableError(f"{self.model} has no tokenizer; allowed: prompts of token ids")
            try:
                import transformers
            except ImportError as error:
                raise UnavailableError(
                    f"text needs transformers ({error}); allowed without it: prompts of token ids"
                ) from error
            for name in _TOKENIZER_FILES:  # transformers would wait for a pipe's writer
                path = os.path.join(self.model, name)
                if os.path.lexists(path) and not os.path.isfile(path):
                    raise InvalidArgumentError(f"{path} is no regular file; allowed: a file of a tokenizer")
            self._tokenizer = transformers.AutoTokenizer.from_pretrained(self.model)
        return self._tokenizer

    def _ids(self, prompt: Prompt) -> list[int]:
        if isinstance(prompt, str):
            return list(self.tokenizer(prompt)["input_ids"])
        return [whole(f"prompt[{i}]", token, 0, self.vocabulary - 1) for i, token in enumerate(prompt)]

    def _text(self, tokens: Iterator[int]) -> Iterator[str]:
        """Pieces of text; a character comes when all its tokens have come."""
        found: list[int] = []
        told = ""
        for token in tokens:
            found.append(token)
            text = self.tokenizer.decode(found, skip_special_tokens=True)
            if not text.endswith("\N{REPLACEMENT CHARACTER}") and text != told:
                yield text[len(told) :]
                told = text
        text = self.tokenizer.decode(found, skip_special_tokens=True)
        if text != told:  # the answer ends within a character
            yield text[len(told) :]

    # ---- the end

    def close(self) -> None:
        """Collective. Closes the model's own world, too."""
        super().close()
        self._sampled.clear()
        if self._owns_world:
            self.world.close()

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if self._owns_world and kind is not None:
            self.world.__exit__(kind, error, trace)
        else:
            super().__exit__(kind, error, trace)


def _desc(model: str, limits: dict[str, Any]) -> ctypes.Structure:
    vectors = choice("vectors", limits.get("vectors", "faster"), _VECTORS)
    desc = given(new_desc(_c.Qwen3Desc), **{**limits, "vectors": vectors})
    try:
        desc.model = os.fsencode(model)
    except (TypeError, ValueError):
        raise InvalidArgumentError(f"model is {shown(model)}; allowed: a folder, random:NAME") from None
    if b"\0" in os.fsencode(model):  # C would see its beginning
        raise InvalidArgumentError(f"model is {shown(model)}; allowed: a name without zero bytes")
    return desc


def _is_number(value: Any) -> bool:
    return hasattr(value, "__index__")


def _is_integer(value: Any) -> bool:
    try:
        operator.index(value)
    except TypeError:
        return False
    return True


def _launched_ranks() -> int:
    """Ranks that a launcher has started; 1 without one."""
    rank, ranks = ctypes.c_int32(), ctypes.c_int32()
    check(_c.lib.environment_ranks(ctypes.addressof(rank), ctypes.addressof(ranks)))
    return ranks.value
