"""Qwen3 against float64, and how tokens come."""

import itertools
import json
import os
import re
import shutil
import warnings

import numpy as np
import pytest

import farwarp
import qwen3_model
from farwarp import qwen3_desc, qwen3_text

TARGET = {"target": "emu_sm90", "max_sms": 2}
PROMPTS = [[3, 1, 4], [1, 5, 9, 2], [7]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("model")
    qwen3_model.save(path)
    return path


def assert_best(prompt, answer):
    """Each token has the best logit after those before it, or one that bf16 may take for it."""
    scores = qwen3_model.logits(prompt + answer[:-1])[len(prompt) - 1 :]
    shortfall = scores.max(axis=1) - scores[np.arange(len(answer)), answer]
    assert (shortfall < 0.1).all(), shortfall
    assert (shortfall == 0).sum() >= len(answer) - 1


@pytest.mark.parametrize("target", ("emu_sm90", "emu_gfx942"))
@pytest.mark.parametrize("prefill_tokens", (0, 16))
def test_generate(folder, target, prefill_tokens):
    with farwarp.Qwen3.from_pretrained(
        folder, target=target, max_sms=2, sequences=3, positions=16, prefill_tokens=prefill_tokens
    ) as model:
        answers = model.generate(PROMPTS, max_tokens=4)
        for prompt, answer in zip(PROMPTS, answers):
            assert len(answer) == 4
            assert_best(prompt, answer)
        assert model.generate(PROMPTS[1], max_tokens=4, tokens_per_launch=3) == answers[1]
        assert list(model.stream(PROMPTS[2], max_tokens=4, tokens_per_launch=1)) == answers[2]
        end = answers[0][1]
        assert model.generate(PROMPTS[0], max_tokens=4, end_token=end) == answers[0][: answers[0].index(end) + 1]
        room = model.positions + 1 - len(PROMPTS[0])  # all positions
        assert model.generate(PROMPTS[0], max_tokens=room)[:4] == answers[0]


def test_end_tokens(folder, tmp_path):
    own = tmp_path / "model"
    shutil.copytree(folder, own)
    options = {"positions": 24, **TARGET}
    with farwarp.Qwen3.from_pretrained(folder, **options) as model:
        assert model.end_tokens == () and model.asked_sampling == {}
        free = model.generate(PROMPTS[0], max_tokens=12)
        ends = sorted(set(free))[:2]
        first = min(free.index(end) for end in ends)
        for given in (ends, tuple(ends), set(ends), np.array(ends), [*ends, ends[0]]):
            assert model.generate(PROMPTS[0], max_tokens=12, end_token=given) == free[: first + 1]
        for given in ([], ()):
            assert model.generate(PROMPTS[0], max_tokens=12, end_token=given) == free
        for wrong in ([40], [-1], -1, 40, 1.5, [1.5], "3", range(9), 2**70):
            with pytest.raises(
                farwarp.InvalidArgumentError, match=r"end_token is .*; allowed: None, or up to 8 tokens of 0 to 39"
            ):
                model.generate(PROMPTS[0], end_token=wrong)
    (own / "generation_config.json").write_text(
        json.dumps({"eos_token_id": ends, "do_sample": True, "temperature": 0.5, "top_k": 20, "top_p": 0.25})
    )
    with farwarp.Qwen3.from_pretrained(own, **options) as model:
        assert model.end_tokens == tuple(ends)
        assert model.asked_sampling == {"temperature": 0.5, "top_k": 20, "top_p": 0.25}
        with pytest.warns(UserWarning, match="asks for draws: temperature=0.5, top_k=20, top_p=0.25"):
            assert model.generate(PROMPTS[0], max_tokens=12) == free[: first + 1]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert model.generate(PROMPTS[0], max_tokens=12, temperature=0, end_token=()) == free
    (own / "generation_config.json").write_text(json.dumps({"repetition_penalty": 1.05}))
    with pytest.raises(
        farwarp.InvalidArgumentError, match=r"generation_config.json: repetition_penalty is 1.05; allowed: 1"
    ):
        farwarp.Qwen3.from_pretrained(own, **options)


def test_files_that_are_no_files(folder, tmp_path):
    """Each is named at once; nothing waits."""
    names = ("config.json", "generation_config.json", "model.safetensors", "tokenizer.json")
    kinds = {
        "a folder": os.mkdir,
        "a pipe": os.mkfifo,
        "a device": lambda path: os.symlink("/dev/zero", path),
        "cannot be read: Too many levels": lambda path: os.symlink(path.name, path),
    }
    for number, (name, (kind, make)) in enumerate(itertools.product(names, kinds.items())):
        own = tmp_path / str(number)
        shutil.copytree(folder, own)
        (own / name).unlink(missing_ok=True)
        make(own / name)
        if name == "tokenizer.json":
            kind = "no regular file"
            pytest.importorskip("transformers")
        with pytest.raises(farwarp.InvalidArgumentError, match=f"{name}:? .*{kind}"):
            with farwarp.Qwen3.from_pretrained(own, positions=16, **TARGET) as model:
                _ = model.tokenizer


@pytest.mark.parametrize("vectors", ("packets", "streamed"))
def test_vectors_and_splits_are_the_callers(folder, vectors):
    with farwarp.Qwen3.from_pretrained(folder, sequences=2, positions=16, vectors=vectors, splits=2, **TARGET) as model:
        assert model._columns == (2 if vectors == "packets" else 16)
        assert len(model.generate([1, 2, 3], max_tokens=3)) == 3


@pytest.mark.parametrize("target", ("emu_sm90", "emu_gfx942"))
@pytest.mark.parametrize(
    "far, options",
    ((3, {}), (150, {"splits": 1}), (150, {"splits": 2}), (150, {"vectors": "streamed", "splits": 1})),
    ids=str,
)
def test_large_logits(tmp_path, target, far, options):
    """Exponents are of scores' differences: of scaled scores they would be 0 or 2 here, not log2(e)."""
    qwen3_model.save(tmp_path, qwen3_model.large_logits(below=2, far=3), rope_theta=1e12)
    more = {"target": target, "max_sms": 2, "positions": far + 16, "prefill_tokens": 64, **options}
    with farwarp.Qwen3.from_pretrained(tmp_path, sequences=1, **more) as model:
        for copies, wins in ((2, 1), (3, 2)):  # 1 against 2 / e and 3 / e
            assert model.generate([1] + [3] * far + [2] * copies + [3], max_tokens=1) == [wins]


def test_ranks_decode_together():
    def decode(world):
        with farwarp.Qwen3.random("nano4", world, seed=3, positions=32, max_sms=2) as model:
            return model.generate([1, 2, 3], max_tokens=4)

    bytes_of_two = farwarp.Qwen3.heap_bytes("random:nano4", 2, "emu_sm90", positions=32, max_sms=2)
    first, second = farwarp.run(decode, ranks=2, heap_bytes=bytes_of_two)
    alone = farwarp.run(decode, ranks=1)[0]
    assert first == second and len(first) == 4
    assert first[0] == alone[0]  # later ones may differ: ranks add in another order


def test_tokens_come_as_they_are_decoded():
    with farwarp.Qwen3.random("nano", positions=32, **TARGET) as model:
        launches = []
        launch = model._launch
        model._launch = lambda *arguments: launches.append(arguments[0]) or launch(*arguments)
        tokens = model.stream([5, 6], max_tokens=10, tokens_per_launch=4)
        assert launches == []
        next(tokens)
        assert launches == [4]
        tokens.close()
        assert (
            len(model.generate([5, 6], max_tokens=9, tokens_per_launch=4)) == 9
        )  # another sequence after one that was left
        assert launches == [4, 4, 4, 2]


def test_sampling():
    with farwarp.Qwen3.random("nano", positions=16, most_top_k=16, **TARGET) as model:

        def draw(seed, **options):
            return model.generate([5, 6], max_tokens=8, temperature=2.0, top_k=16, seed=seed, **options)

        assert draw(1) == draw(1)
        assert draw(1) != draw(2)
        assert draw(1, top_p=1e-6) == model.generate([5, 6], max_tokens=8)


def test_seeds_wrap_around():
    """Sequence i draws with seed + i modulo 2**64."""
    with farwarp.Qwen3.random("nano", positions=16, most_top_k=16, sequences=2, **TARGET) as model:

        def draw(prompts, seed):
            return model.generate(prompts, max_tokens=8, temperature=2.0, top_k=16, seed=seed)

        assert draw([[5, 6], [5, 6]], 2**64 - 1) == [draw([5, 6], 2**64 - 1), draw([5, 6], 0)]


@pytest.mark.parametrize(
    "arguments, message",
    (
        ({"prompts": [40]}, "prompt[0] is 40; allowed: 0 to 39"),
        ({"prompts": []}, "prompt 0 has 0 tokens and max_tokens is 4; allowed: a token at least"),
        (
            {"prompts": [1] * 30},
            "prompt 0 has 30 tokens and max_tokens is 4; allowed: a token at least, and together 33",
        ),
        ({"prompts": [[1], [2]]}, "prompts are 2; allowed: 1 to 1, sequences"),
        ({"prompts": [1], "max_tokens": 0}, "max_tokens is 0; allowed: 1 or more"),
        ({"prompts": [1], "max_tokens": 2.5}, "max_tokens is 2.5; allowed: a whole number"),
        ({"prompts": [1], "tokens_per_launch": 0}, "tokens_per_launch is 0; allowed: 1 or more"),
        ({"prompts": [1], "end_token": -1}, "end_token is -1; allowed: None, or up to 8 tokens of 0 to "),
        ({"prompts": [1], "seed": 2**64}, f"seed is {2**64}; allowed: a number of 64 bits, 0 or more"),
        (
            {"prompts": [1], "temperature": 1.0, "top_k": 4},
            "temperature is 1; allowed: 0 (greedy) of a decoder whose most_top_k is 0",
        ),
        ({"prompts": [1], "temperature": -1.0}, "temperature is -1; allowed"),
    ),
)
def test_bad_input(arguments, message):
    with farwarp.Qwen3.random("nano", positions=32, **TARGET) as model:
        with pytest.raises(farwarp.InvalidArgumentError, match=re.escape(message)):
            model.generate(**{"max_tokens": 4, **arguments})
        assert len(model.generate([1], max_tokens=2)) == 2


@pytest.mark.parametrize("where", ("creation", "close", "with"))
def test_a_failure_closes_the_models_own_world(monkeypatch, where):
    worlds = []

    def made(**arguments):
        worlds.append(farwarp.World(**arguments))
        return worlds[0]

    def failing(*_):
        raise OSError("made to fail")

    monkeypatch.setattr(farwarp.qwen3, "World", made)
    monkeypatch.setattr(*((qwen3_desc, "generation") if where == "creation" else (farwarp.Operator, "close")), failing)
    with pytest.raises(OSError, match="made to fail"):
        model = farwarp.Qwen3.random("nano", positions=16, **TARGET)
        if where == "with":
            with model:
                pass
        else:
            model.close()
    assert not worlds[0].is_open


def test_what_is_a_token():
    """Arrays are none, even of one: they are prompts. Nor is True."""
    assert not qwen3_desc.is_token(np.array([5])) and not qwen3_desc.is_token([5])
    assert qwen3_desc.is_token(np.int64(5)) and qwen3_desc.is_token(np.array(5)) and qwen3_desc.is_token(5)
    assert qwen3_desc.end_tokens(np.int64(3), 40) == [3] and qwen3_desc.end_tokens([3, 4], 40) == [3, 4]
    for wrong in (True, [3, True], 1.0):
        with pytest.raises(farwarp.InvalidArgumentError, match=re.escape(f"end_token is {wrong}; allowed: None, or")):
            qwen3_desc.end_tokens(wrong, 40)


def test_models_that_there_are_not(tmp_path):
    with pytest.raises(farwarp.InvalidArgumentError, match=re.escape(f"{tmp_path}/config.json: cannot be read")):
        farwarp.Qwen3.from_pretrained(tmp_path, **TARGET)
    with pytest.raises(farwarp.InvalidArgumentError, match="target is 'tpu'; allowed: auto, cuda"):
        farwarp.Qwen3.random("nano", target="tpu")
    with pytest.raises(farwarp.InvalidArgumentError, match="micro"):
        farwarp.Qwen3.random("micro", **TARGET)
    with farwarp.World(target="emu_sm90", heap_bytes=1 << 16) as world:
        with pytest.raises(farwarp.OutOfMemoryError):
            farwarp.Qwen3.random("nano", world, sequences=8, max_sms=2)


class Letters:
    """A tokenizer of letters. `parts` tokens make a character."""

    eos_token_id = 39

    def __init__(self, parts=2):
        self.parts = parts

    def __call__(self, text):
        return {"input_ids": [ord(letter) - ord("a") for letter in text]}

    def decode(self, tokens, skip_special_tokens):
        assert skip_special_tokens
        text = "".join(chr(ord("a") + token) for token in tokens if token != self.eos_token_id)
        return text if len(text) % self.parts == 0 else text + "\N{REPLACEMENT CHARACTER}"


def test_text(folder):
    with farwarp.Qwen3.from_pretrained(folder, positions=32, **TARGET) as model:
        model._tokenizer = Letters()
        ids = model.generate([1, 2], max_tokens=4)
        assert 39 not in ids
        assert model.generate("bc", max_tokens=4) == Letters().decode(ids, True)
        pieces = list(model.stream("bc", max_tokens=4))
        assert "".join(pieces) == Letters().decode(ids, True) and len(pieces) == 2
    with farwarp.Qwen3.random("nano", positions=32, **TARGET) as model:
        with pytest.raises(
            farwarp.UnavailableError, match="random:nano has no tokenizer; allowed: prompts of token ids"
        ):
            model.generate("bc")


def test_text_is_decoded_piece_by_piece():
    tokens, most = [number % 26 for number in range(1000)], []

    class Counting(Letters):
        def decode(self, tokens, skip_special_tokens):
            most.append(len(tokens))
            return super().decode(tokens, skip_special_tokens)

    assert "".join(qwen3_text.pieces(Counting(3), iter(tokens))) == Letters(3).decode(tokens, True)
    assert max(most) == 6  # the last piece and the next one


@pytest.mark.parametrize("parts", (2, 3, 5))
def test_text_that_ends_within_a_character(folder, parts):
    """At the last of max_tokens, and at an end token."""
    with farwarp.Qwen3.from_pretrained(folder, positions=32, **TARGET) as model:
        model._tokenizer = Letters(parts)
        for most in range(1, 8):
            assert "".join(model.stream("bc", most)) == model.generate("bc", most)
        end = model._tokenizer.eos_token_id = model.generate([1, 2], max_tokens=8)[6]
        text = model.generate("bc", max_tokens=8)
        assert end not in model._tokenizer(text.rstrip("\N{REPLACEMENT CHARACTER}"))["input_ids"]
        assert "".join(model.stream("bc", 8)) == text


def test_text_by_transformers(tmp_path):
    """With a tokenizer of 40 words in the model's folder."""
    pytest.importorskip("transformers")
    import json

    qwen3_model.save(tmp_path)
    words = {f"w{i}": i for i in range(40)}
    (tmp_path / "tokenizer.json").write_text(
        json.dumps(
            {
                "version": "1.0",
                "truncation": None,
                "padding": None,
                "normalizer": None,
                "post_processor": None,
                "decoder": None,
                "added_tokens": [
                    {
                        "id": 39,
                        "content": "w39",
                        "special": True,
                        "single_word": False,
                        "lstrip": False,
                        "rstrip": False,
                        "normalized": False,
                    }
                ],
                "pre_tokenizer": {"type": "Whitespace"},
                "model": {"type": "WordLevel", "vocab": words, "unk_token": "w0"},
            }
        )
    )
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "w39"})
    )
    with farwarp.Qwen3.from_pretrained(tmp_path, positions=16, **TARGET) as model:
        ids = model.generate([3, 1, 4], max_tokens=4)
        assert 39 not in ids
        assert model.generate("w3 w1 w4", max_tokens=4) == " ".join(f"w{i}" for i in ids)
        assert "".join(model.stream("w3 w1 w4", max_tokens=4)) == " ".join(f"w{i}" for i in ids)
