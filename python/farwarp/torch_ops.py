"""Operators as torch.library operators, which torch.compile carries in its graphs.

    import farwarp.torch_ops
    up = farwarp.torch_ops.register(farwarp.AllGatherGemm(world, m, n, k))  # a name, "AllGatherGemm.0"
    y = torch.ops.farwarp.ag_gemm(up, x, w)
    torch.ops.farwarp.ag_gemm(up, x, w, out=y)

Importing this module needs torch 2.4 or later and registers them. Each takes the name of an operator of a class, then
its tensors. All but all_reduce_ have two overloads: one returns new tensors; the other, .out, writes to those that are
given by the names of its results, `out=` if there is one, and returns nothing. A call enqueues on torch's current
stream. On the emulator tensors are in the host's memory and a call waits.

    gemm(op, x, w, bias=None)                          Gemm
    fp8_gemm(op, x, w, x_scale, w_scale, bias=None)    Fp8Gemm
    grouped_gemm(op, x, w, rows, x_scale=None, w_scale=None, bias=None)   GroupedGemm
    ag_gemm(op, x, w, bias=None)                       AllGatherGemm
    ag_gemm_x(op, x, w, bias=None) -> (out, all_x)     with return_x
    gemm_rs(op, x, w, bias=None)                       GemmReduceScatter
    gemm_ar(op, x, w, bias=None)                       GemmAllReduce
    all_reduce(op, x); all_reduce_(op, x)              AllReduce; the second writes to x
    attention(op, q, k, v, sinks=None, query_starts=None, key_starts=None, key_counts=None, block_table=None)
    attention_lse(...) -> (out, lse)                   Attention; with lse
    flash_decode(op, q, k, v, block_table, lengths, k_scale=None, v_scale=None, sinks=None)
    flash_decode_lse(...) -> (out, lse)                FlashDecode; with lse
    moe_dispatch(op, x, indices, weights, count=None) -> (recv_x, counts, offsets, origins)
    moe_dispatch_fp8(...) -> (recv_x, counts, offsets, origins, scales)   of a MoeAllToAll with scales
    moe_combine(op, y, indices, count=None)            MoeAllToAll; indices and count are those of the dispatch, which
                                                       the kernel reads again: a graph must not free them before
    moe_fused(op, x, indices, weights, expert_table=None, count=None)
    moe_layer(op, x, indices, weights, w1, w2, bias1=None, bias2=None, count=None)   MoeLayer

They are for inference: there are no gradients. All ranks must execute the same calls in the same order, so their
compiled graphs must be the same. A graph may leave out a call whose results nothing uses, and reorder calls of which
neither needs the other's results: the result of a dispatch must lead to its combine, and that to the next dispatch of
the operator, as in a model's layers. Otherwise a call raises MisuseError.
"""

from __future__ import annotations

import functools
import itertools
import weakref
from typing import Any, Callable, NamedTuple

import torch

from . import torch_calls
from .all_reduce import AllReduce
from .attention import Attention
from .dtypes import torch_type
from .errors import InvalidArgumentError, MisuseError
from .flash_decode import FlashDecode
from .gemm import Fp8Gemm, Gemm
from .grouped_gemm import GroupedGemm
from .moe import MoeAllToAll, MoeReceived
from .moe_layer import MoeLayer
from .operator import Operator
from .products import AllGatherGemm, GemmAllReduce, GemmReduceScatter
from .tensors import TensorSpec
from .torch_results import OpResults, check_apart, copy_to, in_torch

__all__ = ["register"]

if not hasattr(torch.library, "register_fake"):
    raise ImportError(f"torch is {torch.__version__}; allowed for farwarp.torch_ops: 2.4 or later")


class _Named(NamedTuple):
    operator: weakref.ref[Operator]
    form: str


_named: dict[str, _Named] = {}
_numbers = itertools.count()


