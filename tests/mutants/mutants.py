#!/usr/bin/env python3
"""Mutants: kernels with one planted bug each, which the emulator must catch.

Errors: kernels with several planted errors of arithmetic, one of which is chosen at run time; a check with nothing but
its defaults must refuse each.

    mutants.py check SOURCE_ROOT TABLE         checks all mutants.json below src/ and lessons/, writes them as one table
    mutants.py plant NAME TABLE SOURCE_ROOT FOLDER   writes the changed sources of one mutant below FOLDER
    mutants.py check_errors, plant_errors      the same of all errors.json below src/

A mutants.json is in the folder of the files that it mutates. Fields are required unless they are called optional:

    {
      "cases": {                     the operators and parameters that mutants run with
        "fused_words": {
          "op": "moe-a2a",           an operator of the command line
          "entry": "src/.../entry.dev.cc",   the source that defines the kernels, from the source root
          "kernels": ["moe_a2a_..."],        the kernels that get the bug; the case's other kernels run as they are
          "only": "emu_sm90",        optional: the target, emu_sm90 or emu_gfx942; else both
          "ranks": 1, "calls": 1,    optional: 3 and 4 if left out
          "xcds": 2,                 optional: XCDs of the emulated gfx942 (FARWARP_EMU_XCDS)
          "set": {"hidden_dim": "64"}        the operator's parameters, as strings
        }
      },
      "mutants": {
        "moe_packet_ready_without_tag": {    a name that no other mutant has
          "about": "...",            what is wrong, in one sentence
          "case": "fused_words",
          "file": "memory.dev.h",    a file of this folder
          "find": "...",             text that is in the file exactly once
          "replace": "...",          text that replaces it
          "only": "emu_sm90",        optional: a target of the case
          "set": {"mode": "bulk"}    optional: more parameters
        }
      }
    }

An errors.json is like it, but each of its `cases` is one object with all of its errors. It has op, entry, kernels,
only, ranks (1 if left out), plain (the number of the default check's only case that runs these kernels; all if left
out), and `errors` with the fields about, file, find and replace, of device code. The object has both texts: of a `find`
that ends with a semicolon an if statement, of another one a conditional expression. Several errors may have the same
`find`.

check does not know the operators: the test mutants_cases_test says whether operators, parameters and kernels exist.

The copies of a mutant precede the source root on the include path: the mutated file, and base/attributes.h with the
mutant's own namespace and kernel names. The files of a lesson include each other by relative paths, so the whole folder
of a lesson is copied.

All kernels are linked into one program, so no function of a mutant may have the mangled name of an original: the linker
would keep one of the two. Device code (*.dev.*) is in the target's namespace, which base/attributes.h renames. In the
copy of any other file an inline namespace does the same. An inline function of a third file that calls the changed one
is not renamed: mutate such a file's callers in device code instead.
"""

import json
import pathlib
import re
import sys

ATTRIBUTES = "src/farwarp/base/attributes.h"
TARGETS = ("emu_sm90", "emu_gfx942")
CASE = {"op": str, "entry": str, "kernels": list, "set": dict}
MUTANT = {"about": str, "case": str, "file": str, "find": str, "replace": str}
OPTIONAL_OF_CASE = {"only": str, "ranks": int, "calls": int, "xcds": int}
OPTIONAL_OF_MUTANT = {"only": str, "set": dict}

# FARWARP_KERNEL: the emulator's for the kernels of the case; for other kernels a template that is never instantiated.
KERNELS = """
#if defined(FARWARP_TARGET_EMU_SM90) || defined(FARWARP_TARGET_EMU_GFX942)
#define FARWARP_SECOND(first, second, ...) second
#define FARWARP_CHOOSE(...) FARWARP_SECOND(__VA_ARGS__)
#define FARWARP_LEFT_OUT(name, Args, max_threads) \\
  template <class FarwarpArgs>                    \\
  [[maybe_unused]] static void name##_left_out([[maybe_unused]] const FarwarpArgs& args)
#define FARWARP_KERNEL(name, Args, max_threads) \\
  FARWARP_CHOOSE(FARWARP_WANTED_##name FARWARP_WANTED, FARWARP_LEFT_OUT, )(name, Args, max_threads)
"""


def unique_fields(pairs: list) -> dict:
    """An object of a mutants.json; a name that stands twice would lose a mutant."""
    names = [name for name, _ in pairs]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"'{name}' stands twice in one object")
    return dict(pairs)


def fail(where: str, what: str) -> None:
    sys.exit(f"{where}: {what}")


def check_fields(entry: object, required: dict, optional: dict, where: str) -> None:
    if not isinstance(entry, dict):
        fail(where, "allowed is an object")
    for field, kind in (required | optional).items():
        if field not in entry and field in required:
            fail(where, f"field '{field}' is missing; required are {', '.join(required)}")
        if field in entry and not isinstance(entry[field], kind):
            fail(where, f"field '{field}' is {json.dumps(entry[field])}; allowed is a {kind.__name__}")
    for field in entry:
        if field not in required and field not in optional:
            fail(where, f"field '{field}' is unknown; allowed are {', '.join(required | optional)}")
    if "only" in entry and entry["only"] not in TARGETS:
        fail(where, f"field 'only' is '{entry['only']}'; allowed are {', '.join(TARGETS)}")
    for name, value in entry.get("set", {}).items():
        if not isinstance(value, str):
            fail(where, f"field 'set': parameter '{name}' is {json.dumps(value)}; allowed is a string")


