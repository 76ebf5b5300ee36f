"""A few cases of tools/qwen3_differential.py, which runs hundreds: tokens beside those of transformers."""

import importlib.util
import os
import pathlib

import pytest

from farwarp import __main__ as program

TOOL = pathlib.Path(__file__).parents[2] / "tools" / "qwen3_differential.py"


@pytest.mark.parametrize("seed", range(6))
def test_random_models(seed):
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("torch")
    if not hasattr(transformers, "Qwen3ForCausalLM") or int(transformers.__version__.split(".")[0]) < 5:
        pytest.skip("transformers is older than 5")
    if not os.path.exists(program.path()) or not TOOL.exists():
        pytest.skip("the package has no program, or the tests are without the source tree")
    spec = importlib.util.spec_from_file_location("qwen3_differential", TOOL)
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    outcome = tool.check_seed(1000 + seed, program.path(), "emu_sm90")
    assert outcome.startswith(("same", "refused ")), outcome