def register(operator: Operator, name: str | None = None) -> str:
    """The name by which torch.ops.farwarp finds an operator. Local.

    A name is valid until the operator is closed: afterwards a call with it raises MisuseError, and it can be given to
    another operator. Names belong to the process, and those that are not given are numbered in the order of
    registration, so that processes that do the same get the same names. A compiled graph contains the name: a graph
    that is kept in a cache finds the operator that has the name then.

    Parameters
    ----------
    operator : Operator
        Of one of the classes above, and open.
    name : str, optional
        None: the name that it has, or a new one.

    Returns
    -------
    str
        The name.

    Raises
    ------
    InvalidArgumentError
        There are no ops for the operator's class, or an open operator has the name.
    MisuseError
        The operator is closed.
    """
    form = _form_of(operator)
    if name is None:
        name = operator.torch_name or f"{type(operator).__name__}.{next(_numbers)}"
    holder = _named.get(name)
    other = holder.operator() if holder is not None else None
    if other is not None and other is not operator and other.handle is not None:
        raise InvalidArgumentError(
            f"name is {name!r}, which a {type(other).__name__} has; allowed: a name of no open operator"
        )
    operator.open_handle()
    operator.torch_name = name
    _named[name] = _Named(weakref.ref(operator, functools.partial(_forget, name)), form)
    return name


def _forget(name: str, gone: weakref.ref[Operator]) -> None:
    if name in _named and _named[name].operator is gone:
        del _named[name]


# Which operators an op of torch takes: what a message calls them.
_FORMS = {
    "gemm": "a Gemm",
    "fp8_gemm": "an Fp8Gemm",
    "grouped_gemm": "a GroupedGemm",
    "ag_gemm": "an AllGatherGemm",
    "ag_gemm_x": "an AllGatherGemm with return_x",
    "gemm_rs": "a GemmReduceScatter",
    "gemm_ar": "a GemmAllReduce",
    "all_reduce": "an AllReduce",
    "attention": "an Attention",
    "attention_lse": "an Attention with lse",
    "flash_decode": "a FlashDecode",
    "flash_decode_lse": "a FlashDecode with lse",
    "moe": "a MoeAllToAll",
    "moe_fp8": "a MoeAllToAll with scales",
    "moe_layer": "a MoeLayer",
}
_BY_CLASS: tuple[tuple[type, Callable[[Any], str]], ...] = (  # each is given an operator of its class
    (Gemm, lambda operator: "gemm"),
    (Fp8Gemm, lambda operator: "fp8_gemm"),
    (GroupedGemm, lambda operator: "grouped_gemm"),
    (AllGatherGemm, lambda operator: "ag_gemm_x" if operator.return_x else "ag_gemm"),
    (GemmReduceScatter, lambda operator: "gemm_rs"),
    (GemmAllReduce, lambda operator: "gemm_ar"),
    (AllReduce, lambda operator: "all_reduce"),
    (Attention, lambda operator: "attention_lse" if operator.has_lse else "attention"),
    (FlashDecode, lambda operator: "flash_decode_lse" if operator.has_lse else "flash_decode"),
    (MoeAllToAll, lambda operator: "moe" if operator.scales is None else "moe_fp8"),
    (MoeLayer, lambda operator: "moe_layer"),
)


def _form_of(operator: Operator) -> str:
    if isinstance(operator, MoeAllToAll) and operator.weights_at_combine:
        raise InvalidArgumentError("operator is a MoeAllToAll with weights_at_combine; allowed: one without")
    for kind, form in _BY_CLASS:
        if isinstance(operator, kind):
            return form(operator)
    raise InvalidArgumentError(
        f"operator is a {type(operator).__name__}; allowed: {', '.join(kind.__name__ for kind, _ in _BY_CLASS)}"
    )


def _find(op: str, forms: tuple[str, ...]) -> Any:  # of the class that the forms say
    named = _named.get(op)
    operator = None if named is None else named.operator()
    if named is None or operator is None:
        raise MisuseError(
            f"op is {op!r}, which no operator has; allowed: a name that register() gave, of an operator that is open"
        )
    if operator.handle is None:
        raise MisuseError(
            f"op is {op!r}, a {type(operator).__name__} that is closed; allowed: an operator that is open"
        )
    if named.form not in forms:
        allowed = " or ".join(_FORMS[form] for form in forms)
        raise InvalidArgumentError(f"op is {op!r}, {_FORMS[named.form]}; allowed: {allowed}")
    return operator