def mutated(mutant: dict, root: pathlib.Path) -> str:
    """The source with the bug."""
    text = (root / mutant["file"]).read_text()
    times = text.count(mutant["find"]) if mutant["find"] else 0
    if times != 1:
        fail(mutant["at"], f"field 'find' stands {times} times in {mutant['file']}; allowed is once")
    return text.replace(mutant["find"], mutant["replace"])


def in_own_namespace(name: str, mutant: dict, text: str) -> str:
    """The text of a mutated file, which no original shares a mangled name with."""
    if ".dev." in mutant["file"]:
        return text
    text, times = re.subn(
        r"^namespace farwarp((?:::\w+)+) {$", rf"namespace farwarp\1::inline {name} {{", text, flags=re.MULTILINE
    )
    if times == 0:
        fail(
            mutant["at"],
            f"field 'file' is '{mutant['file']}'; allowed is device code, or a file in a namespace below farwarp",
        )
    return text


def read_table(path: pathlib.Path, root: pathlib.Path) -> dict:
    """The mutants of one mutants.json, each with the fields of its case."""
    where = str(path.relative_to(root))
    try:
        table = json.loads(path.read_text(), object_pairs_hook=unique_fields)
    except ValueError as error:
        fail(where, str(error))
    check_fields(table, {"cases": dict, "mutants": dict}, {}, where)
    for name, case in table["cases"].items():
        at = f"{where}, case {name}"
        check_fields(case, CASE, OPTIONAL_OF_CASE, at)
        if not (root / case["entry"]).is_file():
            fail(at, f"field 'entry' is '{case['entry']}'; allowed is a file, from the source root")
        if not case["kernels"] or not all(isinstance(kernel, str) for kernel in case["kernels"]):
            fail(at, f"field 'kernels' is {json.dumps(case['kernels'])}; allowed are the names of one kernel or more")
    result = {}
    for name, mutant in table["mutants"].items():
        at = f"{where}, mutant {name}"
        if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
            fail(at, "allowed in a name are a to z, 0 to 9 and _")
        check_fields(mutant, MUTANT, OPTIONAL_OF_MUTANT, at)
        case = table["cases"].get(mutant["case"])
        if case is None:
            fail(at, f"field 'case' is '{mutant['case']}'; allowed are {', '.join(table['cases'])}")
        if "only" in mutant and mutant["only"] != case.get("only", mutant["only"]):
            fail(at, f"field 'only' is '{mutant['only']}'; the case has '{case['only']}'")
        source = path.parent / mutant["file"]
        if not source.is_file():
            fail(at, f"field 'file' is '{mutant['file']}'; allowed is a file of this folder")
        file = str(source.relative_to(root))
        result[name] = case | mutant | {"file": file, "set": case["set"] | mutant.get("set", {}), "at": at}
        in_own_namespace(name, result[name], mutated(result[name], root))
        if mutant["replace"] == mutant["find"]:
            fail(at, "field 'replace' equals 'find'; allowed is a text with the bug")
    return result


def check(root: pathlib.Path, output: pathlib.Path) -> None:
    mutants = {}
    for path in sorted([*root.glob("src/**/mutants.json"), *root.glob("lessons/**/mutants.json")]):
        for name, mutant in read_table(path, root).items():
            if name in mutants:
                fail(mutant["at"], f"the name is taken: {mutants[name]['at']}")
            mutants[name] = mutant
    text = json.dumps(mutants, indent=2)
    print(f"{len(mutants)} mutants, no mistake")
    if not output.exists() or output.read_text() != text:
        output.write_text(text)


def read_errors(path: pathlib.Path, root: pathlib.Path) -> dict:
    """The objects of one errors.json. Errors are numbered from 1 in each object."""
    where = str(path.relative_to(root))
    try:
        table = json.loads(path.read_text(), object_pairs_hook=unique_fields)
    except ValueError as error:
        fail(where, str(error))
    check_fields(table, {"cases": dict}, {}, where)
    for name, case in table["cases"].items():
        at = f"{where}, case {name}"
        check_fields(
            case,
            {"op": str, "entry": str, "kernels": list, "errors": dict},
            {"only": str, "ranks": int, "plain": int},
            at,
        )
        if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
            fail(at, "allowed in a name are a to z, 0 to 9 and _")
        if not (root / case["entry"]).is_file():
            fail(at, f"field 'entry' is '{case['entry']}'; allowed is a file, from the source root")
        for number, (label, error) in enumerate(case["errors"].items()):
            error["at"] = f"{where}, error {label}"
            check_fields(error, {"about": str, "file": str, "find": str, "replace": str}, {"at": str}, error["at"])
            source = path.parent / error["file"]
            if ".dev." not in error["file"] or not source.is_file():
                fail(
                    error["at"], f"field 'file' is '{error['file']}'; allowed is a file of this folder with device code"
                )
            error |= {"file": str(source.resolve().relative_to(root.resolve())), "number": number + 1}
            case["errors"][label] = error
            mutated(error, root)
    return table["cases"]


