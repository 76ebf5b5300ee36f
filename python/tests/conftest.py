"""Every test ends: after a minute pytest prints all threads' stacks and exits."""

import faulthandler

import pytest

SECONDS = 60


@pytest.fixture(autouse=True)
def deadline():
    faulthandler.dump_traceback_later(SECONDS, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()
