"""Streams of one model that run at the same time."""

import concurrent.futures
import gc
import itertools
import threading
import time

import pytest

import farwarp
from farwarp import token_streams

TARGET = {"target": "emu_sm90", "max_sms": 2}
PROMPTS = [[3, 1], [1, 5, 9], [7], [2]]
MOST = 5


@pytest.fixture(scope="module", params=(1, 2, 4), ids=lambda sequences: f"{sequences}_sequences")
def model(request):
    with farwarp.Qwen3.random("nano", seed=3, positions=32, sequences=request.param, most_top_k=16, **TARGET) as model:
        yield model


@pytest.fixture(scope="module")
def alone(model):
    """What each prompt is answered by itself."""
    return [model.generate(prompt, max_tokens=MOST) for prompt in PROMPTS]


@pytest.mark.parametrize("launches", ((16, 16), (1, 1), (2, 3)))
def test_zip(model, alone, launches):
    def streams():
        return zip(*(model.stream(prompt, MOST, tokens_per_launch=most) for prompt, most in zip(PROMPTS, launches)))

    if model.sequences == 1:
        with pytest.raises(
            farwarp.MisuseError,
            match="prompts are 1; allowed: up to 0, because open streams have the others of 1 sequences",
        ):
            streams()
        assert model.generate(PROMPTS[1], MOST) == alone[1]  # nothing of it is left
    else:
        assert list(streams()) == list(zip(*alone[:2]))


@pytest.mark.parametrize("prefill_tokens, vectors", ((0, "packets"), (16, "streamed")))
def test_any_order(prefill_tokens, vectors):
    limits = dict(positions=48, sequences=4, prefill_tokens=prefill_tokens, vectors=vectors, **TARGET)
    with farwarp.Qwen3.random("nano", seed=3, **limits) as model:
        alone = [model.generate(prompt, max_tokens=MOST) for prompt in PROMPTS]
        for order in ((0, 1, 2), (2, 0, 1)):
            streams = [model.stream(prompt, MOST, tokens_per_launch=2 + i) for i, prompt in enumerate(PROMPTS[:3])]
            found = [[] for _ in streams]
            for turn in range(3 * MOST):
                which = order[turn % 3]
                found[which].append(next(streams[which]))
                if turn in (0, 7):
                    assert model.generate(PROMPTS[3], MOST) == alone[3]
            assert found == alone[:3]
            assert [list(stream) for stream in streams] == [[], [], []]


def test_batches_beside_a_stream():
    with farwarp.Qwen3.random("nano", seed=3, positions=48, sequences=3, **TARGET) as model:
        alone = [model.generate(prompt, max_tokens=MOST) for prompt in PROMPTS]
        first = model.stream(PROMPTS[3], MOST, tokens_per_launch=3)
        assert next(first) == alone[3][0]
        batch = model.stream_batch(PROMPTS[:2], MOST, tokens_per_launch=2)
        with pytest.raises(farwarp.MisuseError, match="prompts are 1; allowed: up to 0"):
            model.generate(PROMPTS[0], MOST)
        found = [[], []]
        for number, token in batch:
            found[number].append(token)
        assert found == alone[:2] and list(first) == alone[3][1:]
        assert model.generate(PROMPTS[:3], MOST) == alone[:3]


def test_ends_and_seeds_are_each_streams_own(model):
    if model.sequences == 1:
        pytest.skip("one sequence")

    def options(number):
        end = (30, 31)[number]
        return {"max_tokens": 10, "temperature": 2.0, "top_k": 16, "seed": 5 + number, "end_token": end}

    alone = [model.generate(PROMPTS[i], **options(i)) for i in range(2)]
    for i in range(2):
        end = alone[i][3]
        alone[i] = model.generate(PROMPTS[i], **{**options(i), "end_token": end})
        assert alone[i][-1] == end
    streams = [model.stream(PROMPTS[i], **{**options(i), "end_token": alone[i][-1]}) for i in range(2)]
    found = [[], []]
    for tokens in itertools.zip_longest(*streams):
        for answer, token in zip(found, tokens):
            if token is not None:
                answer.append(token)
    assert found == alone


def test_a_stream_that_is_left_gives_its_sequence_back(model, alone):
    def left():
        return [model.stream(prompt, MOST, tokens_per_launch=2) for prompt in PROMPTS[: model.sequences]]

    def closed():
        for stream in (streams := left()):
            next(stream)
        for stream in streams:
            stream.close()
            assert list(stream) == []

    def never_asked():
        left()

    def dropped():
        for stream in left():
            next(stream)
            break

    def loop_broken_off():
        for stream in left():
            for _ in stream:
                break

    def consumer_raises():
        with pytest.raises(ZeroDivisionError):
            for stream in left():
                for token in stream:
                    token / 0

    for leave in (
        (closed, never_asked, dropped, loop_broken_off, consumer_raises) if model.sequences == 2 else (closed, dropped)
    ):
        leave()
        gc.collect()
        assert model.generate(PROMPTS[: model.sequences], MOST) == alone[: model.sequences], leave


