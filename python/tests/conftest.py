"""Every test ends: after two minutes pytest prints all threads' stacks and exits."""

import faulthandler

import pytest

SECONDS = 120


@pytest.fixture(autouse=True)
def deadline():
    faulthandler.dump_traceback_later(SECONDS, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()
