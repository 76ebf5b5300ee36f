"""The order of a Buffer's calls on several streams, with streams that only write down what they are given."""

import sys
import types

import pytest

from farwarp.deep_ep.order import Order


class Stream:
    def __init__(self, log, handle):
        self.log, self.cuda_stream = log, handle

    def wait_event(self, event):
        self.log.append(("wait", self.cuda_stream, event.recorded))


class Event:
    recorded = None

    def record(self, stream):
        self.recorded = stream.cuda_stream


class World:
    """Of a GPU, and its streams; torch's current stream is `current`, 0 the default one."""

    emulated, device = False, 1

    def __init__(self):
        self.current, self.capturing, self.log, self.streams = 0, False, [], self

    def is_capturing(self):
        return self.capturing

    def handle_of(self, stream):
        return (self.current if stream is None else stream.cuda_stream) or None


@pytest.fixture
def world(monkeypatch):
    world = World()
    cuda = types.SimpleNamespace(
        Event=Event,
        default_stream=lambda device: Stream(world.log, 0),
        ExternalStream=lambda handle, device: Stream(world.log, handle),
    )
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=cuda))
    return world


def call(order, world, current=None, stream=None):
    if current is not None:
        world.current = current
    order.before(stream)
    world.log.append(("call", world.streams.handle_of(stream)))
    order.after()


def test_one_stream_needs_no_events(world):
    order = Order(world)
    for _ in range(3):
        call(order, world, 7)
    assert world.log == [("call", 7)] * 3 and order._event is None


def test_each_call_waits_for_the_one_before_it(world):
    order, communication = Order(world), Stream(world.log, 9)
    call(order, world, 0)
    call(order, world, stream=communication)
    call(order, world, stream=communication)
    call(order, world, 5)
    call(order, world, 0)
    assert world.log == [
        ("call", None),
        ("wait", 9, 0),
        ("call", 9),
        ("call", 9),
        ("wait", 5, 9),
        ("call", 5),
        ("wait", 0, 5),
        ("call", None),
    ]


def test_not_across_the_border_of_a_capture(world):
    order = Order(world)
    call(order, world, 0)
    world.capturing = True
    call(order, world, 4)
    call(order, world, stream=Stream(world.log, 9))  # within the capture
    world.capturing = False
    call(order, world, 0)
    call(order, world, 6)
    assert world.log == [
        ("call", None),
        ("call", 4),
        ("wait", 9, 4),
        ("call", 9),
        ("call", None),
        ("wait", 6, 0),
        ("call", 6),
    ]
