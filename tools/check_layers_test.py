#!/usr/bin/env python3
"""Small trees with one mistake each must be rejected for that mistake."""

import tempfile
import unittest
from pathlib import Path

import check_layers

# A correct tree. For each rule it has something that the rule must accept.
CLEAN = {
    "base/status.h": "#pragma once\n",
    "base/attributes.h": "#if defined(FARWARP_TARGET_CUDA)\n#endif\n",
    "substrate/device.h": '#include "farwarp/base/attributes.h"\n#include "farwarp/substrate/cuda/ids.h"\n',
    "substrate/cuda/ids.h": '#include "farwarp/substrate/device.h"\nextern __shared__ int words[];\n',
    "substrate/emu/machine.h": '#include "farwarp/base/status.h"\n',
    "runtime/device.h": '#include "farwarp/base/status.h"\n',
    "runtime/emu_device.cc": '#include "farwarp/substrate/emu/machine.h"\n',
    "world/view.h": "#pragma once\n",
    "world/host/world.h": '#include "farwarp/runtime/device.h"\n#include "farwarp/world/view.h"\n',
    "world/device/wait.dev.h": '#include "farwarp/substrate/device.h"\n#include "farwarp/world/view.h"\n',
    "ops/sum/plan.h": '#include "farwarp/base/status.h"\n',
    "ops/sum/reference.h": '#include "farwarp/ops/sum/plan.h"\n',
    "ops/sum/kernel.dev.h": (
        '#include "farwarp/world/device/wait.dev.h"\n// #if FARWARP_TARGET_CUDA, __shared__, is_emu\n'
    ),
    "ops/sum/case/case.cc": '#include "farwarp/harness/case.h"\n#include "farwarp/ops/sum/kernel.dev.h"\n',
    "ops/max/max.h": '#include "farwarp/world/host/world.h"\n',
    "harness/case.h": '#include "farwarp/world/host/world.h"\n',
    "harness/runner.cc": '#include "farwarp/substrate/emu/machine.h"\n',
    "harness/case_test_data.h": "#pragma once\n",
    "harness/case_test.cc": '#include "farwarp/ops/sum/kernel.dev.h"\n',
}


