"""Short messages of fixed size between a loading process and its program, through a pair of pipes."""

from __future__ import annotations

import os
import struct
from enum import IntEnum
from multiprocessing.connection import Connection
from typing import NamedTuple, Optional

__all__ = ["Command", "CommandKind", "Event", "EventKind", "receive_command", "receive_event", "send"]


class CommandKind(IntEnum):
    """What the program asks for."""

    RELEASE = 0
    CONTINUE = 1
    RESTART = 2
    STOP = 3


class EventKind(IntEnum):
    """What the next slot of the ring holds now."""

    ELEMENT = 0
    SHORT_ELEMENT = 1
    END_OF_EPOCH = 2


class Command(NamedTuple):
    """One request; `generation` and `epoch` are those that a restart begins."""

    kind: int
    generation: int = 0
    epoch: int = 0


class Event(NamedTuple):
    """A slot was filled; `generation` counts the restarts before it."""

    kind: int
    generation: int


_COMMAND_FORMAT = struct.Struct("<qqq")
_EVENT_FORMAT = struct.Struct("<qq")


def send(pipe: Connection, message: NamedTuple) -> None:
    """Write a message; it is short enough that no other can get into it. BrokenPipeError if nobody listens."""
    message_format = _COMMAND_FORMAT if isinstance(message, Command) else _EVENT_FORMAT
    os.write(pipe.fileno(), message_format.pack(*message))


def receive_command(pipe: Connection) -> Optional[Command]:
    """Read a command from a pipe that does not block; None if there is none, EOFError if the program is gone."""
    data = _read(pipe, _COMMAND_FORMAT.size)
    return Command(*_COMMAND_FORMAT.unpack(data)) if data is not None else None


def receive_event(pipe: Connection) -> Optional[Event]:
    """Read an event from a pipe that does not block; None if there is none, EOFError if the process is gone."""
    data = _read(pipe, _EVENT_FORMAT.size)
    return Event(*_EVENT_FORMAT.unpack(data)) if data is not None else None


def _read(pipe: Connection, size: int) -> Optional[bytes]:
    try:
        data = os.read(pipe.fileno(), size)
    except BlockingIOError:
        return None
    if not data:
        raise EOFError
    return data
