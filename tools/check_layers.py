#!/usr/bin/env python3
"""Checks the structure of the sources.

Layers, file roles, include cycles, forbidden words, file sizes, installed headers, tests that docs/faults.md names, the
glossary, links of documents.

    tools/check_layers.py [ROOT]

Prints one line per violation, "file:line: what", and exits 1 if there are any. HACKING.md explains the rules.
docs/decisions.md lists the files that may be longer than the limit, with the reason.
"""

import re
import sys
from pathlib import Path

MAX_LINES = 400
SOURCE_FOLDERS = ("src", "apps", "lessons", "python", "tests")
SOURCE_SUFFIXES = (".h", ".cc", ".S", ".py")

# The layers that each layer may include, besides itself. A layer is a folder of src/farwarp. Each operator is a
# separate layer, so that no operator includes another.
BELOW_OPS = {"tile", "world", "runtime", "vendor", "machine", "substrate", "base"}
ALLOWED = {
    "base": set(),
    "substrate": {"base"},
    "vendor": {"base"},
    "machine": {"base"},
    "runtime": {"substrate", "vendor", "base"},
    "world": {"runtime", "substrate", "vendor", "base"},
    "tile": {"substrate", "base"},
    "ops": BELOW_OPS,
    "probes": BELOW_OPS,
    "fleet": {"tile", "world", "runtime", "machine", "substrate", "base"},
    "models": BELOW_OPS | {"ops", "fleet"},
    "harness": {"world", "runtime", "vendor", "machine", "substrate", "base"},
    "results": {"harness", "base"},
    "judge": {"harness", "world", "runtime", "base"},
    "c": {"models", "ops", "world", "runtime", "base"},
}

# Doors of a layer: the only files of it that other layers may include. "A->B": that layer A may include of B.
DOORS = {
    "substrate": re.compile(r"substrate/(device|kernel_of)\.h$"),
    "harness->world": re.compile(r"world/host/"),
}
# The emulator's host side is only for code that opens devices and sets schedules.
EMULATOR_HOST = re.compile(r"substrate/emu/(machine|registry)\.h$")
EMULATOR_USERS = re.compile(r"src/farwarp/(runtime/|harness/runner\.)")

# device.h declares the vocabulary and includes, at its end, the files that define it. These include device.h, as -inl
# files do.
DEFINITIONS = re.compile(
    r"src/farwarp/substrate/((cuda|hip|emu)/|gpu_(cells|trace)\.h|packets\.h|amd_forms_elsewhere\.h)"
)
VOCABULARY = "src/farwarp/substrate/device.h"

# Leaves may include anything, because no other code may include them.
LEAF = re.compile(r"/(ops|models)/.*/case/|_test(_\w+)?(\.dev)?\.(cc|h)$|/hip_stub/|^(apps|lessons|python|tests)/")

DEVICE_CODE = re.compile(r"\.dev\.(h|cc)$")
PLAIN_DATA = re.compile(r"(^|/)(plan\.(h|cc)|args\.h|reference\.(h|cc))$")  # may include no device code
ORACLE = re.compile(r"(^|/)reference\.(h|cc)$")
HOST_ONLY = re.compile(r"src/farwarp/((runtime|vendor|machine|world/host)/|harness/(?!\w+_args\.h$))")

TARGET_TEST = re.compile(r"\b(FARWARP_TARGET_\w+|__CUDA_ARCH__|__CUDACC__|__HIP__|__HIP_DEVICE_COMPILE__|__AMDGCN__)\b")
TARGET_TEST_ALLOWED = re.compile(r"src/farwarp/(base/attributes\.h$|substrate/)")
FORBIDDEN_WORDS = re.compile(r"\b(__shared__|is_emu)\b")
FORBIDDEN_WORDS_ALLOWED = re.compile(r"src/farwarp/substrate/(cuda|hip)/")
ASKS_IF_EMULATED = re.compile(r"\b(is_emulated|kEmulated|kEmuSm90|kEmuGfx942)\b")

