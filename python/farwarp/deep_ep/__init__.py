"""A drop-in for DeepEP's `deep_ep` module (v1.2.1) on farwarp's kernels.

    from farwarp.deep_ep import Buffer          # instead of: from deep_ep import Buffer

A program that imports `deep_ep` itself needs no change: call install() before its import, or put the folder that
`python -m farwarp.deep_ep` prints on PYTHONPATH.

The ranks of a Buffer are GPUs of one machine, at most 8. What is not here is refused by an exception that names it.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from .buffer import Buffer
from .config import Config
from .event import EventHandle, EventOverlap

if TYPE_CHECKING:
    import torch

__all__ = ["Buffer", "Config", "EventHandle", "EventOverlap", "install", "top_level"]


def top_level() -> str:
    """A folder to put on PYTHONPATH, in which there is nothing but a module `deep_ep`, this one."""
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "top_level")


def install() -> None:
    """From now on `import deep_ep` imports this module, in this process.

    ImportError if another `deep_ep` has been imported.
    """
    here = sys.modules[__name__]
    found = sys.modules.setdefault("deep_ep", here)
    if found is not here:
        raise ImportError(f"deep_ep is {found!r} in this process already; allowed: install() before its first import")


def __getattr__(name: str) -> torch.dtype:
    if name == "topk_idx_t":  # the type of top-k indices that programs should make
        import torch

        return torch.int64
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