def violations(changes, decisions=None, faults=None, glossary=None, installed=None):
    """The violations in the correct tree with some files replaced or added, and with these documents."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name, text in (CLEAN | changes).items():
            file = root / "src" / "farwarp" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        (root / "docs").mkdir()
        if installed is not None:
            (root / "cmake").mkdir()
            lines = "".join(f"    src/farwarp/{name}\n" for name in installed)
            (root / "cmake" / "FarwarpInstall.cmake").write_text(f"target_sources(x FILES\n{lines})\n")
        for name, text in (("decisions", decisions), ("faults", faults), ("glossary", glossary)):
            if text is not None:
                (root / "docs" / f"{name}.md").write_text(text)
        return [f"{path}:{line}: {what}" for path, line, what in check_layers.violations(root)]


def including(path):
    return f'#pragma once\n#include "farwarp/{path}"\n'


class CheckLayersTest(unittest.TestCase):
    def assert_rejected(self, changes, file, words):
        found = violations(changes)
        self.assertTrue(found, "accepted")
        self.assertTrue(all(f"src/farwarp/{file}:" in line and words in line for line in found), found)

    def test_clean_tree_is_accepted(self):
        self.assertEqual(violations({}), [])

    def test_upward_include(self):
        self.assert_rejected({"base/status.h": including("world/view.h")}, "base/status.h", "layer base may not")
        self.assert_rejected(
            {"runtime/device.h": including("world/view.h")}, "runtime/device.h", "layer runtime may not"
        )

    def test_world_and_tile_do_not_know_each_other(self):
        tile = {"tile/gemm.h": including("world/view.h")}
        self.assert_rejected(tile, "tile/gemm.h", "layer tile may not include layer world")

    def test_operator_does_not_include_another(self):
        self.assert_rejected(
            {"ops/max/max.h": including("ops/sum/plan.h")}, "ops/max/max.h", "may not include layer ops/sum"
        )

    def test_harness_does_not_know_operators(self):
        self.assert_rejected({"harness/case.h": including("ops/sum/plan.h")}, "harness/case.h", "layer harness may not")

    def test_harness_sees_the_host_side_of_world_only(self):
        self.assert_rejected(
            {"harness/suite.h": including("world/view.h")}, "harness/suite.h", "this part of layer world"
        )

    def test_substrate_has_one_door(self):
        self.assert_rejected(
            {"ops/sum/kernel.dev.h": including("substrate/cuda/ids.h")}, "ops/sum/kernel.dev.h", "this part"
        )

    def test_emulator_is_driven_by_runtime_and_runner_only(self):
        machine = including("substrate/emu/machine.h")
        self.assert_rejected({"world/host/heap.cc": machine}, "world/host/heap.cc", "drive the emulator")
        self.assert_rejected({"harness/suite.cc": machine}, "harness/suite.cc", "drive the emulator")

    def test_unknown_layer(self):
        self.assert_rejected({"misc/things.h": including("base/status.h")}, "misc/things.h", "not a layer")

    def test_plan_reaches_device_code_through_another_file(self):
        changes = {
            "ops/sum/plan.h": including("ops/sum/shapes.h"),
            "ops/sum/shapes.h": including("ops/sum/kernel.dev.h"),
        }
        found = violations(changes)
        self.assertTrue(any("src/farwarp/ops/sum/plan.h:1: plans," in line for line in found), found)

    def test_reference_uses_substrate(self):
        self.assert_rejected(
            {"ops/sum/reference.h": including("substrate/device.h")}, "ops/sum/reference.h", "owes nothing"
        )

    def test_device_code_reaches_the_host(self):
        changes = {"ops/sum/kernel.dev.h": including("world/host/world.h")}
        self.assert_rejected(changes, "ops/sum/kernel.dev.h", "device code reaches the host's")

    def test_nothing_is_built_on_a_test(self):
        self.assert_rejected(
            {"harness/report.cc": including("harness/case_test.cc")}, "harness/report.cc", "nothing is built on"
        )

    def test_target_condition_outside_substrate(self):
        for condition in ("#if defined(FARWARP_TARGET_HIP)", "#ifdef __CUDA_ARCH__", "# elif FARWARP_TARGET_EMU_SM90"):
            self.assert_rejected(
                {"ops/sum/kernel.dev.h": condition + "\n#endif\n"}, "ops/sum/kernel.dev.h", "#if on the target"
            )

    def test_forbidden_words(self):
        self.assert_rejected({"ops/sum/kernel.dev.h": "__shared__ int x;\n"}, "ops/sum/kernel.dev.h", "__shared__")
        self.assert_rejected({"substrate/device.h": "bool is_emu();\n"}, "substrate/device.h", "is_emu")
        emulated = {"ops/sum/kernel.dev.h": "if (Target::kEmulated) return;\n"}
        self.assert_rejected(emulated, "ops/sum/kernel.dev.h", "does not ask whether it is emulated")

    def test_cycle(self):
        changes = {
            "base/a.h": including("base/b.h"),
            "base/b.h": including("base/c.h"),
            "base/c.h": including("base/a.h"),
        }
        self.assert_rejected(changes, "base/c.h", "closes a cycle: src/farwarp/base/a.h -> src/farwarp/base/b.h")

    def test_includes_are_written_from_the_root_and_exist(self):
        self.assert_rejected({"base/a.h": '#include "status.h"\n'}, "base/a.h", "write includes as")
        self.assert_rejected({"base/a.h": including("base/gone.h")}, "base/a.h", "does not exist")

    def test_long_file_needs_a_reason(self):
        long = {"base/a.h": "\n" * 401}
        self.assert_rejected(long, "base/a.h", "401 lines, at most 400")
        table = (
            "# Decisions\n\n## Long files\n\n| file | lines | reason |\n|---|---|---|\n"
            "| `src/farwarp/base/a.h` | {} |{}|\n"
        )
        self.assertEqual(violations(long, table.format(450, " one table ")), [])
        self.assertEqual(len(violations(long, table.format(400, " one table "))), 1)
        self.assertEqual(len(violations(long, table.format(450, "  "))), 1, "a reason is required")
        self.assertEqual(len(violations({}, table.format(450, " one table "))), 1, "an excuse for a file that is gone")

    def test_installed_headers_include_installed_ones(self):
        headers = {"base/a.h": including("base/b.h"), "base/b.h": "#pragma once\n"}
        self.assertEqual(violations(headers, installed=["base/a.h", "base/b.h"]), [])
        found = violations(headers, installed=["base/a.h"])
        self.assertEqual(len(found), 1)
        self.assertIn("src/farwarp/base/a.h:2: is installed and includes src/farwarp/base/b.h", found[0])
        self.assertIn("installs src/farwarp/base/c.h, which", violations({}, installed=["base/c.h"])[0])

    def test_promises_name_tests_that_exist(self):
        tests = {"base/status_test.cc": "TEST_P(StatusTest, IsOk) {}\nTYPED_TEST(Typed, Works) {}\n"}
        self.assertEqual(violations(tests, faults="| late | `StatusTest.IsOk`, `Typed.Works` |\n"), [])
        found = violations(tests, faults="# Faults\n| late | `StatusTest.IsGone` |\n")
        self.assertEqual(found, ["docs/faults.md:2: names the test StatusTest.IsGone, which does not exist"])

    def test_glossary_and_sources_agree(self):
        glossary = "- **put**: a store (`device.h`; was: tell,\n  `giver`). **box**: `Box`.\n"
        self.assertEqual(violations({"base/a.h": "struct Box {};  // has givens\n"}, glossary=glossary), [])
        found = violations({"base/a.h": "struct Box {};\n// Givers give.\n"}, glossary=glossary)
        self.assertEqual(found, ["src/farwarp/base/a.h:2: giver: docs/glossary.md has another word for it"])
        self.assertEqual(violations({}, glossary=glossary), ["docs/glossary.md:2: names Box, which is in no source"])

    def test_links_lead_somewhere(self):
        text = "# Faults\n[here](#faults), [there](decisions.md#long-files), [web](https://x.y/z#w), `[no](link)`\n"
        self.assertEqual(violations({}, faults=text, decisions="## Long files\n"), [])
        text = "# Faults\n[here](#fault)\n[there](decisions.md#files)\n[away](gone.md)\n"
        self.assertEqual(
            violations({}, faults=text, decisions="## Long files\n"),
            [
                "docs/faults.md:2: links to #fault, which is no heading of this file",
                "docs/faults.md:3: links to #files, which is no heading of decisions.md",
                "docs/faults.md:4: links to gone.md, which does not exist",
            ],
        )


if __name__ == "__main__":
    unittest.main()
