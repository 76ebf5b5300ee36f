"""The all-reduce against a sum in the order of the ranks."""

import numpy as np
import pytest

import farwarp
from oracle import f64, random


@pytest.mark.parametrize("target", ("emu_sm90", "emu_gfx942"))
@pytest.mark.parametrize("ranks", (1, 2, 4))
@pytest.mark.parametrize("mode", ("auto", "two_shot"))
def test_all_reduce(target, ranks, mode):
    parts = [random(rank + 1, (7, 143), "float32") for rank in range(ranks)]

    def add(world):
        all_reduce = farwarp.AllReduce(world, 7 * 143, dtype="float32", mode=mode)
        x = world.asarray(parts[world.rank])
        first = all_reduce(x).numpy()
        assert all_reduce(x, out=x) is x
        return first, x.numpy()

    exact = sum(f64(part) for part in parts)
    bound = 1e-6 * sum(np.abs(f64(part)) for part in parts)
    results = farwarp.run(add, ranks=ranks, target=target)
    for rank in results:
        for got in rank:
            assert np.all(np.abs(f64(got) - exact) <= bound)
            assert np.array_equal(got, results[0][0])


def test_refusals():
    def refused(world):
        with pytest.raises(farwarp.InvalidArgumentError, match="mode is 'ring'; allowed: auto, one_shot, two_shot"):
            farwarp.AllReduce(world, 8, mode="ring")
        all_reduce = farwarp.AllReduce(world, 8, dtype="float32")
        with pytest.raises(farwarp.InvalidArgumentError, match=r"x has shape \[9\]; allowed: 0 to 8 "):
            all_reduce(np.ones(9, "float32"))

    farwarp.run(refused, ranks=1, target="emu_sm90")
