#!/usr/bin/env python3
"""Plants one bug in a copy of a kernel's sources.

    make_mutant.py NAME MUTANTS.json SOURCE_ROOT OUTPUT_DIR

The mutant's copies (the mutated file, and base/attributes.h with a namespace and kernel names of the mutant's own) are written
below OUTPUT_DIR, which comes before SOURCE_ROOT/src on the include path. A lesson that is a folder includes its files from
beside them, so it is copied whole. The text to replace must stand in the source exactly
once: when a kernel changes, its mutants must be looked at again, and the build says so.
"""
import json
import pathlib
import sys

ATTRIBUTES = "src/farwarp/base/attributes.h"


def replace_once(text: str, find: str, replacement: str, where: str) -> str:
    if text.count(find) != 1:
        sys.exit(f"{where}: {text.count(find)} occurrences of {find!r}, expected 1")
    return text.replace(find, replacement)


def main() -> None:
    name, table, root, output = sys.argv[1], *map(pathlib.Path, sys.argv[2:5])
    mutant = json.loads(table.read_text())[name]
    source = root / mutant["file"]
    mutated = replace_once(source.read_text(), mutant["find"], mutant["replace"], f"mutant {name}: {mutant['file']}")
    attributes = (root / ATTRIBUTES).read_text()
    for target in ("on_emu_sm90", "on_emu_gfx942"):
        attributes = replace_once(attributes, f"FARWARP_TARGET {target}\n", f"FARWARP_TARGET {target}_{name}\n", ATTRIBUTES)
    attributes = replace_once(attributes, "#name, ::farwarp", f'"{name}:" #name, ::farwarp', ATTRIBUTES)
    texts = {mutant["file"]: mutated, ATTRIBUTES: attributes}
    if source.parent.parent == root / "lessons":
        beside = [*source.parent.glob("*.h"), *source.parent.glob("*.dev.cc")]
        texts |= {str(file.relative_to(root)): file.read_text() for file in beside if file != source}
    for stale in (output / "src").rglob("*.h"):  # of a mutant that has moved to another file since
        if str(stale.relative_to(output)) not in texts:
            stale.unlink()
    for path, text in texts.items():
        copy = output / path
        copy.parent.mkdir(parents=True, exist_ok=True)
        if not copy.exists() or copy.read_text() != text:
            copy.write_text(text)


if __name__ == "__main__":
    main()