INCLUDE = re.compile(r'\s*#\s*include\s*"([^"]+)"')
CONDITION = re.compile(r"\s*#\s*(if|ifdef|ifndef|elif)\b(.*)")
COMMENT = re.compile(r'"(?:\\.|[^"\\])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)


def without_comments(text):
    """The text without comments. Lines keep their numbers."""

    def blank(match):
        piece = match.group(0)
        return piece if piece.startswith('"') else "\n" * piece.count("\n")

    return COMMENT.sub(blank, text)


def layer_of(path):
    """'world' for src/farwarp/world/..., 'ops/moe_a2a' for an operator, None outside src/farwarp."""
    parts = path.split("/")
    if parts[:2] != ["src", "farwarp"] or len(parts) < 4:
        return None
    return "/".join(parts[2:4]) if parts[2] == "ops" and len(parts) > 4 else parts[2]


def may_include(path, target):
    """None, or why `path` may not include `target` (both relative to the root)."""
    source, other = layer_of(path), layer_of(target)
    if source is None or other is None or source == other:
        return None
    if EMULATOR_HOST.search(target):
        return None if EMULATOR_USERS.match(path) else "only runtime/ and harness/runner drive the emulator"
    family, other_family = source.split("/")[0], other.split("/")[0]
    if family not in ALLOWED:
        return f"'{family}' is not a layer"
    if other_family not in ALLOWED[family]:
        return f"layer {source} may not include layer {other}"
    door = DOORS.get(f"{family}->{other_family}") or DOORS.get(other_family)
    if door and not door.search(target):
        return f"layer {source} may not include this part of layer {other}"
    return None


class Source:
    def __init__(self, root, path):
        self.path = path
        text = (root / path).read_text(encoding="utf-8", errors="replace")
        self.length = text.count("\n")
        self.lines = without_comments(text).split("\n") if not path.endswith(".py") else []
        self.includes = []  # (line, path as written)
        for number, line in enumerate(self.lines, 1):
            match = INCLUDE.match(line)
            if match:
                self.includes.append((number, match.group(1)))

    def targets(self):
        return [(line, "src/" + name) for line, name in self.includes if name.startswith("farwarp/")]


def find_sources(root):
    files = {}
    for folder in SOURCE_FOLDERS:
        for file in sorted((root / folder).rglob("*")):
            path = file.relative_to(root).as_posix()
            if file.is_file() and path.endswith(SOURCE_SUFFIXES):
                files[path] = Source(root, path)
    return files


def reachable(files, start):
    """{file: the direct include of `start` that leads to it}, for all files that `start` includes, directly or not."""
    seen, queue = {}, [(target, target) for _, target in files[start].targets()]
    while queue:
        path, via = queue.pop()
        if path in seen or path not in files:
            continue
        seen[path] = via
        queue += [(target, via) for _, target in files[path].targets()]
    return seen


def check_includes(files):
    for path, source in files.items():
        leaf = LEAF.search(path)
        for line, name in source.includes:
            if path.startswith("src/") and not name.startswith("farwarp/"):
                yield path, line, f'includes "{name}": write includes as "farwarp/layer/file.h"'
        for line, target in source.targets():
            if target not in files:
                yield path, line, f"includes {target}, which does not exist"
                continue
            if not leaf and LEAF.search(target):
                yield path, line, f"includes {target}: nothing is built on tests, benches and cases"
                continue
            reason = None if leaf else may_include(path, target)
            if reason:
                yield path, line, f"includes {target}: {reason}"


def check_roles(files):
    for path in files:
        if LEAF.search(path):
            continue
        for target, via in reachable(files, path).items():
            through = "" if via == target else f" through {via}"
            if PLAIN_DATA.search(path) and DEVICE_CODE.search(target):
                yield path, 1, f"plans, references and arguments include no device code, but reach {target}{through}"
            if ORACLE.search(path) and layer_of(target) == "substrate":
                yield path, 1, f"a reference owes nothing to the substrate, but reaches {target}{through}"
            if DEVICE_CODE.search(path) and HOST_ONLY.match(target):
                yield path, 1, f"device code reaches the host's {target}{through}"


def check_installed(root, files):
    """The headers that cmake/FarwarpInstall.cmake installs include nothing else of ours."""
    list_file = "cmake/FarwarpInstall.cmake"
    if not (root / list_file).exists():
        return
    installed = re.findall(r"^ +(src/farwarp/\S+\.h)\b", (root / list_file).read_text(), re.MULTILINE)
    for path in installed:
        if path not in files:
            yield list_file, 1, f"installs {path}, which does not exist"
            continue
        for line, target in files[path].targets():
            if target not in installed:
                yield path, line, f"is installed and includes {target}, which is not: {list_file}"


def check_words(files):
    for path, source in files.items():
        for number, line in enumerate(source.lines, 1):
            condition = CONDITION.match(line)
            if condition and TARGET_TEST.search(condition.group(2)) and not TARGET_TEST_ALLOWED.match(path):
                yield (
                    path,
                    number,
                    "#if on the target outside base/attributes.h and substrate/: ask a capability constant",
                )
            word = FORBIDDEN_WORDS.search(line)
            if word and not FORBIDDEN_WORDS_ALLOWED.match(path):
                yield path, number, f"{word.group(0)} outside substrate/cuda and substrate/hip"
            if DEVICE_CODE.search(path) and layer_of(path) != "substrate" and not LEAF.search(path):
                word = ASKS_IF_EMULATED.search(line)
                if word:
                    yield path, number, f"{word.group(0)} in device code: a kernel does not ask whether it is emulated"


def check_cycles(files):
    """Each cycle once, at the include that closes it."""
    state = {}  # path -> position in the current chain, or None once done

    def visit(path, chain):
        state[path] = len(chain)
        chain.append(path)
        for line, target in files[path].targets():
            if target not in files or (target == VOCABULARY and DEFINITIONS.match(path)):
                continue
            if target not in state:
                yield from visit(target, chain)
            elif state[target] is not None:
                yield path, line, "closes a cycle: " + " -> ".join(chain[state[target] :] + [target])
        chain.pop()
        state[path] = None

    for path in files:
        if path not in state:
            yield from visit(path, [])


def allowed_lengths(root):
    """{path: lines} from the rows `| path | lines | reason |` under the heading "Long files" of docs/decisions.md."""
    document = root / "docs" / "decisions.md"
    if not document.exists():
        return {}
    section = re.search(r"^#+ Long files\n(.*?)(?=^#|\Z)", document.read_text(), re.MULTILINE | re.DOTALL)
    rows = re.findall(r"^\| *`([^`]+)` *\| *(\d+) *\| *\S.*\|$", section.group(1), re.MULTILINE) if section else []
    return {path: int(lines) for path, lines in rows}


def check_lengths(root, files):
    allowed = allowed_lengths(root)
    for path, source in files.items():
        limit = allowed.get(path, MAX_LINES)
        if source.length > limit:
            yield (
                path,
                source.length,
                f"{source.length} lines, at most {limit}: split it, or give the reason in docs/decisions.md",
            )
    for path in allowed:
        if path not in files:
            yield "docs/decisions.md", 1, f"excuses the length of {path}, which does not exist"


def check_named_tests(root):
    """The tests that docs/faults.md names must exist."""
    document = root / "docs" / "faults.md"
    if not document.exists():
        return
    sources = [path for folder in SOURCE_FOLDERS for path in (root / folder).rglob("*_test.cc")]
    tests = {
        ".".join(pair)
        for path in sources
        for pair in re.findall(r"^(?:TYPED_)?TEST(?:_[PF])?\((\w+),\s*(\w+)\)", path.read_text(), re.MULTILINE)
    }
    for number, line in enumerate(document.read_text().split("\n"), 1):
        for name in re.findall(r"`([A-Z]\w+\.\w+)`", line):
            if name not in tests:
                yield "docs/faults.md", number, f"names the test {name}, which does not exist"


def check_glossary(root, files):
    """Names in code type of docs/glossary.md exist in the sources; those that were used before ("was:") do not."""
    document = root / "docs" / "glossary.md"
    if not document.exists():
        return
    text = document.read_text()
    sources = {path: (root / path).read_text() for path in files}
    everything = "\n".join(sources.values())
    retired = [match.span() for match in re.finditer(r"\bwas: [^)]*", text)]
    for name in re.finditer(r"`([^`]+)`", text):
        line = text.count("\n", 0, name.start()) + 1
        if not any(start <= name.start() < end for start, end in retired):
            if name[1] not in everything and not (root / name[1]).exists():
                yield "docs/glossary.md", line, f"names {name[1]}, which is in no source"
            continue
        word = re.compile(rf"\b{re.escape(name[1])}s?\b", re.IGNORECASE)
        for path, source in sources.items():
            for found in word.finditer(source):
                yield (
                    path,
                    source.count("\n", 0, found.start()) + 1,
                    f"{name[1]}: docs/glossary.md has another word for it",
                )


def anchors_of(document):
    """The anchors of a document's headings, as its viewers make them."""
    headings = re.findall(r"^#+ +(.*?) *$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def check_links(root):
    """Links from a document to a file or a heading lead somewhere."""
    folders = [root / folder for folder in (*SOURCE_FOLDERS, "docs")]
    documents = [*root.glob("*.md"), *(path for folder in folders for path in folder.rglob("*.md"))]
    for document in sorted(set(documents)):
        for number, line in enumerate(document.read_text().split("\n"), 1):
            for link in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`]*`", "", line)):
                path, _, anchor = link.partition("#")
                if ":" in path:
                    continue
                target = document.parent / path if path else document
                if not target.exists():
                    yield document.relative_to(root), number, f"links to {path}, which does not exist"
                elif anchor and anchor not in anchors_of(target):
                    yield (
                        document.relative_to(root),
                        number,
                        f"links to #{anchor}, which is no heading of {path or 'this file'}",
                    )


def violations(root):
    files = find_sources(root)
    for check in (check_includes, check_roles, check_words, check_cycles):
        yield from check(files)
    yield from check_installed(root, files)
    yield from check_lengths(root, files)
    yield from check_named_tests(root)
    yield from check_glossary(root, files)
    yield from check_links(root)


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent)
    count = 0
    for path, line, what in violations(root):
        print(f"{path}:{line}: {what}")
        count += 1
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
