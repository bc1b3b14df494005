"""The memory that a loading process shares with its program, and what the two say to each other about it."""

from __future__ import annotations

import os
from multiprocessing import Pipe

import pytest
import torch

from porting.simulator._loading.data_ring import DataRing, ElementStructure, Message, MessageKind, receive, send
from porting.simulator.errors import Error


def test_every_slot_is_shared_and_has_the_shapes_of_the_first_element():
    ring = DataRing([torch.zeros(4, 2).half(), torch.tensor(True)], 3)

    assert [[(tensor.shape, tensor.dtype) for tensor in slot] for slot in ring.slots] == [
        [((4, 2), torch.float16), ((), torch.bool)]
    ] * 3
    assert all(tensor.is_shared() for slot in ring.slots for tensor in slot)


def test_rows_of_a_short_element_are_read_back_without_the_rest():
    ring = DataRing([torch.zeros(4), torch.tensor(0)], 1)

    is_short = ring.write(0, [torch.tensor([1.0, 2.0]), torch.tensor(5)])

    assert is_short
    assert [tensor.tolist() for tensor in ring.read(0, is_short=True)] == [[1, 2], 5]


def test_rows_are_put_together():
    ring = DataRing([torch.zeros(2, 1)], 1, num_rows=3)

    ring.write_rows(0, [torch.tensor([[1.0], [2.0]])], source=0, target=0, count=2)
    ring.write_rows(0, [torch.tensor([[3.0], [4.0]])], source=0, target=2, count=1)

    assert ring.read(0, is_short=False)[0].tolist() == [[1], [2], [3]]


def test_rows_of_another_shape_are_refused():
    ring = DataRing([torch.zeros(2, 1)], 1, num_rows=3)

    with pytest.raises(Error, match=r"index 0 has the shape \(2, 5\)"):
        ring.write_rows(0, [torch.zeros(2, 5)], source=0, target=0, count=2)


def test_the_structure_of_the_first_element_decides():
    structure = ElementStructure({"b": torch.tensor(1), "a": torch.tensor(2)})

    tensors = structure.take_tensors({"a": torch.tensor(4), "b": torch.tensor(3)})

    assert [int(tensor) for tensor in tensors] == [3, 4]
    assert list(structure.make_element(tensors)) == ["b", "a"]


# messages


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
    commands = [Message(MessageKind.RESTART, generation=3, epoch=2**40), Message(MessageKind.STOP)]

    for command in commands:
        send(sender, command)

    assert [receive(receiver) for _ in commands] == commands


def test_an_event_arrives_as_it_was(pipe):
    receiver, sender = pipe

    send(sender, Message(MessageKind.SHORT_ELEMENT, 7))

    assert receive(receiver) == Message(MessageKind.SHORT_ELEMENT, 7)


def test_nothing_said_is_none(pipe):
    receiver, _sender = pipe

    assert receive(receiver) is None


def test_an_end_that_is_closed_is_the_end_of_the_file(pipe):
    receiver, sender = pipe

    sender.close()

    with pytest.raises(EOFError):
        receive(receiver)
