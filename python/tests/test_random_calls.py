"""random_calls.py on the emulator: its cases with small shapes, and that it finds what is wrong."""

import inspect

import pytest

import farwarp
from farwarp.operator import Operator

torch = pytest.importorskip("torch")
pytest.importorskip("farwarp.torch_ops")
import random_calls  # noqa: E402
import random_cases  # noqa: E402


@pytest.mark.parametrize("name", random_cases.CASES)
def test_cases(name):
    worst = farwarp.run(lambda world: random_calls.calls(world, name, {"eager": 3}), ranks=2, target="emu_sm90")
    assert all(0 < rank["eager"] <= 1 for rank in worst)


def test_every_operator_has_a_case():
    def kinds(world):
        return {type(make(world, random_cases.Place(world, 0)).operator) for make in random_cases.CASES.values()}

    operators = {
        kind for kind in map(vars(farwarp).get, farwarp.__all__) if inspect.isclass(kind) and issubclass(kind, Operator)
    }
    others = {farwarp.Qwen3, Operator, farwarp.ParallelGemm}  # a model, and what several share
    assert farwarp.run(kinds, ranks=2, target="emu_sm90")[0] == operators - others


def test_fresh_routing():
    assert max(farwarp.run(lambda world: random_calls.routings(world, 20), ranks=2, target="emu_sm90")) > 0


def test_a_wrong_result_is_found(monkeypatch):
    def wrong(world, place):
        case = random_cases.gemm(world, place)
        return case._replace(by_class=lambda x, w, bias: case.by_class(-x, w, bias))

    monkeypatch.setitem(random_cases.CASES, "gemm", wrong)
    with pytest.raises(AssertionError, match="gemm, eager, shape 0, rank .: an error is .* of what is allowed"):
        farwarp.run(lambda world: random_calls.calls(world, "gemm", {"eager": 1}), ranks=2, target="emu_sm90")
