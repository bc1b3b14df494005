"""What a loading process and its program say to each other arrives whole and in order."""

from __future__ import annotations

import os
from multiprocessing import Pipe

import pytest

from porting.simulator._loading.data_messages import (
    Command,
    CommandKind,
    Event,
    EventKind,
    receive_command,
    receive_event,
    send,
)


@pytest.fixture
def pipe():
    """Give the two ends of a pipe, of which the receiving one does not block."""
    receiver, sender = Pipe(duplex=False)
    os.set_blocking(receiver.fileno(), False)
    yield receiver, sender
    receiver.close()
    sender.close()


def test_messages_arrive_in_order(pipe):
    receiver, sender = pipe
    commands = [Command(CommandKind.RESTART, generation=3, epoch=2**40), Command(CommandKind.STOP)]

    for command in commands:
        send(sender, command)

    assert [receive_command(receiver) for _ in commands] == commands


def test_an_event_arrives_as_it_was(pipe):
    receiver, sender = pipe

    send(sender, Event(EventKind.SHORT_ELEMENT, 7))

    assert receive_event(receiver) == Event(EventKind.SHORT_ELEMENT, 7)


def test_nothing_said_is_none(pipe):
    receiver, _sender = pipe

    assert receive_command(receiver) is None
    assert receive_event(receiver) is None


def test_an_end_that_is_closed_is_the_end_of_the_file(pipe):
    receiver, sender = pipe

    sender.close()

    with pytest.raises(EOFError):
        receive_event(receiver)
