#!/usr/bin/env python3
"""mutants.py check refuses a table with one mistake, with a line that names the mistake."""

import copy
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM = pathlib.Path(__file__).with_name("mutants.py")
TABLE = {
    "cases": {
        "plain": {
            "op": "gemm",
            "entry": "src/op/entry.dev.cc",
            "kernels": ["gemm_bf16_64"],
            "only": "emu_sm90",
            "set": {"m": "8"},
        }
    },
    "mutants": {
        "a_mutant": {"about": "no wait", "case": "plain", "file": "kernel.dev.h", "find": "wait();", "replace": ""}
    },
}


def check(table: dict, others: dict | None = None) -> tuple[int, str, dict]:
    with tempfile.TemporaryDirectory() as name:
        root = pathlib.Path(name)
        for folder, content in {"src/op": table, **(others or {})}.items():
            (root / folder).mkdir(parents=True)
            (root / folder / "entry.dev.cc").write_text("")
            (root / folder / "kernel.dev.h").write_text("wait(); go(); go();\n")
            (root / folder / "args.h").write_text("namespace farwarp::first {\nwait();\n}\n")
            (root / folder / "plain.h").write_text("namespace farwarp {\nwait();\n}\n")
            (root / folder / "mutants.json").write_text(json.dumps(content))
        output = root / "table.json"
        run = subprocess.run(
            [sys.executable, PROGRAM, "check", root, output], capture_output=True, text=True, check=False
        )
        return run.returncode, run.stderr, json.loads(output.read_text()) if output.exists() else {}


class Check(unittest.TestCase):
    def test_a_right_table(self):
        status, _, table = check(TABLE)
        self.assertEqual(status, 0)
        self.assertEqual(table["a_mutant"]["file"], "src/op/kernel.dev.h")
        self.assertEqual(table["a_mutant"]["set"], {"m": "8"})

    def test_a_file_that_is_no_device_code(self):
        table = copy.deepcopy(TABLE)
        table["mutants"]["a_mutant"]["file"] = "args.h"
        self.assertEqual(check(table)[0], 0)

    def test_each_mistake_is_named(self):
        def mutant(field, value):
            return lambda table: table["mutants"]["a_mutant"].__setitem__(field, value)

        def case(field, value):
            return lambda table: table["cases"]["plain"].__setitem__(field, value)

        for mistake, words in [
            (mutant("find", "go();"), ["src/op/mutants.json, mutant a_mutant", "'find'", "2 times", "once"]),
            (mutant("find", ""), ["'find'", "0 times"]),
            (mutant("replace", "wait();"), ["'replace' equals 'find'"]),
            (mutant("case", "wide"), ["'case' is 'wide'", "plain"]),
            (mutant("file", "none.h"), ["'file' is 'none.h'"]),
            (mutant("file", "plain.h"), ["'file' is 'src/op/plain.h'", "namespace below farwarp"]),
            (mutant("only", "emu_gfx942"), ["'only'", "the case has 'emu_sm90'"]),
            (mutant("set", {"m": 8}), ["parameter 'm' is 8", "string"]),
            (mutant("colour", "red"), ["'colour' is unknown", "about"]),
            (lambda table: table["mutants"]["a_mutant"].pop("about"), ["'about' is missing"]),
            (lambda table: table["mutants"].update({"A b": {}}), ["mutant A b", "a to z"]),
            (lambda table: table.pop("cases"), ["'cases' is missing"]),
            (case("kernels", []), ["case plain", "'kernels' is []"]),
            (case("kernels", "gemm"), ["'kernels' is \"gemm\"", "list"]),
            (case("entry", "entry.cc"), ["'entry' is 'entry.cc'"]),
            (case("only", "cuda"), ["'only' is 'cuda'", "emu_sm90"]),
            (case("ranks", "1"), ["'ranks' is \"1\"", "int"]),
        ]:
            table = copy.deepcopy(TABLE)
            mistake(table)
            status, message, result = check(table)
            self.assertEqual((status, result), (1, {}), message)
            for word in words:
                self.assertIn(word, message)

    def test_a_name_in_two_tables(self):
        status, message, _ = check(TABLE, {"src/other": TABLE})
        self.assertEqual(status, 1)
        self.assertIn("the name is taken", message)


ERRORS = {
    "cases": {
        "an_object": {
            "op": "gemm",
            "entry": "src/op/entry.dev.cc",
            "kernels": ["gemm_bf16_64"],
            "errors": {
                "no_wait": {"about": "no wait", "file": "kernel.dev.h", "find": "wait();", "replace": "stop();"},
                "go_on": {"about": "goes on", "file": "kernel.dev.h", "find": "wait();", "replace": "go();"},
                "other": {"about": "another call", "file": "kernel.dev.h", "find": "first()", "replace": "second()"},
            },
        }
    }
}


def plant_errors(table: dict) -> tuple[str, str]:
    """What is wrong, and the planted file."""
    with tempfile.TemporaryDirectory() as name:
        root = pathlib.Path(name)
        for folder in ("src/op", "src/farwarp/base"):
            (root / folder).mkdir(parents=True)
        (root / "src/op/entry.dev.cc").write_text("")
        (root / "src/op/kernel.dev.h").write_text("wait(); x = first(); go(); go();\n")
        (root / "src/farwarp/base/attributes.h").write_text(
            (PROGRAM.parents[2] / "src/farwarp/base/attributes.h").read_text()
        )
        (root / "src/op/errors.json").write_text(json.dumps(table))
        run = subprocess.run(
            [sys.executable, PROGRAM, "check_errors", root, root / "errors.json"],
            capture_output=True,
            text=True,
            check=False,
        )
        if run.returncode != 0:
            return run.stderr, ""
        subprocess.run(
            [sys.executable, PROGRAM, "plant_errors", "an_object", root / "errors.json", root, root / "out"], check=True
        )
        return "", (root / "out/src/op/kernel.dev.h").read_text()


class Errors(unittest.TestCase):
    def test_all_errors_of_a_file_are_planted(self):
        wrong, text = plant_errors(ERRORS)
        self.assertEqual(wrong, "")
        self.assertEqual(
            text,
            "if (::farwarp::planted_error == 1) { stop(); } "
            "else if (::farwarp::planted_error == 2) { go(); } else { wait(); } "
            "x = (::farwarp::planted_error == 3 ? (second()) : (first())); go(); go();\n",
        )

    def test_a_mistake_is_named(self):
        for field, value, words in (
            ("find", "go();", "stands 2 times"),
            ("file", "args.h", "device code"),
            ("about", None, "is missing"),
            ("find", "x = first()", "overlaps"),
        ):
            table = copy.deepcopy(ERRORS)
            error = table["cases"]["an_object"]["errors"]["go_on"]
            if value is None:
                del error[field]
            else:
                error[field] = value
            self.assertIn(words, plant_errors(table)[0])


if __name__ == "__main__":
    unittest.main()
