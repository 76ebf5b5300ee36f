#!/usr/bin/env python3
"""Opens a report in a headless browser, as its reader does.

    tests/report_page_test.py FARWARP

FARWARP is the program. A report of an emulated bench, with a trace and made-up taxes and baselines, is opened 400 and
1,600 pixels wide, light and dark. Exit status 77, with "skipped: ...", if there is no Chromium.
"""

import html.parser
import json
import math
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
SUITE = {
    "name": "tiny",
    "ranks": 2,
    "ops": {"all-reduce": {"benchmarks": [{"elements": 64, "seed": 1}, {"elements": 512, "seed": 2}]}},
}
# Runs in a frame of each width and scheme, on the page with all details open.
LAYOUT = """
document.querySelectorAll("details").forEach((details) => { details.open = true; });
const seen = [...document.querySelectorAll("main *")].filter((element) => element.getClientRects().length > 0);
const texts = seen.filter((element) => [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim()));
const beyond = seen.filter((element) => {
  const box = element.getBoundingClientRect();
  return box.width > 0 && (box.right > innerWidth + 1 || box.left < -1);
});
const bars = [...document.querySelectorAll(".bars .bar")].map((bar) => [
  Number(bar.querySelector(".value").textContent),
  bar.querySelector("rect") ? bar.querySelector("rect").getBoundingClientRect().width : 0,
]);
parent.postMessage({
  name: window.name,
  width: innerWidth,
  scroll: document.documentElement.scrollWidth,
  beyond: beyond.slice(0, 5).map((element) => element.outerHTML.slice(0, 200)),
  smallest: Math.min(...texts.map((element) => parseFloat(getComputedStyle(element).fontSize))),
  page: getComputedStyle(document.body).backgroundColor,
  bars: bars,
}, "*");
"""
FRAMES = [(width, scheme) for width in (400, 1600) for scheme in ("light", "dark")]
WRAPPER = """<!DOCTYPE html><html><head><link rel="icon" href="data:,"></head><body><pre id="layout"></pre><script>
const all = [];
addEventListener("message", (event) => {
  all.push(event.data);
  if (all.length === FRAMES) document.getElementById("layout").textContent = JSON.stringify(all);
});
</script>"""


class Page(html.parser.HTMLParser):
    """The figures that a page shows, by their places in its data, and the data."""

    def __init__(self, text):
        super().__init__()
        self.figures, self.data, self.layout, self.links = [], "", "", []
        self._into = None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self._into = None
        if "data-figure" in attributes:
            self.figures.append([attributes["data-figure"], ""])
            self._into = "figure"
        if attributes.get("id") in ("data", "layout"):
            self._into = attributes["id"]
        self.links += [value for key, value in attrs if key in ("src", "href") and not value.startswith("data:")]

    def handle_data(self, text):
        if self._into == "figure":
            self.figures[-1][1] += text
        elif self._into is not None:
            setattr(self, self._into, getattr(self, self._into) + text)

    def handle_endtag(self, tag):
        self._into = None


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def at(data, pointer):
    for key in pointer.strip("/").split("/"):
        data = data[int(key)] if isinstance(data, list) else data[key]
    return data


def numbers(data, pointer=""):
    """Pointers of all times of the data."""
    if isinstance(data, dict):
        for key, value in data.items():
            if key.endswith("_us") and isinstance(value, (int, float)):
                yield f"{pointer}/{key}"
            if key != "detail":
                yield from numbers(value, f"{pointer}/{key}")
    if isinstance(data, list):
        for index, value in enumerate(data):
            yield from numbers(value, f"{pointer}/{index}")


def add_what_the_emulator_lacks(path):
    database = sqlite3.connect(path)
    for case, factor in database.execute('SELECT "case", 2 + count(*) FROM series GROUP BY "case"').fetchall():
        series = database.execute(
            'INSERT INTO series ("case", name, entry, ours) VALUES (?, ?, ?, 0)', (case, "a <made-up> baseline", "b")
        ).lastrowid
        database.executemany(
            "INSERT INTO samples VALUES (?, ?, ?, NULL)", [(series, i, 100.25 * factor + i) for i in range(9)]
        )
        database.execute(
            'INSERT INTO taxes (run, suite, "case", baseline, baseline_us, launch_us, bulk_us, rest_us, fused_us, '
            "detail) VALUES (1, 'tiny', ?, 'made up', 300, 50.5, 30.25, -1.125, 200, '{}')",
            (f"all-reduce benchmarks[{case - 1}]",),
        )
    database.commit()
    database.close()


