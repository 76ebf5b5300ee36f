"""The program, the examples, and what type checkers and readers are told."""

import importlib.metadata
import inspect
import os
import pathlib
import re
import subprocess
import sys

import pytest

import farwarp
from farwarp import __main__ as program

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLES = sorted(
    path for path in (ROOT / "examples/python").glob("*.py") if path.name != "ranks.py"
)  # which starts them


def run(*command):
    done = subprocess.run(
        [sys.executable, *map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=100
    )
    return done.returncode, done.stdout


def test_program(monkeypatch):
    if not os.path.exists(program.path()):
        pytest.skip("the package has no program")
    status, output = run("-m", "farwarp", "doctor")
    assert status == 0 and "emu_sm90    available" in output
    assert run("-m", "farwarp", "no-such-command")[0] == 2
    monkeypatch.setattr(program, "path", lambda: "/no/such/program")
    with pytest.raises(SystemExit, match="farwarp cannot run /no/such/program: "):
        program.main()


def test_licences():
    """The package has the licences of all that its binaries contain."""
    try:
        files = importlib.metadata.files("farwarp")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("the package is not installed")
    installed = {file.name: file.read_text() for file in files if "licenses" in file.parts}
    texts = {path.name: path.read_text() for path in [ROOT / "LICENSE", *(ROOT / "licenses").iterdir()]}
    assert installed == texts
    for name in re.findall(r"[\w-]+\.txt", texts["README.txt"]):
        assert len(texts[name]) > 1000, name


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_examples(example):
    status, output = run(example)
    assert status == 0, output
    for rank in range(4):
        assert f"rank {rank} of 4, emu_sm90: largest error 0.0" in output


@pytest.mark.parametrize("document, first", (("python/README.md", ""), ("README.md", "import farwarp, numpy\n")))
def test_documents(document, first):
    """The first program in each."""
    text = (ROOT / document).read_text()
    program_text = re.search(r"```python\n(.*?)```", text, flags=re.DOTALL)[1]
    assert "farwarp.run(multiply" in program_text
    exec(first + program_text, {"__name__": "document"})


def test_public_names():
    assert farwarp.__all__ == sorted(farwarp.__all__)
    assert os.path.exists(os.path.join(os.path.dirname(farwarp.__file__), "py.typed"))
    for name in farwarp.__all__:
        kind = getattr(farwarp, name)
        assert kind.__doc__, name
        members = vars(kind).items() if inspect.isclass(kind) else [(name, kind)]
        for member, value in members:
            function = getattr(value, "__func__", value)
            if inspect.isfunction(function) and (not member.startswith("_") or member in ("__init__", "__call__")):
                untyped = [
                    p
                    for p in inspect.signature(function).parameters.values()
                    if p.annotation is p.empty and p.name not in ("self", "cls")
                ]
                assert not untyped and "return" in function.__annotations__, f"{name}.{member}"
                assert value.__doc__ or member == "__init__" or isinstance(value, property), f"{name}.{member}"


def test_torch_is_not_imported():
    assert run(
        "-c",
        "import farwarp, sys; farwarp.run(lambda world: world.zeros((2,), 'int32').numpy(), ranks=2); "
        "print('torch' in sys.modules)",
    ) == (0, "False\n")