class _Op(NamedTuple):
    name: str
    forms: tuple[str, ...]  # of operators that it takes
    inputs: str  # of its schema
    outputs: str  # names of the results
    call: Callable[..., OpResults]  # (operator, inputs..., results by name if they are given)
    results: Callable[..., tuple[TensorSpec, ...]] = (
        torch_calls.fixed
    )  # (operator, inputs...) -> shape and type of each


_PRODUCT = "Tensor x, Tensor w, Tensor? bias=None"
_SCALED_PRODUCT = "Tensor x, Tensor w, Tensor x_scale, Tensor w_scale, Tensor? bias=None"
_GROUPED = "Tensor x, Tensor w, Tensor rows, Tensor? x_scale=None, Tensor? w_scale=None, Tensor? bias=None"
_ATTENTION = (
    "Tensor q, Tensor k, Tensor v, Tensor? sinks=None, Tensor? query_starts=None, Tensor? key_starts=None, "
    "Tensor? key_counts=None, Tensor? block_table=None"
)
_DECODE = (
    "Tensor q, Tensor k, Tensor v, Tensor block_table, Tensor lengths, Tensor? k_scale=None, Tensor? v_scale=None, "
    "Tensor? sinks=None"
)
_TOKENS = "Tensor x, Tensor indices, Tensor weights"
_LAYER = f"{_TOKENS}, Tensor w1, Tensor w2, Tensor? bias1=None, Tensor? bias2=None, Tensor? count=None"
_RECEIVED = " ".join(MoeReceived._fields[:4])
_OPS = (
    _Op("gemm", ("gemm",), _PRODUCT, "out", Gemm.__call__),
    _Op("fp8_gemm", ("fp8_gemm",), _SCALED_PRODUCT, "out", Fp8Gemm.__call__),
    _Op("grouped_gemm", ("grouped_gemm",), _GROUPED, "out", GroupedGemm.__call__),
    _Op("ag_gemm", ("ag_gemm",), _PRODUCT, "out", AllGatherGemm.__call__),
    _Op("ag_gemm_x", ("ag_gemm_x",), _PRODUCT, "out all_x", AllGatherGemm.__call__),
    _Op("gemm_rs", ("gemm_rs",), _PRODUCT, "out", GemmReduceScatter.__call__),
    _Op("gemm_ar", ("gemm_ar",), _PRODUCT, "out", GemmAllReduce.__call__),
    _Op("all_reduce", ("all_reduce",), "Tensor x", "out", AllReduce.__call__, AllReduce.result_specs),
    _Op("attention", ("attention",), _ATTENTION, "out", torch_calls.attention),
    _Op("attention_lse", ("attention_lse",), _ATTENTION, "out lse", torch_calls.attention),
    _Op("flash_decode", ("flash_decode",), _DECODE, "out", torch_calls.decode),
    _Op("flash_decode_lse", ("flash_decode_lse",), _DECODE, "out lse", torch_calls.decode),
    _Op(
        "moe_dispatch",
        ("moe",),
        f"{_TOKENS}, Tensor? count=None",
        _RECEIVED,
        torch_calls.dispatch,
        lambda moe, *_: moe.received_specs(),
    ),
    _Op(
        "moe_dispatch_fp8",
        ("moe_fp8",),
        f"{_TOKENS}, Tensor? count=None",
        f"{_RECEIVED} scales",
        torch_calls.dispatch,
        lambda moe, *_: moe.received_specs(),
    ),
    _Op(
        "moe_combine",
        ("moe", "moe_fp8"),
        "Tensor y, Tensor indices, Tensor? count=None",
        "out",
        torch_calls.combine,
        torch_calls.rows_of(1),
    ),
    _Op(
        "moe_fused",
        ("moe", "moe_fp8"),
        f"{_TOKENS}, Tensor? expert_table=None, Tensor? count=None",
        "out",
        torch_calls.fused,
        torch_calls.rows_of(0),
    ),
    _Op("moe_layer", ("moe_layer",), _LAYER, "out", torch_calls.moe_layer, torch_calls.rows_of(0)),
)