def with_errors(case: dict, file: str, root: pathlib.Path) -> str:
    """The source with all errors of the file, each chosen by its number."""
    of_find = {}
    for error in case["errors"].values():
        if error["file"] == file:
            of_find.setdefault(error["find"], []).append(error)
    text = (root / file).read_text()
    begins_after = len(text)
    for at, find, errors in sorted(((text.find(find), find, errors) for find, errors in of_find.items()), reverse=True):
        if at + len(find) > begins_after:
            fail(errors[0]["at"], f"field 'find' overlaps that of another error in {file}")
        begins_after = at
        if find.rstrip().endswith(";"):
            planted = "".join(
                f"if (::farwarp::planted_error == {e['number']}) {{ {e['replace']} }} else " for e in errors
            )
            planted = f"{planted}{{ {find} }}"
        else:
            planted = "".join(f"::farwarp::planted_error == {e['number']} ? ({e['replace']}) : " for e in errors)
            planted = f"({planted}({find}))"
        text = text[:at] + planted + text[at + len(find) :]
    return text


def check_errors(root: pathlib.Path, output: pathlib.Path) -> None:
    cases, labels = {}, []
    for path in sorted(root.glob("src/**/errors.json")):
        for name, case in read_errors(path, root).items():
            if name in cases:
                fail(f"{path}, case {name}", "the name is taken")
            cases[name] = case
            labels += case["errors"]
            for error in case["errors"].values():
                with_errors(case, error["file"], root)
    print(f"{len(labels)} errors, no mistake")
    text = json.dumps(cases, indent=2)
    if not output.exists() or output.read_text() != text:
        output.write_text(text)


def plant_errors(name: str, table: pathlib.Path, root: pathlib.Path, folder: pathlib.Path) -> None:
    case = json.loads(table.read_text())[name]
    attributes = planted_attributes(name, case["kernels"], root)
    texts = {error["file"]: with_errors(case, error["file"], root) for error in case["errors"].values()}
    write_texts(texts | {ATTRIBUTES: f"{attributes}namespace farwarp {{\nextern int planted_error;\n}}\n"}, folder)


def planted_attributes(name: str, kernels: list, root: pathlib.Path) -> str:
    text = (root / ATTRIBUTES).read_text()
    for target in TARGETS:
        text = text.replace(f"FARWARP_TARGET on_{target}\n", f"FARWARP_TARGET on_{target}_{name}\n")
    before, emulator = text.split("#elif defined(FARWARP_TARGET_EMU_SM90)")
    emulator = emulator.replace("#define FARWARP_KERNEL(", "#define FARWARP_WANTED(").replace(
        "#name, ::farwarp", f'"{name}:" #name, ::farwarp'
    )
    wanted = "".join(f"#define FARWARP_WANTED_{kernel} ,\n" for kernel in kernels)
    return f"{before}#elif defined(FARWARP_TARGET_EMU_SM90){emulator}{KERNELS}{wanted}#endif\n"


def plant(name: str, table: pathlib.Path, root: pathlib.Path, folder: pathlib.Path) -> None:
    mutant = json.loads(table.read_text())[name]
    source = root / mutant["file"]
    texts = {
        mutant["file"]: in_own_namespace(name, mutant, mutated(mutant, root)),
        ATTRIBUTES: planted_attributes(name, mutant["kernels"], root),
    }
    if source.parent.parent == root / "lessons":
        beside = [*source.parent.glob("*.h"), *source.parent.glob("*.dev.cc")]
        texts |= {str(file.relative_to(root)): file.read_text() for file in beside if file != source}
    write_texts(texts, folder)


def write_texts(texts: dict, folder: pathlib.Path) -> None:
    for stale in (folder / "src").rglob("*.h"):  # left by a mutant whose file has changed
        if str(stale.relative_to(folder)) not in texts:
            stale.unlink()
    for path, text in texts.items():
        copy = folder / path
        copy.parent.mkdir(parents=True, exist_ok=True)
        if not copy.exists() or copy.read_text() != text:
            copy.write_text(text)


if __name__ == "__main__":
    if sys.argv[1:2] == ["check"] and len(sys.argv) == 4:
        check(*map(pathlib.Path, sys.argv[2:]))
    elif sys.argv[1:2] == ["plant"] and len(sys.argv) == 6:
        plant(sys.argv[2], *map(pathlib.Path, sys.argv[3:]))
    elif sys.argv[1:2] == ["check_errors"] and len(sys.argv) == 4:
        check_errors(*map(pathlib.Path, sys.argv[2:]))
    elif sys.argv[1:2] == ["plant_errors"] and len(sys.argv) == 6:
        plant_errors(sys.argv[2], *map(pathlib.Path, sys.argv[3:]))
    else:
        sys.exit(__doc__)
