"""The memory that a loading process shares with its program."""

from __future__ import annotations

import pytest
import torch

from porting.simulator._loading.data_ring import DataRing, ElementStructure
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

    tensors = structure.tensors_of({"a": torch.tensor(4), "b": torch.tensor(3)})

    assert [int(tensor) for tensor in tensors] == [3, 4]
    assert list(structure.element_of(tensors)) == ["b", "a"]
