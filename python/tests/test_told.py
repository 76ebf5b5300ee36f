"""A failure of a kernel is raised once: by a call, or by close()."""

import numpy as np
import pytest

import farwarp
from farwarp import _c

INPUTS = np.ones((8, 32), np.float16), np.ones((16, 32), np.float16)
FAILURE = "rank 0 waited .* for rank 1"


def two_ranks(body):
    """Rank 0 makes a call that rank 1 does not come to, and `body`."""

    def call(world):
        product = farwarp.GemmAllReduce(world, 8, 16, 64, dtype="float16")
        if world.rank == 0:
            body(world, product, product(*INPUTS))

    farwarp.run(call, ranks=2, deadline=0.3)


def fail_untold(world):
    """The kernel has failed, and the package has not asked."""
    assert _c.lib.synchronize(world.handle, None, 20_000) == farwarp.DeadlineError.code


def test_a_wait_that_fails_by_itself_hides_no_failure(monkeypatch):
    real = _c.lib.synchronize

    def body(world, _product, _result):
        with monkeypatch.context() as patch:  # a duration that is not allowed, which only the library can be given
            patch.setattr(_c.lib, "synchronize", lambda handle, stream, _most: real(handle, stream, -1))
            with pytest.raises(farwarp.InvalidArgumentError, match="timeout_ms is -1"):
                world.synchronize()
        fail_untold(world)

    with pytest.raises(farwarp.DeadlineError, match=FAILURE):
        two_ranks(body)


def test_a_bad_argument_hides_no_failure():
    def body(world, product, _result):
        with pytest.raises(farwarp.InvalidArgumentError):
            product(INPUTS[0][:4], INPUTS[1])
        fail_untold(world)

    with pytest.raises(farwarp.DeadlineError, match=FAILURE):
        two_ranks(body)


@pytest.mark.parametrize("how", ("call", "numpy", "check"))
def test_what_has_been_raised_is_not_raised_again(how):
    def body(world, product, result):
        fail_untold(world)
        calls = {"call": lambda: product(*INPUTS), "numpy": result.numpy, "check": world.check}
        with pytest.raises(farwarp.DeadlineError, match=FAILURE):
            calls[how]()

    two_ranks(body)
