"""_c.py says the same as c.h."""

import ctypes
import pathlib
import re

import pytest

from farwarp import _c, errors

HEADER = pathlib.Path(__file__).resolve().parents[2] / "src/farwarp/c.h"
TEXT = re.sub(r"/\*.*?\*/", "", HEADER.read_text(), flags=re.DOTALL)
SCALARS = {
    "int32_t": ctypes.c_int32,
    "int64_t": ctypes.c_int64,
    "uint64_t": ctypes.c_uint64,
    "size_t": ctypes.c_size_t,
    "float": ctypes.c_float,
    "DLDataType": _c.DLDataType,
    "farwarp_code": ctypes.c_int32,
    "void": None,
    "farwarp_allgather": _c.ALLGATHER,
}
STRUCTS = {
    value.__name__: value
    for value in vars(_c).values()
    if isinstance(value, type) and value.__name__.startswith("farwarp_")
}


def c_type(declaration):
    """Of "const DLTensor* x": its type in ctypes."""
    words = declaration.replace("const ", "").strip()
    if "char*" in words.replace(" *", "*"):
        return ctypes.c_char_p
    if "*" in words:
        return ctypes.c_void_p
    return SCALARS[words.split()[0]]


def test_functions():
    found = {}
    for result, name, parameters in re.findall(r"FARWARP_EXPORT\s+([\w\s\*]+?)\s*farwarp_(\w+)\(([^)]*)\);", TEXT):
        found[name] = (c_type(result), *[c_type(p) for p in parameters.split(",") if p.strip() != "void"])
    assert len(found) == TEXT.count("\nFARWARP_EXPORT ")
    assert found == _c.FUNCTIONS


def test_structs():
    found = re.findall(r"typedef struct (farwarp_\w+) \{(.*?)\} \1;", TEXT, flags=re.DOTALL)
    assert {name for name, _ in found} == set(STRUCTS)
    for name, body in found:
        fields = []
        for declaration in body.split(";")[:-1]:
            names = re.sub(r"^\s*(const )?\w+\s*", "", declaration)
            fields += [(field.strip(" *\n"), c_type(declaration)) for field in names.split(",")]
        assert fields == STRUCTS[name]._fields_, name


@pytest.mark.parametrize("name", STRUCTS)
def test_sizes(name):
    init, size = getattr(_c.lib, name[len("farwarp_") :] + "_init_sized"), ctypes.sizeof(STRUCTS[name])
    memory = (ctypes.c_size_t * 64)()
    assert init(ctypes.addressof(memory), size) == 0 and memory[0] == size
    assert init(ctypes.addressof(memory), size + 1) == errors.InvalidArgumentError.code


def test_codes():
    found = {
        int(code): name for name, code in re.findall(r"FARWARP_(\w+) = (\d+)[,\n ]", TEXT.split("} farwarp_code")[0])
    }
    assert found.pop(0) == "OK"
    named = {kind.code: re.sub("Error$", "", kind.__name__) for kind in errors.Error.__subclasses__()}
    assert {code: name.replace("_", "").lower() for code, name in found.items()} == {
        code: name.lower() for code, name in named.items()
    }


def test_version():
    assert f"#define FARWARP_C_VERSION {_c.VERSION}\n" in TEXT
    assert _c.lib.c_version() == _c.VERSION


def test_other_libraries_are_refused(monkeypatch):
    with pytest.raises(ImportError, match="cannot open /no/such.so"):
        _c.Library("/no/such.so")
    with pytest.raises(ImportError, match="farwarp_c_version"):
        _c.Library("libm.so.6")
    there_is, oldest = _c.VERSION, int(re.search(r"#define FARWARP_C_OLDEST (\d+)\n", TEXT)[1])
    monkeypatch.setattr(_c, "VERSION", there_is + 1)
    with pytest.raises(ImportError, match=f"has version {there_is} of the C API; allowed: {there_is + 1} or later"):
        _c.Library(_c.lib.path)
    monkeypatch.setattr(_c, "VERSION", oldest - 1)
    with pytest.raises(
        ImportError,
        match=f"has version {there_is} of the C API; allowed: one that takes programs of version {oldest - 1}",
    ):
        _c.Library(_c.lib.path)
