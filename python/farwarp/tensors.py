"""What operators take and return."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar, Union

import numpy as np

from .array import Array

if TYPE_CHECKING:
    import torch
    from typing_extensions import TypeGuard  # not needed to run

Tensor = Union[Array, "np.ndarray[Any, Any]", "torch.Tensor"]
"""What operators take; NumPy arrays and torch tensors in the host's memory on the emulator only."""

HostTensor = Union[Array, "np.ndarray[Any, Any]"]
"""Of these an operator's results are Arrays."""

Result = Union[Array, "torch.Tensor"]
"""What operators return: torch tensors on a GPU if the first input is one, else Arrays."""

Results = Union[Result, "tuple[Result, Result]"]
"""What operators return that may have two results, by an option of their creation."""

ResultT = TypeVar("ResultT", bound=Result)
"""What `out` is: it is returned."""


class TensorSpec(NamedTuple):
    """A result of a call."""

    shape: tuple[int, ...]
    dtype: str


class WithSpecs(Protocol):
    """An operator of which the shapes of results follow from its creation."""

    def result_specs(self) -> tuple[TensorSpec, ...]:
        """Shape and type of each result of a call."""


def is_torch(value: object) -> TypeGuard[torch.Tensor]:
    """Whether it is a torch tensor, in whatever memory."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)
