"""Every test ends: after two minutes, or what the mark `seconds` says, all threads' stacks are printed, and pytest
exits. Under AddressSanitizer (run.py --preload) it may take ten times as long, and tests marked not_sanitized are left
out.
"""

import faulthandler
import os

import pytest

SANITIZED = "asan" in os.environ.get("LD_PRELOAD", "")
SECONDS = 120


def pytest_configure(config):
    config.addinivalue_line("markers", "seconds(n): how long a test may take")
    config.addinivalue_line("markers", "not_sanitized(why): left out under AddressSanitizer")


def pytest_collection_modifyitems(items):
    for item in items:
        mark = item.get_closest_marker("not_sanitized")
        if mark and SANITIZED:
            item.add_marker(pytest.mark.skip(reason=f"AddressSanitizer: {mark.args[0]}"))


@pytest.fixture(autouse=True)
def deadline(request):
    mark = request.node.get_closest_marker("seconds")
    seconds = mark.args[0] if mark else SECONDS
    faulthandler.dump_traceback_later(seconds * 10 if SANITIZED else seconds, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()
