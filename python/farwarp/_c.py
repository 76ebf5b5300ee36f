"""c.h for ctypes: its structs, its functions, and libfarwarp.so.

The library must have at least the version that this package is written for. python/tests/test_declarations.py holds
every struct and function against c.h.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from ctypes import c_char_p, c_float, c_int32, c_int64, c_size_t, c_uint8, c_uint16, c_uint64, c_void_p
from typing import Any

VERSION = 8  # FARWARP_C_VERSION


class DLDevice(ctypes.Structure):
    _fields_ = [("device_type", c_int32), ("device_id", c_int32)]


class DLDataType(ctypes.Structure):
    _fields_ = [("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16)]


class DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", c_void_p),
        ("device", DLDevice),
        ("ndim", c_int32),
        ("dtype", DLDataType),
        ("shape", ctypes.POINTER(c_int64)),
        ("strides", ctypes.POINTER(c_int64)),
        ("byte_offset", c_uint64),
    ]


CPU, CUDA, ROCM = 1, 2, 10  # DLDeviceType


def _desc(name: str, *fields: tuple[str, type]) -> type[ctypes.Structure]:
    """A descriptor: its size, then `fields`."""
    return type(name, (ctypes.Structure,), {"_fields_": [("bytes", c_size_t), *fields]})


def _each(c_type: type, names: str) -> list[tuple[str, type]]:
    return [(name, c_type) for name in names.split()]


WorldDesc = _desc(
    "farwarp_world_desc", *_each(c_int32, "target device"), ("deadline_ms", c_int64), ("heap_bytes", c_uint64)
)
GemmDesc = _desc(
    "farwarp_gemm_desc",
    *_each(c_int32, "m n k has_bias"),
    ("dtype", DLDataType),
    *_each(c_int32, "max_sms scaling x_scale_by_column"),
)
GroupedGemmDesc = _desc(
    "farwarp_grouped_gemm_desc",
    *_each(c_int32, "groups max_rows n k"),
    ("dtype", DLDataType),
    *_each(c_int32, "scaling group_rows activation has_bias expected_rows max_sms"),
)
ProductDesc = _desc(
    "farwarp_product_desc",
    *_each(c_int32, "kind m n k has_bias return_x"),
    ("dtype", DLDataType),
    *_each(c_int32, "path max_sms"),
)
AllReduceDesc = _desc(
    "farwarp_all_reduce_desc", ("max_elements", c_int64), ("dtype", DLDataType), *_each(c_int32, "mode max_sms")
)
MoeDesc = _desc(
    "farwarp_moe_desc",
    *_each(c_int32, "num_experts experts_per_token hidden max_tokens"),
    ("dtype", DLDataType),
    ("index_type", DLDataType),
    *_each(c_int32, "fp8_dispatch masked row_alignment"),
    ("recv_rows", c_int64),
    *_each(c_int32, "max_sms mode segments send_only_blocks scale_columns weights_at_combine rows dispatch_hidden"),
    *_each(c_int32, "powers_of_two scale_exponents handles"),
)
MoeLayerDesc = _desc(
    "farwarp_moe_layer_desc",
    *_each(c_int32, "num_experts experts_per_token hidden max_tokens intermediate"),
    ("dtype", DLDataType),
    ("index_type", DLDataType),
    *_each(c_int32, "activation has_bias max_rows max_sms tile_rows tile_columns"),
)
AttentionDesc = _desc(
    "farwarp_attention_desc",
    *_each(c_int32, "batch heads kv_heads head_dim queries keys"),
    ("dtype", DLDataType),
    *_each(c_int32, "causal window_left"),
    ("scale", c_float),
    *_each(c_int32, "has_lse max_sms window_right has_sinks ragged_queries total_queries ragged_keys total_keys"),
    *_each(c_int32, "has_key_counts page_size pages unused"),
    ("softcap", c_float),
)
AttentionTensors = _desc(
    "farwarp_attention_tensors",
    *_each(c_void_p, "q k v out lse sinks query_starts key_starts key_counts block_table"),
)
DecodeDesc = _desc(
    "farwarp_decode_desc",
    *_each(c_int32, "batch query_tokens query_heads kv_heads head_dim page_size pages max_pages"),
    ("dtype", DLDataType),
    *_each(c_int32, "fp8_cache heads_first window"),
    ("scale", c_float),
    *_each(c_int32, "kv_shards max_sms has_sinks exchange split_keys work"),
)
Qwen3Desc = _desc(
    "farwarp_qwen3_desc",
    ("model", c_char_p),
    ("seed", c_uint64),
    *_each(c_int32, "sequences positions most_top_k prefill_tokens max_sms unused splits vectors"),
)
Sampling = _desc(
    "farwarp_sampling", ("temperature", c_float), ("top_k", c_int32), ("top_p", c_float), ("seed", c_uint64)
)

ALLGATHER = ctypes.CFUNCTYPE(ctypes.c_int, c_void_p, c_void_p, c_size_t, c_void_p)

Reference = Any
"""What ctypes.byref() gives, whose class has no public name."""
Desc = Any
"""A structure of _desc(), whose fields are known at run time only."""

# Of each function what it returns and takes. Pointers are addresses, so that a call converts nothing.
_P, _I, _L = c_void_p, c_int32, c_int64
_INIT, _CREATE, _CLOSE = (_I, _P, c_size_t), (_I, _P, _P, _P), (_I, _P)
FUNCTIONS: dict[str, tuple[type | None, ...]] = {
    "c_version": (_I,),
    "require_version": (_I, _I),
    "message": (c_char_p,),
    "code_name": (c_char_p, _I),
    "device_count": (_I, _I),
    "world_desc_init_sized": _INIT,
    "environment_has_ranks": (_I,),
    "environment_ranks": (_I, _P, _P),
    "world_from_environment": (_I, _P, _P),
    "world_from_allgather": (_I, _I, _I, ALLGATHER, _P, _P, _P),
    "threads_create": (_I, _I, _P),
    "threads_destroy": (None, _P),
    "world_from_threads": (_I, _P, _I, _P, _P),
    "world_destroy": (None, _P),
    "world_rank": (_I, _P),
    "world_size": (_I, _P),
    "world_status": (_I, _P),
    "world_recover": (_I, _P, _P, _I),
    "world_leave": (None, _P),
    "allocate": (_I, _P, c_size_t, _P),
    "release": (None, _P, _P),
    "copy_in": (_I, _P, _P, _P, c_size_t, _P),
    "copy_out": (_I, _P, _P, _P, c_size_t, _P),
    "stream_create": (_I, _P, _P),
    "stream_destroy": (None, _P, _P),
    "synchronize": (_I, _P, _P, _L),
    "gemm_desc_init_sized": _INIT,
    "gemm_create": _CREATE,
    "gemm_call": (_I, *[_P] * 6),
    "gemm_call_scaled": (_I, *[_P] * 8),
    "gemm_close": _CLOSE,
    "grouped_gemm_desc_init_sized": _INIT,
    "grouped_gemm_create": _CREATE,
    "grouped_gemm_call": (_I, *[_P] * 9),
    "grouped_gemm_close": _CLOSE,
    "product_desc_init_sized": _INIT,
    "product_create": _CREATE,
    "product_call": (_I, *[_P] * 7),
    "product_close": _CLOSE,
    "all_reduce_desc_init_sized": _INIT,
    "all_reduce_create": _CREATE,
    "all_reduce_call": (_I, *[_P] * 4),
    "all_reduce_close": _CLOSE,
    "moe_desc_init_sized": _INIT,
    "moe_create": _CREATE,
    "moe_heap_bytes": (_I, _P, _I, _I, _I, _P),
    "moe_recv_rows": (_L, _P),
    "moe_local_experts": (_I, _P),
    "moe_dispatch": (_I, *[_P] * 10),
    "moe_combine": (_I, *[_P] * 4),
    "moe_combine_weighted": (_I, *[_P] * 5),
    "moe_dispatch_counted": (_I, *[_P] * 11),
    "moe_dispatch_send": (_I, *[_P] * 6),
    "moe_dispatch_recv": (_I, *[_P] * 7),
    "moe_combine_send": (_I, *[_P] * 3),
    "moe_combine_send_weighted": (_I, *[_P] * 4),
    "moe_combine_recv": (_I, *[_P] * 3),
    "moe_dispatch_rows": (_I, *[_P] * 10),
    "moe_dispatch_rows_send": (_I, *[_P] * 7),
    "moe_dispatch_rows_recv": (_I, *[_P] * 5),
    "moe_handle_layout": (_I, *[_P] * 4),
    "moe_dispatch_kept": (_I, *[_P] * 11),
    "moe_dispatch_recv_kept": (_I, *[_P] * 8),
    "moe_dispatch_rows_kept": (_I, *[_P] * 12),
    "moe_dispatch_rows_send_kept": (_I, *[_P] * 8),
    "moe_dispatch_rows_recv_kept": (_I, *[_P] * 6),
    "moe_combine_kept": (_I, *[_P] * 7),
    "moe_combine_send_kept": (_I, *[_P] * 6),
    "moe_return_row_weights": (_I, *[_P] * 6),
    "moe_fused": (_I, *[_P] * 5, _I, *[_P] * 3),
    "moe_forget": _CLOSE,
    "moe_close": _CLOSE,
    "moe_layer_desc_init_sized": _INIT,
    "moe_layer_create": _CREATE,
    "moe_layer_call": (_I, *[_P] * 11),
    "moe_layer_close": _CLOSE,
    "attention_desc_init_sized": _INIT,
    "attention_create": _CREATE,
    "attention_call": (_I, *[_P] * 7),
    "attention_tensors_init_sized": _INIT,
    "attention_call_tensors": (_I, _P, _P, _P),
    "attention_close": _CLOSE,
    "decode_desc_init_sized": _INIT,
    "decode_create": _CREATE,
    "decode_call": (_I, *[_P] * 11),
    "decode_call_sinks": (_I, *[_P] * 12),
    "decode_close": _CLOSE,
    "qwen3_desc_init_sized": _INIT,
    "qwen3_heap_bytes": (_I, _P, _I, _I, _I, _P),
    "qwen3_create": _CREATE,
    "qwen3_vocabulary": (_I, _P),
    "qwen3_columns": (_I, _P),
    "sampling_init_sized": _INIT,
    "qwen3_start": (_I, _P, _I, _P, _I, _P, _P),
    "qwen3_stop": (_I, _P, _I, _P),
    "qwen3_decode": (_I, _P, _I, _I, _P, _P, _P),
    "qwen3_decode_until": (_I, _P, _I, _P, _I, _P, _P, _P),
    "qwen3_generation": (_I, _P, _P, _P, _P),
    "qwen3_close": _CLOSE,
}


class Library:
    """libfarwarp.so: its functions as attributes, without their prefix."""

    def __init__(self, path: str) -> None:
        try:
            opened = ctypes.CDLL(path)
            version, refused = opened.farwarp_c_version(), opened.farwarp_require_version(VERSION)
        except (OSError, AttributeError) as error:
            raise ImportError(f"farwarp cannot open {path}: {error}") from error
        if version < VERSION:
            raise ImportError(f"{path} has version {version} of the C API; allowed: {VERSION} or later")
        if refused:
            raise ImportError(
                f"{path} has version {version} of the C API; allowed: one that takes programs of version {VERSION}"
            )
        self.path, self._opened = path, opened
        self._unchecked: dict[str, Callable[..., int]] = {}
        for name, (result, *parameters) in FUNCTIONS.items():
            function = getattr(opened, f"farwarp_{name}")
            function.restype, function.argtypes = result, parameters
            setattr(self, name, function)

    def unchecked(self, name: str) -> Callable[..., int]:
        """The function without its declaration.

        ctypes passes its own objects (c_void_p, what byref() gives) as they are, None as NULL, and must be given
        nothing else.
        """
        if name not in self._unchecked:
            self._unchecked[name] = self._opened[f"farwarp_{name}"]
        return self._unchecked[name]

    def __getattr__(self, name: str) -> Callable[..., Any]:  # for type checkers: __init__ sets them, by FUNCTIONS
        raise AttributeError(name)


def default_path() -> str:
    """The library beside this file, or the one that FARWARP_LIBRARY names."""
    return os.environ.get("FARWARP_LIBRARY") or os.path.join(os.path.dirname(__file__), "lib", "libfarwarp.so")


lib = Library(default_path())
