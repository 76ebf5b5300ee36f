"""Tensors of torch.ops.farwarp's calls, which on the emulator are copies."""

from __future__ import annotations

from typing import Union, overload

import torch

from .array import Array
from .errors import InvalidArgumentError
from .tensors import Result

OpResults = Union[Result, "tuple[Result, ...]"]  # of a call


@overload
def in_torch(results: Result) -> torch.Tensor: ...
@overload
def in_torch(results: tuple[Result, ...]) -> tuple[torch.Tensor, ...]: ...
def in_torch(results: OpResults) -> torch.Tensor | tuple[torch.Tensor, ...]:
    """Results of a call as torch tensors: on the emulator they are Arrays."""
    if isinstance(results, tuple):
        return tuple(in_torch(result) for result in results)
    return results.torch() if isinstance(results, Array) else results


def copy_to(outputs: dict[str, torch.Tensor], results: OpResults) -> None:
    """Of a call on the emulator, to the tensors that its caller has given."""
    made = in_torch(results)
    for (name, output), result in zip(outputs.items(), made if isinstance(made, tuple) else (made,)):
        shape, dtype = tuple(result.shape), result.dtype
        if output.dtype != dtype or tuple(output.shape) != shape or not output.is_contiguous():
            raise InvalidArgumentError(
                f"{name} has shape {tuple(output.shape)}, strides {output.stride()}, {output.dtype}; "
                f"allowed: {shape}, contiguous, {dtype}"
            )
        output.copy_(result)


def check_apart(
    inputs: dict[str, torch.Tensor | None], outputs: dict[str, torch.Tensor], in_place: bool = False
) -> None:
    """Raise InvalidArgumentError for an output over another tensor of the call.

    On the emulator, where calls get copies; the library refuses it on GPUs. in_place: the output may be the input.
    """

    def span(tensor: torch.Tensor) -> tuple[int, int]:
        size = (
            sum((length - 1) * stride for length, stride in zip(tensor.shape, tensor.stride())) + 1
            if tensor.numel()
            else 0
        )
        return tensor.data_ptr(), size * tensor.element_size()

    seen = {name: span(tensor) for name, tensor in inputs.items() if tensor is not None}
    for name, output in outputs.items():
        begin, size = span(output)
        for other, (first, bytes_of_other) in seen.items():
            same = in_place and (begin, size) == (first, bytes_of_other)
            if size and bytes_of_other and begin < first + bytes_of_other and first < begin + size and not same:
                raise InvalidArgumentError(
                    f"{name} overlaps {other}; allowed: memory that no other tensor of the call has"
                )
        seen[name] = (begin, size)
