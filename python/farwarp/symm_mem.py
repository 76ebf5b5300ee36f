"""Operators of PyTorch's symmetric memory, with its signatures, on farwarp's kernels.

    from farwarp import symm_mem
    gathered, (y,) = symm_mem.fused_all_gather_matmul(A, [weight.t()], 0, group.group_name)

They stand for torch.ops.symm_mem.NAME, under torch.compile(fullgraph=True) as well. Tensors are ordinary ones: inputs
need not be in symmetric memory. Importing this module needs torch 2.4 or later.

A group gets a World at its first call, or by enable_symm_mem_for_group(). An operator is created by the first call of
its shape, which all ranks must make alike, as they must all calls; later calls create nothing. Kept are those
that a CUDA graph has captured, and of the others those used last, until there are 64 (operator_cache.MOST_OPERATORS);
closing one waits for the streams. A first call of a shape cannot be captured: it raises MisuseError.

What cannot be had is refused by name: another reduce_op than "sum", a gather_dim or scatter_dim with elements before
it, a B that is not the transpose of a contiguous matrix (of a weight [N, K], as torch.nn.Linear has it: weight.t()),
scaled products, and what needs multicast.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import NoReturn

import torch

from .all_reduce import AllReduce
from .dtypes import name_of
from .errors import InvalidArgumentError
from .gemm import Gemm
from .products import AllGatherGemm, GemmReduceScatter
from .symm_groups import close, enable_symm_mem_for_group, group_of, is_symm_mem_enabled_for_group, size_of
from .torch_ops import define
from .torch_results import check_apart, copy_to, in_torch

__all__ = [
    "close",
    "enable_symm_mem_for_group",
    "fused_all_gather_matmul",
    "fused_matmul_reduce_scatter",
    "is_symm_mem_enabled_for_group",
    "one_shot_all_reduce",
    "one_shot_all_reduce_out",
    "two_shot_all_reduce_",
    "two_shot_all_reduce_out",
]

_LEAST_ELEMENTS, _MOST_ELEMENTS = 1 << 12, 1 << 28  # of an all-reduce's operator
_MOST_ONE_SHOT_BYTES = 16 << 20
_SCALED = "farwarp has no parallel products of fp8"
_MULTICAST = "farwarp does not use multicast"
_REFUSED = {
    "fused_all_gather_scaled_matmul": _SCALED,
    "fused_scaled_matmul_reduce_scatter": _SCALED,
    "multimem_all_reduce_": _MULTICAST,
    "multimem_all_gather_out": _MULTICAST,
    "multimem_one_shot_all_reduce": _MULTICAST,
    "multimem_one_shot_all_reduce_out": _MULTICAST,
}


def __getattr__(name: str) -> NoReturn:
    if name in _REFUSED:
        raise AttributeError(f"farwarp.symm_mem has no {name}: {_REFUSED[name]}; allowed: {', '.join(__all__)}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


# ---- what is allowed


def _check_sum(reduce_op: str) -> None:
    if reduce_op != "sum":
        raise InvalidArgumentError(f"reduce_op is {reduce_op!r}; allowed: sum")


def _check_dimension(name: str, dimension: int, A: torch.Tensor) -> int:
    """The dimension, from 0, if the rows of all ranks lie one after another along it."""
    at = dimension + A.dim() if dimension < 0 else dimension
    if A.dim() < 2 or not 0 <= at < A.dim() - 1 or math.prod(A.shape[:at]) != 1:
        raise InvalidArgumentError(
            f"{name} is {dimension} for A of shape {tuple(A.shape)}; "
            "allowed: the first dimension that is not 1, not the last"
        )
    return at


@contextlib.contextmanager
def _of_tensors(**tensors: torch.Tensor | list[torch.Tensor]) -> Iterator[None]:
    """An operator is created for them, in whose terms it says what is not allowed."""
    try:
        yield
    except InvalidArgumentError as error:
        shapes = {
            name: [tuple(one.shape) for one in given] if isinstance(given, list) else tuple(given.shape)
            for name, given in tensors.items()
        }
        raise InvalidArgumentError(
            ", ".join(f"{name} has shape {shape}" for name, shape in shapes.items()) + f": {error}"
        ) from None


def _rows(A: torch.Tensor) -> torch.Tensor:
    if not A.is_contiguous():
        raise InvalidArgumentError(
            f"A has strides {A.stride()} for shape {tuple(A.shape)}; allowed: a contiguous tensor"
        )
    return A.view(-1, A.shape[-1])


def _weight(name: str, B: torch.Tensor, k: int) -> torch.Tensor:
    """[N, K] of [K, N]."""
    if B.dim() != 2 or B.shape[0] != k:
        raise InvalidArgumentError(f"{name} has shape {tuple(B.shape)}; allowed: [{k}, N]")
    w = B.t()
    if not w.is_contiguous():
        raise InvalidArgumentError(
            f"{name} has strides {B.stride()} for shape {tuple(B.shape)}; "
            f"allowed: (1, {k}), the transpose of a contiguous matrix"
        )
    return w


def _with(shape: torch.Size, dimension: int, size: int, last: int) -> tuple[int, ...]:
    return (*shape[:dimension], size, *shape[dimension + 1 : -1], last)


# ---- the operators


def fused_all_gather_matmul(
    A_shard: torch.Tensor, Bs: list[torch.Tensor], gather_dim: int, group_name: str, *, return_A: bool = True
) -> tuple[torch.Tensor | None, list[torch.Tensor]]:
    """A of all ranks, gathered along gather_dim, and its product with each B. Every rank calls it.

    The first B is multiplied while rows arrive (AllGatherGemm), further ones afterwards (Gemm).

    Parameters
    ----------
    A_shard : torch.Tensor [..., K]
        Contiguous, bfloat16 or float16.
    Bs : list of torch.Tensor [K, N]
        Of A_shard's type, each the transpose of a contiguous matrix; K and N are multiples of 8.
    gather_dim : int
        The first dimension of A_shard that is not 1, not the last.
    group_name : str
        Of the ProcessGroup.
    return_A : bool
        Whether the gathered A is returned, else None.

    Returns
    -------
    A : torch.Tensor or None
        Like A_shard, with the rows of all ranks.
    products : list of torch.Tensor
        [..., N] each.

    Raises
    ------
    InvalidArgumentError
        A tensor's shape, type or strides, or another argument, is not allowed.
    MisuseError
        A first call of a shape is captured in a CUDA graph.
    """
    gathered, outputs = torch.ops.farwarp.symm_mem_all_gather_matmul(A_shard, Bs, gather_dim, group_name, return_A)
    return (gathered if return_A else None), outputs


def _all_gather_matmul(
    A: torch.Tensor, Bs: list[torch.Tensor], gather_dim: int, group_name: str, return_A: bool
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    at = _check_dimension("gather_dim", gather_dim, A)
    if not Bs:
        raise InvalidArgumentError("Bs is empty; allowed: one matrix or more")
    group = group_of(group_name)
    x, size, dtype = _rows(A), group.world.size, name_of(A.dtype)
    (rows, k), ws = x.shape, [_weight(f"Bs[{i}]", B, A.shape[-1]) for i, B in enumerate(Bs)]
    keep_x = return_A or len(ws) > 1
    with _of_tensors(A_shard=A, Bs=Bs):
        first = group.operator(AllGatherGemm, rows * size, ws[0].shape[0] * size, k, dtype=dtype, return_x=keep_x)
    results = first(x, ws[0])
    y, all_x = results if isinstance(results, tuple) else (results, x)
    ys = [y]
    for w in ws[1:]:
        with _of_tensors(A_shard=A, Bs=Bs):
            gemm = group.operator(Gemm, rows * size, w.shape[0], k, dtype=dtype)
        ys.append(gemm(all_x, w))
    shape = A.shape[at] * size
    outputs = [in_torch(y).view(_with(A.shape, at, shape, w.shape[0])) for y, w in zip(ys, ws)]
    gathered = in_torch(all_x).view(_with(A.shape, at, shape, k)) if return_A else A.new_empty(0)
    return gathered, outputs


def _fake_all_gather_matmul(
    A: torch.Tensor, Bs: list[torch.Tensor], gather_dim: int, group_name: str, return_A: bool
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    at = _check_dimension("gather_dim", gather_dim, A)
    rows = A.shape[at] * size_of(group_name)
    gathered = A.new_empty(_with(A.shape, at, rows, A.shape[-1])) if return_A else A.new_empty(0)
    return gathered, [A.new_empty(_with(A.shape, at, rows, B.shape[1])) for B in Bs]


def fused_matmul_reduce_scatter(
    A: torch.Tensor, B: torch.Tensor, reduce_op: str, scatter_dim: int, group_name: str
) -> torch.Tensor:
    """The sum over ranks of A @ B, of which each rank gets its part along scatter_dim. Every rank calls it.

    Parameters
    ----------
    A : torch.Tensor [..., K]
        Contiguous, bfloat16 or float16; along scatter_dim a multiple of the ranks.
    B : torch.Tensor [K, N]
        Of A's type, the transpose of a contiguous matrix.
    reduce_op : str
        "sum"; terms are added in fp32.
    scatter_dim : int
        The first dimension of A that is not 1, not the last.
    group_name : str
        Of the ProcessGroup.

    Returns
    -------
    torch.Tensor [..., N]
        This rank's part.

    Raises
    ------
    InvalidArgumentError
        A tensor's shape, type or strides, or another argument, is not allowed.
    MisuseError
        A first call of a shape is captured in a CUDA graph.
    """
    result: torch.Tensor = torch.ops.farwarp.symm_mem_matmul_reduce_scatter(A, B, reduce_op, scatter_dim, group_name)
    return result


def _matmul_reduce_scatter(
    A: torch.Tensor, B: torch.Tensor, reduce_op: str, scatter_dim: int, group_name: str
) -> torch.Tensor:
    _check_sum(reduce_op)
    at = _check_dimension("scatter_dim", scatter_dim, A)
    group = group_of(group_name)
    size = group.world.size
    if A.shape[at] % size != 0:
        raise InvalidArgumentError(
            f"A has shape {tuple(A.shape)}; allowed in dimension {at}: a multiple of {size}, the ranks"
        )
    x, w = _rows(A), _weight("B", B, A.shape[-1])
    with _of_tensors(A=A, B=B):
        product = group.operator(GemmReduceScatter, x.shape[0], w.shape[0], x.shape[1] * size, dtype=name_of(A.dtype))
    result: torch.Tensor = in_torch(product(x, w)).view(_with(A.shape, at, A.shape[at] // size, w.shape[0]))
    return result


def _fake_matmul_reduce_scatter(
    A: torch.Tensor, B: torch.Tensor, reduce_op: str, scatter_dim: int, group_name: str
) -> torch.Tensor:
    at = _check_dimension("scatter_dim", scatter_dim, A)
    return A.new_empty(_with(A.shape, at, A.shape[at] // size_of(group_name), B.shape[1]))


def one_shot_all_reduce(input: torch.Tensor, reduce_op: str, group_name: str) -> torch.Tensor:
    """The sum over ranks: each rank sends all to all ranks; up to 16 MiB. Every rank calls it.

    Parameters
    ----------
    input : torch.Tensor
        Contiguous, of any shape, bfloat16, float16 or float32.
    reduce_op : str
        "sum"; terms are added in fp32 in the order of the ranks: the same bits on all.
    group_name : str
        Of the ProcessGroup.

    Returns
    -------
    torch.Tensor
        Like input.

    Raises
    ------
    InvalidArgumentError
        A tensor's shape, type or strides, or another argument, is not allowed.
    MisuseError
        A first call of a shape is captured in a CUDA graph.
    """
    result: torch.Tensor = torch.ops.farwarp.symm_mem_all_reduce(input, reduce_op, group_name, "one_shot")
    return result


def one_shot_all_reduce_out(input: torch.Tensor, reduce_op: str, group_name: str, out: torch.Tensor) -> torch.Tensor:
    """one_shot_all_reduce() into `out`, which is returned. Parameters and failures: one_shot_all_reduce()."""
    torch.ops.farwarp.symm_mem_all_reduce_out(input, reduce_op, group_name, "one_shot", out)
    return out


def two_shot_all_reduce_(input: torch.Tensor, reduce_op: str, group_name: str) -> torch.Tensor:
    """The sum over ranks in place of `input`, which is returned: each rank adds up a part and sends the sums to all.

    Every rank calls it. Parameters and failures: one_shot_all_reduce(); up to 2**28 elements.
    """
    torch.ops.farwarp.symm_mem_all_reduce_(input, reduce_op, group_name, "two_shot")
    return input


def two_shot_all_reduce_out(input: torch.Tensor, reduce_op: str, group_name: str, output: torch.Tensor) -> torch.Tensor:
    """two_shot_all_reduce_() into `output`, which is returned. Parameters and failures: one_shot_all_reduce()."""
    torch.ops.farwarp.symm_mem_all_reduce_out(input, reduce_op, group_name, "two_shot", output)
    return output


def _reducer(input: torch.Tensor, reduce_op: str, group_name: str, algorithm: str) -> AllReduce:
    _check_sum(reduce_op)
    group, count, most = group_of(group_name), input.numel(), _MOST_ELEMENTS
    if algorithm == "one_shot" and group.world.size > 1:
        most = _MOST_ONE_SHOT_BYTES // input.element_size()
    if count > most:
        raise InvalidArgumentError(
            f"input has {count} elements of {name_of(input.dtype)}; allowed: up to {most} for {algorithm}_all_reduce"
        )
    elements = max(_LEAST_ELEMENTS, 1 << (count - 1).bit_length() if count else 0)
    with _of_tensors(input=input):
        return group.operator(AllReduce, elements, dtype=name_of(input.dtype), mode=algorithm)


def _all_reduce(input: torch.Tensor, reduce_op: str, group_name: str, algorithm: str) -> torch.Tensor:
    result: torch.Tensor = in_torch(_reducer(input, reduce_op, group_name, algorithm)(input))
    return result


def _all_reduce_out(input: torch.Tensor, reduce_op: str, group_name: str, algorithm: str, out: torch.Tensor) -> None:
    reduce = _reducer(input, reduce_op, group_name, algorithm)
    if reduce.world.emulated:
        check_apart({"input": input}, {"out": out}, in_place=True)
        copy_to({"out": out}, reduce(input))
    else:
        reduce(input, out=out)


def _all_reduce_in_place(input: torch.Tensor, reduce_op: str, group_name: str, algorithm: str) -> None:
    _all_reduce_out(input, reduce_op, group_name, algorithm, input)


def _nothing(*_arguments: object) -> None:
    return None


_REDUCE = "str reduce_op, str group_name, str algorithm"
define(
    "symm_mem_all_gather_matmul(Tensor A, Tensor[] Bs, int gather_dim, str group_name, bool return_A)"
    " -> (Tensor, Tensor[])",
    _all_gather_matmul,
    _fake_all_gather_matmul,
)
define(
    "symm_mem_matmul_reduce_scatter(Tensor A, Tensor B, str reduce_op, int scatter_dim, str group_name) -> Tensor",
    _matmul_reduce_scatter,
    _fake_matmul_reduce_scatter,
)
define(
    f"symm_mem_all_reduce(Tensor input, {_REDUCE}) -> Tensor", _all_reduce, lambda input, *_: torch.empty_like(input)
)
define(f"symm_mem_all_reduce_out(Tensor input, {_REDUCE}, Tensor(a!) out) -> ()", _all_reduce_out, _nothing)
define(f"symm_mem_all_reduce_(Tensor(a!) input, {_REDUCE}) -> ()", _all_reduce_in_place, _nothing)
