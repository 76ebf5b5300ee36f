"""Conversions of numbers that callers give, for any numbers: hypothesis draws them, the same ones in every run."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import farwarp
from farwarp import dtypes

settings.register_profile(
    "farwarp",
    derandomize=True,
    deadline=None,
    max_examples=200,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],  # a loaded machine
)
settings.load_profile("farwarp")

BITS = arrays.arrays(np.uint32, st.integers(1, 16))  # of float32, all of them
SPECIAL = np.array([0, -0.0, np.inf, -np.inf, np.nan, 1 + 2**-8, 1 + 3 * 2**-8, 3.4e38], np.float32)
WHOLE = {"int32": np.iinfo(np.int32), "uint8": np.iinfo(np.uint8)}


@given(BITS)
@example(SPECIAL.view(np.uint32))
def test_rounding_to_bfloat16(bits):
    values = bits.view(np.float32)
    with np.errstate(all="ignore"):
        wanted = values.astype(ml_dtypes.bfloat16).astype(np.float32)
    np.testing.assert_array_equal(dtypes.bits_of_bfloat16(values).view(ml_dtypes.bfloat16).astype(np.float32), wanted)


@pytest.mark.parametrize("name", WHOLE)
@given(values=st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-300, 300), max_size=4))
def test_whole_numbers_that_fit_stay_and_others_are_refused(name, values):
    given_values, limits = np.array(values, np.int64), WHOLE[name]
    if all(limits.min <= value <= limits.max for value in values):
        assert dtypes.to_storage(given_values, name).tolist() == values
    else:
        with pytest.raises(farwarp.InvalidArgumentError, match=f"^values has int64 numbers that {name} has not"):
            dtypes.to_storage(given_values, name)


@given(
    st.lists(st.floats(width=32) | st.integers(-(2**24), 2**24) | st.sampled_from((2.0**31, -(2.0**31))), max_size=4)
)
def test_floats_become_whole_numbers_only_exactly(numbers):
    values = np.array(numbers, np.float32)
    if all(value.is_integer() and -(2**31) <= value < 2**31 for value in values.tolist()):
        assert dtypes.to_storage(values, "int32").tolist() == numbers
    else:
        with pytest.raises(farwarp.InvalidArgumentError, match="^values has float32 numbers that int32 has not"):
            dtypes.to_storage(values, "int32")
