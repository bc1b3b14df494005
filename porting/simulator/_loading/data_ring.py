"""Share memory between a loading process and its program: a ring of slots, and short messages about them.

The accessor reads from it, and the producer writes to it.
"""

from __future__ import annotations

import os
import struct
from enum import IntEnum
from multiprocessing.connection import Connection
from typing import Any, Iterable, List, Mapping, NamedTuple, Optional, Sequence

import torch

from ...structure import Structure, adapter_for
from ..errors import createPoptorchError

__all__ = ["DataRing", "ElementStructure", "Message", "MessageKind", "receive", "send"]


class MessageKind(IntEnum):
    """The program's commands, and the loading process's reports of the content of the next slot."""

    RELEASE = 0
    CONTINUE = 1
    RESTART = 2
    STOP = 3

    ELEMENT = 4
    SHORT_ELEMENT = 5
    END_OF_EPOCH = 6


class Message(NamedTuple):
    """`generation` counts the restarts up to this message; `epoch` is the one that a restart begins."""

    kind: int
    generation: int = 0
    epoch: int = 0


_FORMAT = struct.Struct("<qqq")


def send(pipe: Connection, message: Message) -> None:
    """Write a message; raises BrokenPipeError if the other end is closed."""
    # A connection's own `send` writes head and body apart, and an interruption between the two would garble all that
    # follows. So few bytes are written as a whole or not at all.
    os.write(pipe.fileno(), _FORMAT.pack(*message))


def receive(pipe: Connection) -> Optional[Message]:
    """Read a message from a pipe that does not block; None if there is none, EOFError if the other end is closed."""
    try:
        data = os.read(pipe.fileno(), _FORMAT.size)
    except BlockingIOError:
        return None
    if not data:
        raise EOFError
    return Message(*_FORMAT.unpack(data))


class ElementStructure:
    """The way in which elements hold their tensors: one alone, a dictionary, a registered type, or a sequence.

    The first element decides: the keys of a dictionary, and everything but the tensors in a registered type, are
    taken from it. Sequences of any type become lists.
    """

    def __init__(self, first_element: Structure) -> None:
        self._is_tensor = isinstance(first_element, torch.Tensor)
        is_adapted = not self._is_tensor and adapter_for(first_element) is not None
        # Only a registered type is kept with its tensors: its parser rebuilds an element from another one.
        self._example = first_element if is_adapted else None
        self._keys = list(first_element) if isinstance(first_element, Mapping) and not is_adapted else None

    def take_tensors(self, element: Any) -> List[torch.Tensor]:
        """Take the tensors out of an element; AssertionError if it holds anything else."""
        if self._is_tensor:
            values: Iterable[Any] = [element]
        elif self._example is not None:
            values = adapter_for(element).yieldTensors(element)  # type: ignore[union-attr]
        else:
            values = element if self._keys is None else [element[key] for key in self._keys]
        tensors = list(values)
        for index, tensor in enumerate(tensors):
            if not isinstance(tensor, torch.Tensor):
                raise AssertionError(
                    f"Tensor at index {index} is not a torch tensor ({type(tensor)}). AsynchronousDataAccessor expects"
                    " data to be organised as a flat 1D container of tensors."
                )
        return tensors

    def make_element(self, tensors: List[torch.Tensor]) -> Any:
        """Make an element of `tensors`; a list takes over the one given."""
        if self._is_tensor:
            return tensors[0]
        if self._example is not None:
            return adapter_for(self._example).reconstruct(self._example, iter(tensors))  # type: ignore[union-attr]
        return tensors if self._keys is None else dict(zip(self._keys, tensors))


class DataRing:
    """`num_slots` slots in shared memory with the shapes and types of the `tensors` of a first element.

    With `num_rows` the tensors of a slot have that many rows instead, and batches of any size fill them one after the
    other. ``indices_mem`` tells for each slot whether it is in use: filled and not released yet. ``num_rows_mem``
    holds how many rows of each tensor in a slot count. ``is_stopping_mem`` tells whether the program wants the
    loading process to end, and ``was_interrupted_mem`` whether that process was interrupted before.
    """

    def __init__(self, tensors: Sequence[torch.Tensor], num_slots: int, num_rows: Optional[int] = None) -> None:
        plain = [tensor.detach() for tensor in tensors]
        if num_rows is not None:
            plain = [tensor.new_empty((num_rows, *tensor.shape[1:])) for tensor in plain]
        self.slots: List[List[torch.Tensor]] = [
            [torch.empty_like(tensor, device="cpu").share_memory_() for tensor in plain] for _ in range(num_slots)
        ]
        self.indices_mem = torch.zeros(num_slots, dtype=torch.bool).share_memory_()
        self.num_rows_mem = torch.zeros((num_slots, len(tensors)), dtype=torch.int64).share_memory_()
        # These two are no messages because a signal's handler, or a process that hangs, could not read any.
        self.is_stopping_mem, self.was_interrupted_mem = torch.zeros(2, 1, dtype=torch.bool).share_memory_()

    def write(self, slot: int, tensors: Sequence[torch.Tensor]) -> bool:
        """Copy an element into a slot; tell whether it has fewer rows. `poptorch.Error` if the tensors do not fit."""
        targets = self.slots[slot]
        if len(tensors) != len(targets):
            raise createPoptorchError(f"The first element has {len(targets)} tensors, a later one has {len(tensors)}.")
        is_short = any(target.shape != tensor.shape for target, tensor in zip(targets, tensors))
        for index, (target, tensor) in enumerate(zip(targets, tensors)):
            num_rows = tensor.shape[0] if tensor.dim() else 0
            if target.shape != tensor.shape:
                _check_fits(index, target, tensor)
                target = target.narrow(0, 0, num_rows)
            target.copy_(tensor.detach())
            if is_short:
                self.num_rows_mem[slot, index] = num_rows
        return is_short

    def write_rows(self, slot: int, tensors: Sequence[torch.Tensor], *, source: int, target: int, count: int) -> None:
        """Copy `count` rows of each tensor from row `source` on to row `target` of the slot."""
        for index, (memory, tensor) in enumerate(zip(self.slots[slot], tensors)):
            if memory.shape[1:] != tensor.shape[1:]:
                _check_fits(index, memory, tensor, rebatched=True)
            memory.narrow(0, target, count).copy_(tensor.detach().narrow(0, source, count))

    def read(self, slot: int, *, is_short: bool) -> List[torch.Tensor]:
        """Return the tensors of a slot, in its memory; of a short one only the rows that count."""
        if not is_short:
            return [tensor.detach() for tensor in self.slots[slot]]
        return [
            tensor.narrow(0, 0, num_rows) if tensor.dim() else tensor.detach()
            for tensor, num_rows in zip(self.slots[slot], self.num_rows_mem[slot].tolist())
        ]


def _check_fits(index: int, target: torch.Tensor, tensor: torch.Tensor, *, rebatched: bool = False) -> None:
    """Raise an error unless the tensor differs from its slot by missing rows only."""
    if target.dim() and tensor.dim() == target.dim() and target.shape[1:] == tensor.shape[1:]:
        if rebatched or tensor.shape[0] < target.shape[0]:
            return
    raise createPoptorchError(
        f"The tensor at index {index} has the shape {tuple(tensor.shape)}, that of the first element had"
        f" {tuple(target.shape)}. AsynchronousDataAccessor expects all elements to have the same shapes."
    )
