"""Products of groups of rows with matrices of their own, as the experts of a MoE layer take them."""

from __future__ import annotations

from . import _c, dtypes
from .arguments import flag
from .call import Call
from .descriptor import choice, new_desc, set_fields
from .device_streams import StreamLike
from .operator import Operator
from .tensors import Result, Tensor, TensorSpec
from .world import World

_GROUP_ROWS = ("offsets", "counts")  # in the order of farwarp_group_rows
_ACTIVATIONS = ("none", "swiglu", "clamped_swiglu")  # in the order of farwarp_activation
_SCALINGS = ("none", "blocks")  # in the order of farwarp_gemm_scaling


class GroupedGemm(Operator):
    """y = x @ w[group of the row].T (+ bias[group]), with sums in fp32, rounded once; on Hopper. Collective to create.

    A row's result does not depend on other rows.

    Parameters
    ----------
    world : World
        Whose device has the tensors.
    groups : int
        1 to 480: experts.
    max_rows : int
        "offsets": rows of x; "counts": rows that x has for each group.
    n, k : int
        Columns of y and of x: n is a multiple of 8, with an activation of 64; k of 8, with scaling of 16.
    group_rows : str
        How calls say which rows a group has. "offsets": those from rows[g] to rows[g + 1] - 1 of x [max_rows, k];
        "counts": the first rows[g] of x[g], of x [groups, max_rows, k].
    activation : str
        "none": w is [groups, n, k]. "swiglu": w is [groups, 2 * n, k], the gate's rows first, and y = silu(gate) * up.
        "clamped_swiglu": the same as in gpt-oss.
    scaling : str
        "none", or "blocks": x and w are e4m3 with a scale for 128 of k of a row of x, and for 128 x 128 of w.
    bias : bool
        Whether calls have one.
    dtype : str, numpy.dtype or torch.dtype
        "bfloat16" or "float16", of y and the bias, without scaling also of x and w.
    expected_rows : int
        Of a group: what a kernel is chosen for; 0: by max_rows.
    max_sms : int
        Multiprocessors of a call; 0: all.

    Raises
    ------
    InvalidArgumentError
        A parameter is outside what is allowed.
    UnavailableError
        The device is no Hopper.
    MisuseError
        The world is closed.
    """

    _c_prefix = "grouped_gemm"

    def __init__(
        self,
        world: World,
        groups: int,
        max_rows: int,
        n: int,
        k: int,
        *,
        group_rows: str = "offsets",
        activation: str = "none",
        scaling: str = "none",
        bias: bool = False,
        dtype: dtypes.DTypeLike = "bfloat16",
        expected_rows: int = 0,
        max_sms: int = 0,
    ) -> None:
        desc = new_desc(_c.GroupedGemmDesc)
        self._open(
            world,
            set_fields(
                desc,
                groups=groups,
                max_rows=max_rows,
                n=n,
                k=k,
                group_rows=choice("group_rows", group_rows, _GROUP_ROWS),
                activation=choice("activation", activation, _ACTIVATIONS),
                scaling=choice("scaling", scaling, _SCALINGS),
                has_bias=flag("bias", bias),
                dtype=dtype,
                expected_rows=expected_rows,
                max_sms=max_sms,
            ),
        )
        self.groups, self.max_rows, self.n, self.k = groups, max_rows, n, k
        self.group_rows, self.activation, self.scaling = group_rows, activation, scaling
        self.dtype = dtypes.name_of(dtype)
        optional = f"{'' if scaling != 'none' else 'x_scale w_scale'} {'' if bias else 'bias'}"
        self._call = Call(world, "grouped_gemm_call", "x w x_scale w_scale rows bias", "out", optional=optional)

    def result_specs(self) -> tuple[TensorSpec, ...]:
        """Shape and type of each result of a call."""
        return (TensorSpec(self._y_shape(), self.dtype),)

    def _y_shape(self) -> tuple[int, ...]:
        rows = (self.max_rows,) if self.group_rows == "offsets" else (self.groups, self.max_rows)
        return (*rows, self.n)

    def __call__(
        self,
        x: Tensor,
        w: Tensor,
        rows: Tensor,
        x_scale: Tensor | None = None,
        w_scale: Tensor | None = None,
        bias: Tensor | None = None,
        *,
        out: Result | None = None,
        stream: StreamLike = None,
    ) -> Result:
        """Enqueue the products of this rank.

        Parameters
        ----------
        x : tensor [max_rows, k] or [groups, max_rows, k]
            Of the operator's dtype; with scaling of uint8, on a GPU also of torch.float8_e4m3fn.
        w : tensor [groups, n, k], with an activation [groups, 2 * n, k]
            The transposes of the second factors; of x's type.
        rows : tensor [groups + 1] or [groups]
            int32: where each group's rows begin, not decreasing, and the last's end; or how many each group has. A
            number that is not allowed ends the call with BadInputError.
        x_scale : tensor [max_rows, ceil(k / 128)] or [groups, max_rows, ceil(k / 128)], optional
            float32; with scaling.
        w_scale : tensor [groups, ceil(n / 128), ceil(k / 128)], optional
            float32; with scaling. With an activation [groups, 2 * ceil(n / 128), ...], the gate's first.
        bias : tensor [groups, n], with an activation [groups, 2 * n], optional
            Given exactly if the operator has one.
        out : tensor [max_rows, n] or [groups, max_rows, n], optional
            For the result; messages of the library call it y. It must not overlap an input. Rows of no group are not
            written. None: a new tensor.
        stream : farwarp.Stream, torch.cuda.Stream or int, optional
            None: the current stream.

        Returns
        -------
        Array or torch.Tensor
            `out`, or a new tensor.

        Raises
        ------
        InvalidArgumentError
            A tensor's shape, type, strides or device is not allowed, or tensors overlap.
        MisuseError
            The operator is closed.
        """
        if out is None:
            out = self._new(x, self._y_shape(), self.dtype)
        self._call.enqueue(self, (x, w, x_scale, w_scale, rows, bias, out), stream)
        return out
