"""Every test ends: after two minutes, or what the mark `seconds` says, all threads' stacks are printed, and pytest
exits."""

import faulthandler

import pytest

SECONDS = 120


def pytest_configure(config):
    config.addinivalue_line("markers", "seconds(n): how long a test may take")


@pytest.fixture(autouse=True)
def deadline(request):
    mark = request.node.get_closest_marker("seconds")
    faulthandler.dump_traceback_later(mark.args[0] if mark else SECONDS, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()
