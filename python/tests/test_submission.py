"""farwarp/submission.py: its structures are those of the headers, its data are the challenge's. Calls need a GPU."""

import ctypes
import pathlib
import re

import pytest

from farwarp import submission

SOURCES = pathlib.Path(__file__).resolve().parents[2] / "src/farwarp"


def fields_of(header, name):
    """The names of a structure's fields, in order."""
    text = re.sub(r"/\*.*?\*/|//[^\n]*", "", (SOURCES / header).read_text(), flags=re.DOTALL)
    body = re.search(rf"struct {name} \{{(.*?)\n\}}", text, flags=re.DOTALL).group(1)
    names = []
    for declaration in body.split(";")[:-1]:
        function = re.search(r"\(\*(\w+)\)", declaration)
        names.append(function.group(1) if function else re.search(r"(\w+)\s*$", declaration).group(1))
    return names


@pytest.mark.parametrize(
    "header, name, structure",
    (
        ("submission.h", "farwarp_submission_tensor", submission._Tensor),
        ("submission.h", "farwarp_submission_problem", submission._Problem),
        ("judge/loaded.h", "farwarp_submission_callbacks", submission._Callbacks),
    ),
)
def test_structures(header, name, structure):
    assert [field for field, _type in structure._fields_] == fields_of(header, name)
    pointers = [field for field, kind in structure._fields_ if ctypes.sizeof(kind) == ctypes.sizeof(ctypes.c_void_p)]
    assert all(getattr(structure, field).offset % ctypes.sizeof(ctypes.c_void_p) == 0 for field in pointers)


@pytest.fixture
def made(tmp_path):
    """A Submission of rank 1 of 2 that has not met the others."""
    torch = pytest.importorskip("torch")
    one = submission.Submission(str(tmp_path / "mine.py"))
    one._torch, one._rank, one._ranks, one._device = torch, 1, 2, torch.device("cpu")
    one._params = {"num_experts": "4", "experts_per_token": "2", "hidden_dim": "8", "max_num_tokens": "16"}
    return one


def test_products_get_x_w_and_bias_or_none(made):
    made._op = "gemm-rs"
    assert made._data({"x": 1, "w": 2}) == (1, 2, None)
    assert made._data({"x": 1, "w": 2, "bias": 3}) == (1, 2, 3)


def test_moe_gets_what_the_challenge_gives(made):
    torch, made._op = made._torch, "moe-a2a"
    x = torch.zeros(3, 8, dtype=torch.bfloat16)
    inputs = {"x": x, "topk_indices": 1, "topk_weights": 2, "expert_scales": torch.ones(2)}
    config, of_rank, rank, ranks = made._data(inputs)
    assert (config.num_experts, config.experts_per_token, config.hidden_dim, config.max_num_tokens) == (4, 2, 8, 16)
    assert config.in_dtype == config.out_dtype == torch.bfloat16
    assert (of_rank.num_tokens, of_rank.indices, of_rank.weights, of_rank.x) == (3, 1, 2, x)
    assert of_rank.expert_local_weight.shape == (2, 1, 1)
    assert (rank, ranks) == (1, 2)


def test_other_operators_get_their_inputs_in_order(made):
    made._op = "attention"
    assert made._data({"q": 1, "k": 2, "v": 3}) == (1, 2, 3)


def test_a_file_must_define_custom_kernel(made):
    path = pathlib.Path(made._path)
    path.write_text("from task import input_t, output_t\ndef custom_kernel(data: input_t) -> output_t: return data\n")
    assert made._load()(5) == 5
    path.write_text("custom_kernel = 5\n")
    with pytest.raises(ImportError, match=r"does not define custom_kernel\(data\)"):
        made._load()


def test_results_are_checked_by_type_shape_and_dtype(made):
    torch = made._torch
    made._outputs = [torch.zeros(2, 3)]
    made._result = torch.ones(2, 3)
    made._copy()
    assert made._outputs[0].sum() == 6

    class Lazy(torch.Tensor):
        pass

    for result, message in (
        (5, "returned int: allowed is torch.Tensor"),
        (torch.ones(2, 3).as_subclass(Lazy), "returned Lazy: allowed is torch.Tensor"),
        (torch.ones(3, 2), r"returned \(3, 2\) torch.float32 on cpu: allowed is \(2, 3\) torch.float32 on cpu"),
        (torch.ones(2, 3, dtype=torch.float16), "torch.float16"),
        ((torch.ones(2, 3), torch.ones(2, 3)), "returned 2 results: allowed is 1"),
    ):
        made._result = result
        with pytest.raises(TypeError, match=message):
            made._copy()


def test_nothing_passes_through_c(made, capfd):
    def fails():
        raise KeyboardInterrupt("stop")

    assert made.guarded(lambda: None)() == 0
    assert made.guarded(fails)() == 1
    assert ctypes.string_at(made.last_error()) == b"KeyboardInterrupt: stop"
    assert "Traceback" in capfd.readouterr().err
