"""Text of a Qwen3: its tokenizer, and pieces of text as tokens come."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from .errors import InvalidArgumentError, UnavailableError

if TYPE_CHECKING:
    import transformers

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


def load_tokenizer(model: str) -> transformers.PreTrainedTokenizerBase:
    """The tokenizer in the model's folder.

    Parameters
    ----------
    model : str
        The folder, or "random:NAME".

    Returns
    -------
    transformers.PreTrainedTokenizerBase
        As AutoTokenizer gives it.

    Raises
    ------
    UnavailableError
        There is no transformers, or the weights are random.
    InvalidArgumentError
        A file of the tokenizer is no regular file.
    """
    if model.startswith("random:"):
        raise UnavailableError(f"{model} has no tokenizer; allowed: prompts of token ids")
    try:
        import transformers
    except ImportError as error:
        raise UnavailableError(
            f"text needs transformers ({error}); allowed without it: prompts of token ids"
        ) from error
    for name in _TOKENIZER_FILES:  # transformers would wait for a pipe's writer
        path = os.path.join(model, name)
        if os.path.lexists(path) and not os.path.isfile(path):
            raise InvalidArgumentError(f"{path} is no regular file; allowed: a file of a tokenizer")
    tokenizer: transformers.PreTrainedTokenizerBase = transformers.AutoTokenizer.from_pretrained(model)
    return tokenizer


def text_of(tokenizer: transformers.PreTrainedTokenizerBase, tokens: list[int]) -> str:
    """Without special tokens."""
    text = tokenizer.decode(tokens, skip_special_tokens=True)
    assert isinstance(text, str)  # a list of several sequences only
    return text


def pieces(tokenizer: transformers.PreTrainedTokenizerBase, tokens: Iterator[int]) -> Iterator[str]:
    """Pieces of text; a character comes when all its tokens have come."""
    before: list[int] = []  # tokens of the last piece: a tokenizer may write a text's first token in another way
    told = ""  # their text
    new: list[int] = []
    for token in tokens:
        new.append(token)
        text = text_of(tokenizer, before + new)
        if not text.endswith("\N{REPLACEMENT CHARACTER}") and text != told:
            yield text[len(told) :]
            before, new = new, []
            told = text_of(tokenizer, before)
    text = text_of(tokenizer, before + new)
    if text != told:  # the answer ends within a character
        yield text[len(told) :]