# ---- their kernels

_library = torch.library.Library("farwarp", "DEF")
_DEVICES = ("CPU", "CUDA")  # torch for AMD calls its device CUDA, too


def _default(op: _Op) -> Callable[..., object]:
    call, forms, most = op.call, op.forms, op.inputs.count("Tensor")

    def kernel(name: str, *inputs: torch.Tensor | None) -> torch.Tensor | tuple[torch.Tensor, ...]:
        if len(inputs) < most:  # torch leaves out trailing ones that have their defaults
            inputs += (None,) * (most - len(inputs))
        return in_torch(call(_find(name, forms), *inputs))

    return kernel


def _out(op: _Op) -> Callable[..., None]:
    call, forms, most = op.call, op.forms, op.inputs.count("Tensor")
    names = [word.split("=")[0] for word in op.inputs.replace(",", "").split() if not word.startswith("Tensor")]

    def kernel(name: str, *inputs: torch.Tensor | None, **outputs: torch.Tensor) -> None:
        if len(inputs) < most:
            inputs += (None,) * (most - len(inputs))
        operator = _find(name, forms)
        if operator.world.emulated:
            check_apart(dict(zip(names, inputs)), outputs, in_place=op.name == "all_reduce")
            copy_to(outputs, call(operator, *inputs))
        else:
            call(operator, *inputs, **outputs)

    return kernel


def _fake(op: _Op) -> Callable[..., object]:
    def fake(name: str, first: torch.Tensor, *others: torch.Tensor | None) -> torch.Tensor | tuple[torch.Tensor, ...]:
        made = tuple(
            first.new_empty(tuple(shape), dtype=torch_type(dtype))
            for shape, dtype in op.results(_find(name, op.forms), first, *others)
        )
        return made if len(made) > 1 else made[0]

    return fake


def _fake_out(op: _Op) -> Callable[..., None]:
    def fake(name: str, *inputs: torch.Tensor | None, **outputs: torch.Tensor) -> None:
        _find(name, op.forms)

    return fake


def define(schema: str, kernel: Callable[..., object], fake: Callable[..., object]) -> None:
    """An operator of torch.ops.farwarp."""
    name = schema[: schema.index("(")]
    strides = getattr(torch.Tag, "needs_exact_strides", torch.Tag.needs_fixed_stride_order)
    _library.define(schema, tags=(torch.Tag.pt2_compliant_tag, strides))
    for device in _DEVICES:
        _library.impl(name, kernel, device)
    torch.library.register_fake(f"farwarp::{name}", fake, lib=_library)


def _define_all() -> None:
    for op in _OPS:
        names = op.outputs.split()
        returned = "Tensor" if len(names) == 1 else f"({', '.join(f'Tensor {name}' for name in names)})"
        written = ", ".join(f"Tensor({chr(ord('a') + i)}!) {name}" for i, name in enumerate(names))
        define(f"{op.name}(str op, {op.inputs}) -> {returned}", _default(op), _fake(op))
        define(f"{op.name}.out(str op, {op.inputs}, *, {written}) -> ()", _out(op), _fake_out(op))
    define("all_reduce_(str op, Tensor(a!) x) -> ()", _all_reduce_in_place, _fake_in_place)


def _fake_in_place(name: str, x: torch.Tensor) -> None:
    _find(name, ("all_reduce",))


def _all_reduce_in_place(name: str, x: torch.Tensor) -> None:
    operator = _find(name, ("all_reduce",))
    if operator.world.emulated:
        x.copy_(operator(x).torch())
    else:
        operator(x, out=x)


_define_all()
