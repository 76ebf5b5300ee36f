"""Every test ends: after pyproject.toml's `timeout`, or what the mark says, the stacks are printed, and pytest exits.

Under AddressSanitizer (run.py --preload) it may take ten times as long, and tests marked not_sanitized are left out.
"""

import os

import pytest

SANITIZED = "asan" in os.environ.get("LD_PRELOAD", "")


def pytest_configure(config):
    config.addinivalue_line("markers", "not_sanitized(why): left out under AddressSanitizer")


def pytest_collection_modifyitems(config, items):
    if not SANITIZED:
        return
    for item in items:
        mark = item.get_closest_marker("not_sanitized")
        if mark:
            item.add_marker(pytest.mark.skip(reason=f"AddressSanitizer: {mark.args[0]}"))
        limit = item.get_closest_marker("timeout")
        seconds = limit.args[0] if limit else float(config.getini("timeout"))
        item.add_marker(pytest.mark.timeout(10 * seconds), append=False)
