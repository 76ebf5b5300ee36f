"""The routed experts of a MoE layer over ranks, in one launch."""

from __future__ import annotations

from . import _c, dtypes
from .arguments import flag, shape_of
from .call import Call
from .descriptor import choice, new_desc, set_fields
from .device_streams import StreamLike
from .operator import Operator
from .tensors import Result, Tensor
from .world import World

_ACTIVATIONS = ("swiglu", "clamped_swiglu")  # in the order of farwarp_activation, whose first is none


class MoeLayer(Operator):
    """The routed experts of a MoE layer in one launch, on Hopper. Collective to create; every rank makes every call.

    Tokens go to the ranks of their experts, which multiply; the weighted sums come back. Of token t and expert e, with
    sums in fp32:

        h = activation(x[t] @ w1[e].T (+ bias1[e]))       rounded
        y = h @ w2[e].T (+ bias2[e])                      rounded
        out[t] = the sum over t's k-slots of weight * y   rounded for each rank that has experts of t, and at the end

    A token's result does not depend on other tokens.

    Parameters
    ----------
    world : World
        Whose ranks have the experts.
    num_experts : int
        At most 384 of a rank. Expert e is of rank floor(e * ranks / num_experts).
    experts_per_token : int
        1 to 32.
    hidden : int
        Numbers of a row of x, a multiple of 8 up to 1048576.
    intermediate : int
        Numbers of a row of h, likewise.
    max_tokens : int
        Of a rank and call, 1 to 65535.
    dtype : str, numpy.dtype or torch.dtype
        "bfloat16" or "float16", of all tensors but indices, weights and count.
    index_type : str, numpy.dtype or torch.dtype
        "int32" or "int64".
    activation : str
        "swiglu": silu(gate) * up. "clamped_swiglu": the same as in gpt-oss.
    bias : bool
        Whether calls have both.
    max_rows : int
        Room for so many entries of all ranks' indices that are experts of a rank, more raise CapacityError; 0: the
        worst case.
    max_sms : int
        Multiprocessors of a call; 0: all.
    tile_rows : int
        Of an expert in a tile, 64 or 128; 0: the plan's choice.
    tile_columns : int
        Rows of w1 and w2 in a tile, 128, with tile_rows 128 also 256; 0: the plan's choice.

    Attributes
    ----------
    local_experts : int
        Experts of this rank.
    num_experts : int
        As given, as are experts_per_token, hidden, intermediate, max_tokens and activation; dtype and index_type are
        names.

    Raises
    ------
    InvalidArgumentError
        A parameter is outside what is allowed.
    UnavailableError
        The device is no Hopper.
    OutOfMemoryError
        The symmetric heap has no room.
    MismatchError
        The ranks gave different parameters.
    MisuseError
        The world is closed.
    """

    _c_prefix = "moe_layer"

    def __init__(
        self,
        world: World,
        num_experts: int,
        experts_per_token: int,
        hidden: int,
        intermediate: int,
        max_tokens: int,
        *,
        dtype: dtypes.DTypeLike = "bfloat16",
        index_type: dtypes.DTypeLike = "int32",
        activation: str = "swiglu",
        bias: bool = False,
        max_rows: int = 0,
        max_sms: int = 0,
        tile_rows: int = 0,
        tile_columns: int = 0,
    ) -> None:
        self._open(
            world,
            set_fields(
                new_desc(_c.MoeLayerDesc),
                num_experts=num_experts,
                experts_per_token=experts_per_token,
                hidden=hidden,
                intermediate=intermediate,
                max_tokens=max_tokens,
                dtype=dtype,
                index_type=index_type,
                activation=1 + choice("activation", activation, _ACTIVATIONS),
                has_bias=flag("bias", bias),
                max_rows=max_rows,
                max_sms=max_sms,
                tile_rows=tile_rows,
                tile_columns=tile_columns,
            ),
        )
        self.num_experts, self.experts_per_token = num_experts, experts_per_token
        self.hidden, self.intermediate, self.max_tokens = hidden, intermediate, max_tokens
        self.dtype, self.index_type, self.activation = dtypes.name_of(dtype), dtypes.name_of(index_type), activation
        first, end = (-(-rank * num_experts // world.size) for rank in (world.rank, world.rank + 1))
        self.local_experts: int = end - first
        optional = "count" if bias else "count bias1 bias2"
        inputs = "x indices weights count w1 w2 bias1 bias2"
        self._call = Call(world, "moe_layer_call", inputs, "out", optional=optional)

    def __call__(
        self,
        x: Tensor,
        indices: Tensor,
        weights: Tensor,
        w1: Tensor,
        w2: Tensor,
        bias1: Tensor | None = None,
        bias2: Tensor | None = None,
        *,
        count: Tensor | None = None,
        out: Result | None = None,
        stream: StreamLike = None,
    ) -> Result:
        """Enqueue the layer of this rank's tokens. Every rank calls it.

        Parameters
        ----------
        x : tensor [tokens, hidden]
            Of the operator's dtype; tokens may be 0.
        indices : tensor [tokens, experts_per_token]
            Of index_type, the tokens' experts; -1: no expert. Others end the call with BadInputError.
        weights : tensor [tokens, experts_per_token] float32
            Of the sums.
        w1 : tensor [local_experts, 2 * intermediate, hidden]
            Of each expert the gate's rows, then those of the up projection.
        w2 : tensor [local_experts, hidden, intermediate]
            Of the down projection.
        bias1 : tensor [local_experts, 2 * intermediate], optional
            Given exactly if the operator has biases, as bias2.
        bias2 : tensor [local_experts, hidden], optional
            Added to h @ w2.T.
        count : tensor [1] int32, optional
            Read when the call runs: x, indices, weights and the result then have max_tokens rows, of which so many
            count; the result's others are not written. One outside 0 to max_tokens is a BadInputError of World.check().
        out : tensor [rows of x, hidden], optional
            For the result. It must not overlap an input. None: a new tensor.
        stream : farwarp.Stream, torch.cuda.Stream or int, optional
            None: the current stream.

        Returns
        -------
        Array or torch.Tensor [rows of x, hidden]
            `out`, or a new tensor.

        Raises
        ------
        InvalidArgumentError
            A tensor's shape, type, strides or device is not allowed, or tensors overlap.
        MisuseError
            The operator is closed.
        """
        if out is None:
            out = self._new(x, (*shape_of("x", x)[:1], self.hidden), self.dtype)
        self._call.enqueue(self, (x, indices, weights, count, w1, w2, bias1, bias2, out), stream)
        return out
