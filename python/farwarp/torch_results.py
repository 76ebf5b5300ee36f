"""Tensors of torch.ops.farwarp's calls, which on the emulator are copies."""

from __future__ import annotations

from typing import Any

import torch

from .array import Array
from .dtypes import torch_type
from .errors import InvalidArgumentError

OpResults = Any  # of a call: a tensor or several, torch's or farwarp's


def in_torch(results: OpResults) -> OpResults:
    """Results of a call as torch tensors: on the emulator they are Arrays."""
    if results.__class__ is Array:
        return results.torch()
    if results.__class__ is tuple and results[0].__class__ is Array:
        return tuple(array.torch() for array in results)
    return results


def copy_to(outputs: dict[str, torch.Tensor], results: OpResults) -> None:
    """Of a call on the emulator, to the tensors that its caller has given."""
    for (name, output), array in zip(outputs.items(), results if results.__class__ is tuple else (results,)):
        dtype = torch_type(array.dtype)
        if output.dtype != dtype or tuple(output.shape) != array.shape or not output.is_contiguous():
            raise InvalidArgumentError(
                f"{name} has shape {tuple(output.shape)}, strides {output.stride()}, {output.dtype}; "
                f"allowed: {array.shape}, contiguous, {dtype}"
            )
        output.copy_(array.torch())


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
