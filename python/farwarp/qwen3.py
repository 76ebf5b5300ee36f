"""Qwen3, decoded by one kernel."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, overload

from . import _c, qwen3_desc
from .arguments import whole
from .array import Array
from .device_streams import StreamLike
from .errors import InvalidArgumentError
from .operator import Operator
from .qwen3_desc import Answer, Arguments, Ids, Limits, Options, Prompt, is_token
from .qwen3_text import load_tokenizer, pieces, text_of
from .targets import choose_target
from .token_streams import Request, Sequenced, Streaming, TokenStream
from .world import World

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase
    from typing_extensions import Unpack  # not needed to run

_MOST_TOKENS = 1 << 16  # of a launch


class Qwen3(Streaming, Operator):
    """A dense Qwen3 on all ranks of a world (1, 2, 4 or 8), each with a share of it.

    Collective to create, and all ranks make the same calls and get the same tokens. from_pretrained() and random()
    create one. The bits of logits, and so tokens, depend on the number of ranks, on splits and on vectors.

    Parameters
    ----------
    model : str
        A folder, or "random:NAME".
    world : World, optional
        Its heap has heap_bytes() of room. None: one of the model's own, which close() closes, on `target`, with the
        ranks that a launcher has started.
    target : str
        As of World.
    seed : int
        Of random weights.
    sequences : int
        At once, 1 to 64; on AMD to 32.
    positions : int
        Of a sequence, its prompt included.
    most_top_k : int
        0: tokens are not drawn; else up to 64.
    prefill_tokens : int
        Of a prompt at a time, 16 to 8192; 0: prompts are decoded.
    max_sms : int
        Multiprocessors; 0: all.
    splits : int
        That a sequence's keys are cut into, 1 to 16; 0: the plan's choice.
    vectors : str
        Of activations, "packets" (up to 8 sequences), "streamed", or "faster", the plan's choice.

    Attributes
    ----------
    vocabulary : int
        Tokens that there are.
    end_tokens : tuple of int
        What the model's generation_config.json ends answers with.
    asked_sampling : dict
        How it asks for tokens to be drawn, as arguments of generate(); empty: the best token.

    Raises
    ------
    InvalidArgumentError
        A parameter, or a file of the model, is outside what is allowed.
    OutOfMemoryError
        The device or the world's heap has no room.
    MismatchError
        The ranks gave different parameters.
    """

    _c_prefix = "qwen3"

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
        limits: Limits = {
            "seed": seed,
            "sequences": sequences,
            "positions": positions,
            "most_top_k": most_top_k,
            "prefill_tokens": prefill_tokens,
            "max_sms": max_sms,
            "splits": splits,
            "vectors": vectors,
        }
        self._owns_world = world is None
        if world is None:
            target = choose_target(target)
            room = self.heap_bytes(model, qwen3_desc.launched_ranks(), target, **limits)
            world = World(target=target, heap_bytes=room)
        try:
            self._open(world, qwen3_desc.descriptor(model, limits))
            self.model = model
            self.prefill_tokens = prefill_tokens
            self.vocabulary: int = _c.lib.qwen3_vocabulary(self.handle)
            self._columns: int = _c.lib.qwen3_columns(self.handle)
            Streaming.__init__(self, sequences, positions)
            self._sampled: dict[int, Array] = {}  # by tokens of a launch
            self._tokenizer: PreTrainedTokenizerBase | None = None
            self.end_tokens, self.asked_sampling = qwen3_desc.generation(self.open_handle())
        except BaseException:
            if self._owns_world:
                world.__exit__(BaseException, None, None)
            raise

    @classmethod
    def from_pretrained(
        cls, folder: str | os.PathLike[str], world: World | None = None, **arguments: Unpack[Arguments]
    ) -> Qwen3:
        """A model that Hugging Face has saved. Collective.

        Parameters
        ----------
        folder : str or os.PathLike
            With config.json and safetensors, bf16.
        world : World, optional
            As of the class.
        **arguments
            Those of the class; seed has no effect.
        """
        return cls(os.fspath(folder), world, **arguments)

    @classmethod
    def random(cls, name: str, world: World | None = None, **arguments: Unpack[Arguments]) -> Qwen3:
        """A model with random weights from `seed`. Collective.

        Parameters
        ----------
        name : str
            Whose sizes it has: "tiny", "qwen3-8b", ...
        world : World, optional
            As of the class.
        **arguments
            Those of the class.
        """
        return cls(f"random:{name}", world, **arguments)

    @staticmethod
    def heap_bytes(
        model: str, ranks: int = 1, target: str = "auto", *, device: int = 0, **limits: Unpack[Limits]
    ) -> int:
        """heap_bytes of a World that only holds this model.

        Parameters
        ----------
        model : str
            A folder, or "random:NAME".
        ranks : int
            Of the world, 1 to 8.
        target, device
            As of World, but a device is an ordinal, 0 or more.
        **limits
            sequences, positions and others of the class.

        Returns
        -------
        int
            Bytes.
        """
        return qwen3_desc.heap_bytes(model, ranks, target, device, limits)

    # ---- generation

    @overload
    def generate(  # type: ignore[overload-overlap]  # text is a sequence of text, too, but one prompt
        self, prompts: str, max_tokens: int = 64, **options: Unpack[Options]
    ) -> str: ...
    @overload
    def generate(self, prompts: Sequence[int], max_tokens: int = 64, **options: Unpack[Options]) -> list[int]: ...
    @overload
    def generate(self, prompts: Sequence[str], max_tokens: int = 64, **options: Unpack[Options]) -> list[str]: ...
    @overload
    def generate(self, prompts: Sequence[Ids], max_tokens: int = 64, **options: Unpack[Options]) -> list[list[int]]: ...
    @overload  # prompts of both kinds, and answers
    def generate(self, prompts: Sequence[Prompt], max_tokens: int = 64, **options: Unpack[Options]) -> list[Answer]: ...
    def generate(
        self, prompts: Prompt | Sequence[Prompt], max_tokens: int = 64, **options: Unpack[Options]
    ) -> Answer | list[str] | list[list[int]] | list[Answer]:
        """What follows a prompt, or each of several. Every rank calls it.

        Parameters
        ----------
        prompts : str, sequence of int, or sequence of these
            Text, or token ids.
        max_tokens : int
            At most so many for each.
        **options
            Those of stream().

        Returns
        -------
        str, list of int, or list of these
            Text for text, ids for ids.
        """
        several = not isinstance(prompts, str) and len(prompts) > 0 and not is_token(prompts[0])
        all_prompts: list[Prompt] = list(prompts) if several else [prompts]  # type: ignore[arg-type, list-item]
        text = [isinstance(prompt, str) for prompt in all_prompts]
        found: list[list[int]] = [[] for _ in all_prompts]
        with contextlib.closing(self.stream_batch(all_prompts, max_tokens, **options)) as tokens:
            for sequence, token in tokens:
                found[sequence].append(token)
        answers = [text_of(self.tokenizer, tokens) if is_text else tokens for tokens, is_text in zip(found, text)]
        return answers if several else answers[0]

    @overload
    def stream(self, prompt: str, max_tokens: int = 64, **options: Unpack[Options]) -> TokenStream[str]: ...
    @overload
    def stream(self, prompt: Sequence[int], max_tokens: int = 64, **options: Unpack[Options]) -> TokenStream[int]: ...
    def stream(
        self, prompt: Prompt, max_tokens: int = 64, **options: Unpack[Options]
    ) -> TokenStream[str] | TokenStream[int]:
        """What follows `prompt`, as it comes, a launch's tokens one after the other. Every rank calls it.

        Several streams can be asked in any order, generate() between. A stream has a sequence from this call until it
        ends, is closed by its close(), or is dropped.

        Parameters
        ----------
        prompt : str or sequence of int
            Text, or token ids.
        max_tokens : int
            At most so many; the prompt's and these, less one, must be within positions.
        end_token : int or sequence of int, optional
            Ends the answer, and is its last id; or up to 8 of them, each of which does. None: those of the model's
            generation_config.json, or config.json without one; if there are none, of text the tokenizer's.
        temperature : float, optional
            None: 0, with a warning if the model asks for draws and top_k is 0. 0: the best token; else 0.001 to 1000.
        top_k, top_p, seed : int, float, int
            Of draws: 1 to most_top_k, up to 1; sequence i draws with seed + i, modulo 2**64.
        tokens_per_launch : int
            Positions that a launch for this stream decodes, of it and of all that have begun.
        stream : farwarp.Stream, torch.cuda.Stream or int, optional
            As of operators; the model waits for it.

        Returns
        -------
        iterator of int or str
            Ids for ids, pieces of text for text.

        Raises
        ------
        InvalidArgumentError
            A parameter is outside what is allowed.
        MisuseError
            No sequence is free, or the model is closed.
        UnavailableError
            Text, without transformers.
        """
        request = self._request([prompt], max_tokens, **options)
        tokens = (token for _, token in self._tokens(request))
        if isinstance(prompt, str):
            return TokenStream(pieces(self.tokenizer, tokens), request, self)
        return TokenStream(tokens, request, self)

    def stream_batch(
        self, prompts: Sequence[Prompt], max_tokens: int = 64, **options: Unpack[Options]
    ) -> TokenStream[tuple[int, int]]:
        """The same of several prompts, up to `sequences`: yields (number of the prompt, token id).

        Parameters and failures: stream().
        """
        request = self._request(prompts, max_tokens, **options)
        return TokenStream(self._tokens(request), request, self)

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
        stream: StreamLike = None,
    ) -> Request:
        """With sequences, which have not started."""
        self.open_handle()
        ids = [self._ids(prompt) for prompt in prompts]
        if not 1 <= len(ids) <= self.sequences:
            raise InvalidArgumentError(f"prompts are {len(ids)}; allowed: 1 to {self.sequences}, sequences")
        max_tokens, tokens_per_launch = (
            whole("max_tokens", max_tokens, 1),
            whole("tokens_per_launch", tokens_per_launch, 1),
        )
        ends = self._end_tokens(end_token, isinstance(prompts[0], str))
        for i, prompt in enumerate(ids):
            if not prompt or len(prompt) + max_tokens - 1 > self.positions:
                raise InvalidArgumentError(
                    f"prompt {i} has {len(prompt)} tokens and max_tokens is {max_tokens}; allowed: a token at least, "
                    f"and together {self.positions + 1}, positions and 1"
                )
        sampling = qwen3_desc.sampling_of(self.asked_sampling, temperature, top_k, top_p, seed)
        request = Request(
            frozenset(ends), sampling, min(tokens_per_launch, _MOST_TOKENS), self.world.streams.handle_of(stream)
        )
        self._reserve(request, ids, max_tokens)
        return request

    def _end_tokens(self, given: int | Sequence[int] | None, text: bool) -> list[int]:
        if given is None:
            if self.end_tokens or not text or self.tokenizer.eos_token_id is None:
                return list(self.end_tokens)
            given = self.tokenizer.eos_token_id
        return qwen3_desc.end_tokens(given, self.vocabulary)

    def _start(self, request: Request, one: Sequenced) -> int:
        """Returns the positions that are done."""
        numbers = (ctypes.c_int32 * len(one.prompt))(*one.prompt)
        sampling = type(request.sampling).from_buffer_copy(request.sampling)
        sampling.seed += one.number  # a field of 64 bits: modulo 2**64
        with self.world.exclusive():
            handle = self.open_handle()
            self.world.streams.use(request.stream)
            prompt, drawn = ctypes.addressof(numbers), ctypes.addressof(sampling)
            code = _c.lib.qwen3_start(handle, one.column, prompt, len(one.prompt), drawn, request.stream)
            self.world.check_call(code)
        return len(one.prompt) - 1 if self.prefill_tokens else 0

    def _stop(self, column: int, stream: int | None) -> int:
        with self.world.exclusive():
            return 0 if self.handle is None else _c.lib.qwen3_stop(self.handle, column, stream)

    def recovered(self) -> None:
        """After World.recover(), which calls it: its sequences have ended."""
        self._lose_all("World.recover() has ended them")

    def _launch(self, steps: int, end_tokens: list[int], stream: int | None) -> list[list[int]]:
        sampled = self._sampled.get(steps)
        if sampled is None:
            sampled = self._sampled[steps] = Array(self.world, (self._columns, steps), "int32")
        ends = (ctypes.c_int32 * len(end_tokens))(*end_tokens)
        with self.world.exclusive():
            handle = self.open_handle()
            sampled.written(stream)
            self.world.check_call(
                _c.lib.qwen3_decode_until(
                    handle, steps, ctypes.addressof(ends), len(ends), sampled.address, None, stream
                )
            )
            found: list[list[int]] = sampled.numpy().tolist()
            return found

    # ---- text

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The tokenizer in the model's folder. UnavailableError without transformers, or for random weights."""
        if self._tokenizer is None:
            self._tokenizer = load_tokenizer(self.model)
        return self._tokenizer

    def _ids(self, prompt: Prompt) -> list[int]:
        if isinstance(prompt, str):
            return list(self.tokenizer(prompt)["input_ids"])
        return [whole(f"prompt[{i}]", token, 0, self.vocabulary - 1) for i, token in enumerate(prompt)]

    # ---- the end

    def close(self) -> None:
        """Collective. Closes the model's own world, too."""
        try:
            super().close()
        finally:
            self._sampled.clear()
            if self._owns_world:
                self.world.close()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._owns_world and kind is not None:
            self.world.__exit__(kind, error, trace)
        else:
            super().__exit__(kind, error, trace)