def test_a_launch_that_fails_ends_all_streams(model, alone, monkeypatch):
    """Here as by Ctrl-C: some of what it has decoded is lost."""
    streams = [model.stream(prompt, 3 * MOST, tokens_per_launch=2) for prompt in PROMPTS[: model.sequences]]
    for stream, answer in zip(streams, alone):
        assert next(stream) == answer[0]

    def launch(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(model, "_launch", launch)
        with pytest.raises(KeyboardInterrupt):
            list(streams[-1])
    for stream in streams[:-1]:
        with pytest.raises(
            farwarp.MisuseError, match="the stream has lost its sequences: a launch failed with KeyboardInterrupt"
        ):
            list(stream)
    assert [list(stream) for stream in streams] == [[]] * len(streams)
    assert model.generate(PROMPTS[: model.sequences], MOST) == alone[: model.sequences]


def test_a_stream_that_cannot_start_leaves_the_others(model, alone):
    if model.sequences == 1:
        pytest.skip("one sequence")
    first = model.stream(PROMPTS[0], MOST, tokens_per_launch=2)
    assert next(first) == alone[0][0]
    with pytest.raises(farwarp.InvalidArgumentError, match="top_k is 17"):
        model.generate(PROMPTS[1], MOST, temperature=1.0, top_k=17)
    assert list(first) == alone[0][1:]
    assert model.generate(PROMPTS[: model.sequences], MOST) == alone[: model.sequences]


def test_recovery_and_close_end_streams():
    with farwarp.Qwen3.random("nano", seed=3, positions=32, **TARGET) as model:
        answer = model.generate(PROMPTS[0], MOST)
        stream = model.stream(PROMPTS[0], MOST, tokens_per_launch=2)
        assert next(stream) == answer[0]
        model.world.recover()
        with pytest.raises(
            farwarp.MisuseError,
            match=r"has lost its sequences: World.recover\(\) has ended them; allowed: a new stream",
        ):
            list(stream)
        assert model.generate(PROMPTS[0], MOST) == answer
        stream = model.stream(PROMPTS[0], MOST)
        model.close()
        with pytest.raises(farwarp.MisuseError, match="closed"):
            next(stream)
        stream.close()


def test_text_and_ids_beside_each_other(model, alone):
    if model.sequences == 1:
        pytest.skip("one sequence")

    class Letters:
        eos_token_id = None

        def __call__(self, text):
            return {"input_ids": [ord(letter) - ord("a") for letter in text]}

        def decode(self, tokens, skip_special_tokens):
            return " ".join(str(token) for token in tokens)

    model._tokenizer = Letters()
    prompt = "".join(chr(ord("a") + token) for token in PROMPTS[0])
    text, ids = model.stream(prompt, MOST, tokens_per_launch=2), model.stream(PROMPTS[1], MOST, tokens_per_launch=3)
    pairs = list(zip(text, ids))
    assert "".join(piece for piece, _ in pairs) == " ".join(map(str, alone[0]))
    assert [token for _, token in pairs] == alone[1]


def test_ranks():
    def decode(world):
        with farwarp.Qwen3.random("nano4", world, seed=3, positions=32, max_sms=2, sequences=2) as model:
            alone = [model.generate(prompt, MOST) for prompt in PROMPTS[:2]]
            pairs = list(zip(*(model.stream(prompt, MOST, tokens_per_launch=2) for prompt in PROMPTS[:2])))
            return pairs == list(zip(*alone)), alone

    room = farwarp.Qwen3.heap_bytes("random:nano4", 2, "emu_sm90", positions=32, max_sms=2, sequences=2)
    first, second = farwarp.run(decode, ranks=2, heap_bytes=room)
    assert first == second and first[0]


class Slow(token_streams.Streaming):
    """A model whose launches take long; `positions` of a column must not be exceeded."""

    def __init__(self):
        super().__init__(sequences=2, positions=6)
        self.world, self.lock, self.done = self, threading.RLock(), [0, 0]

    def exclusive(self):
        return self.lock

    def _start(self, request, one):
        return 0

    def _stop(self, column, stream):
        return 0

    def _launch(self, steps, end_tokens, stream):
        time.sleep(0.05)
        self.done = [done + steps for done in self.done]
        assert max(self.done) <= self.positions
        return [[column] * steps for column in range(2)]


def test_threads_take_turns():
    model, together = Slow(), threading.Barrier(2)

    def answer(request):
        together.wait(60)
        return list(model._tokens(request))

    requests = [token_streams.Request(frozenset(), None, 4, None) for _ in range(2)]
    for request in requests:
        model._reserve(request, [[0]], 6)
        model._start_new(request)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        found = list(pool.map(answer, requests))
    assert found == [[(0, column)] * 6 for column in range(2)]