def browse(browser, folder, page):
    """The page's DOM after its scripts, and what the console says."""
    done = subprocess.run(
        [
            browser,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            f"--user-data-dir={folder / 'profile'}",
            "--window-size=1700,1200",
            "--enable-logging=stderr",
            "--virtual-time-budget=5000",
            "--dump-dom",
            page.as_uri(),
        ],
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


def check_figures(page, data):
    shown = dict(page.figures)
    missing = [pointer for pointer in numbers(data) if pointer not in shown]
    assert not missing, f"the page does not show {missing}"
    for pointer, text in page.figures:
        decimals = len(text.partition(".")[2])
        value = at(data, pointer)
        assert math.isclose(float(text), value, abs_tol=0.5000001 * 10**-decimals), (pointer, text, value)
    assert json.loads(page.data) == data, "the page's data are not those of --json"
    assert not page.links, f"the page needs {page.links}"


def check_layout(layout):
    assert len(layout) == len(FRAMES), layout
    for frame in layout:
        width, scheme = frame["name"].split()
        assert frame["width"] == int(width), frame
        assert frame["scroll"] <= frame["width"] and not frame["beyond"], frame
        assert frame["smallest"] >= 11, frame
        red = int(re.findall(r"\d+", frame["page"])[0])
        assert (red < 100) == (scheme == "dark"), frame
        bars = sorted(tuple(bar) for bar in frame["bars"] if bar[1] > 0)
        assert len(bars) >= 8, frame
        assert bars[-1][1] > 1.05 * bars[0][1], "all bars are of one length"


def main():
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        print(f"skipped: none of {', '.join(BROWSERS)} is here")
        return 77
    program = sys.argv[1]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        suite, database, page = folder / "tiny.json", folder / "r.db", folder / "report.html"
        suite.write_text(json.dumps(SUITE))
        run(program, "bench", "--suite", suite, "--target", "emu_sm90", "--samples", "9", "--results", database)
        run(program, "trace", "all-reduce", "--ranks", "2", "--target", "emu_sm90", "-o", folder / "trace.json")
        add_what_the_emulator_lacks(database)
        json_file = folder / "report.json"
        run(program, "report", "--results", database, "--trace", folder / "trace.json", "-o", page, "--json", json_file)
        data = json.loads(json_file.read_text())
        text = page.read_text()
        assert text.count('<svg class="timeline"') == 1
        assert "times of the emulator: they say nothing about any machine" in text
        again = folder / "again.html"
        run(program, "report", "--from", json_file, "--trace", folder / "trace.json", "-o", again)
        assert again.read_text() == text, "a page of the JSON is another one"
        (folder / "framed.html").write_text(text.replace("</body>", f"<script>{LAYOUT}</script></body>"))
        wrapper = WRAPPER.replace("FRAMES", str(len(FRAMES)))
        for width, scheme in FRAMES:
            wrapper += (
                f'<iframe src="framed.html" name="{width} {scheme}" width="{width}" height="900" '
                f'style="border:0;color-scheme:{scheme}"></iframe>'
            )
        (folder / "wrapper.html").write_text(wrapper + "</body></html>")
        (folder / "wrong.html").write_text("<script>throw Error('expected')</script>")
        assert browse(browser, folder, folder / "wrong.html")[1], "errors are not seen"
        dom, console = browse(browser, folder, folder / "wrapper.html")
        assert not console, console
        check_layout(json.loads(Page(dom).layout))
        dom, console = browse(browser, folder, page)
        assert not console, console
        check_figures(Page(dom), data)
    print("the page is right")
    return 0


if __name__ == "__main__":
    sys.exit(main())
