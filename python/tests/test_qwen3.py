"""Qwen3 against float64, and how tokens come."""

import re

import farwarp
import numpy as np
import pytest
import qwen3_model

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
    with farwarp.Qwen3.from_pretrained(folder, target=target, max_sms=2, sequences=3, positions=16, prefill_tokens=prefill_tokens) as model:
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


@pytest.mark.parametrize("vectors", ("packets", "streamed"))
def test_vectors_and_splits_are_the_callers(folder, vectors):
    with farwarp.Qwen3.from_pretrained(folder, sequences=2, positions=16, vectors=vectors, splits=2, **TARGET) as model:
        assert model._columns == (2 if vectors == "packets" else 16)
        assert len(model.generate([1, 2, 3], max_tokens=3)) == 3


@pytest.mark.parametrize("target", ("emu_sm90", "emu_gfx942"))
@pytest.mark.parametrize("far, options", ((3, {}), (150, {"splits": 1}), (150, {"splits": 2}), (150, {"vectors": "streamed", "splits": 1})), ids=str)
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
        assert len(model.generate([5, 6], max_tokens=9, tokens_per_launch=4)) == 9  # another sequence after one that was left
        assert launches == [4, 4, 4, 2]


def test_sampling():
    with farwarp.Qwen3.random("nano", positions=16, most_top_k=16, **TARGET) as model:

        def draw(seed, **options):
            return model.generate([5, 6], max_tokens=8, temperature=2.0, top_k=16, seed=seed, **options)

        assert draw(1) == draw(1)
        assert draw(1) != draw(2)
        assert draw(1, top_p=1e-6) == model.generate([5, 6], max_tokens=8)


@pytest.mark.parametrize(
    "arguments, message",
    (
        ({"prompts": [40]}, "prompt[0] is 40; allowed: 0 to 39"),
        ({"prompts": []}, "prompt 0 has 0 tokens and max_tokens is 4; allowed: a token at least"),
        ({"prompts": [1] * 30}, "prompt 0 has 30 tokens and max_tokens is 4; allowed: a token at least, and together 33"),
        ({"prompts": [[1], [2]]}, "prompts are 2; allowed: 1 to 1, sequences"),
        ({"prompts": [1], "max_tokens": 0}, "max_tokens is 0; allowed: 1 or more"),
        ({"prompts": [1], "tokens_per_launch": 0}, "tokens_per_launch is 0; allowed: 1 or more"),
        (
            {"prompts": [1], "temperature": 1.0, "top_k": 4},
            "Qwen3Sampling.temperature is 1; allowed: 0 (greedy) of a decoder whose Qwen3Limits.most_top_k is 0",
        ),
        ({"prompts": [1], "temperature": -1.0}, "temperature is -1; allowed"),
    ),
)
def test_bad_input(arguments, message):
    with farwarp.Qwen3.random("nano", positions=32, **TARGET) as model:
        with pytest.raises(farwarp.InvalidArgumentError, match=re.escape(message)):
            model.generate(**{"max_tokens": 4, **arguments})
        assert len(model.generate([1], max_tokens=2)) == 2


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


def test_text(folder):
    """With a tokenizer that knows letters."""

    class Letters:
        eos_token_id = 39

        def __call__(self, text):
            return {"input_ids": [ord(letter) - ord("a") for letter in text]}

        def decode(self, tokens, skip_special_tokens):
            assert skip_special_tokens
            text = "".join(chr(ord("a") + token) for token in tokens)
            return text if len(tokens) % 2 == 0 else text + "\N{REPLACEMENT CHARACTER}"  # pairs of tokens make a character

    with farwarp.Qwen3.from_pretrained(folder, positions=32, **TARGET) as model:
        model._tokenizer = Letters()
        ids = model.generate([1, 2], max_tokens=4)
        assert 39 not in ids
        assert model.generate("bc", max_tokens=4) == Letters().decode(ids, True)
        pieces = list(model.stream("bc", max_tokens=4))
        assert "".join(pieces) == Letters().decode(ids, True) and len(pieces) == 2
    with farwarp.Qwen3.random("nano", positions=32, **TARGET) as model:
        with pytest.raises(farwarp.UnavailableError, match="random:nano has no tokenizer; allowed: prompts of token ids"):
            model.generate("bc")


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
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "w39"}))
    with farwarp.Qwen3.from_pretrained(tmp_path, positions=16, **TARGET) as model:
        ids = model.generate([3, 1, 4], max_tokens=4)
        assert 39 not in ids
        assert model.generate("w3 w1 w4", max_tokens=4) == " ".join(f"w{i}" for i in ids)
        assert "".join(model.stream("w3 w1 w4", max_tokens=4)) == " ".join(f"w{i}" for i in ids)
