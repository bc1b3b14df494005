"""Planes are cut out of a tensor, and labels of another shape are refused instead of trained on in part."""

from __future__ import annotations

import pytest
import torch

from porting.models.uresnet2d import as_planes, chunk_planes


def test_labels_become_a_tensor_of_classes_for_each_plane():
    labels = torch.arange(2 * 3 * 4 * 5, dtype=torch.int32).reshape(2, 3, 4, 5)

    planes = chunk_planes(labels)

    assert [plane.dtype for plane in planes] == [torch.int64] * 3
    assert all(torch.equal(plane, labels[:, number].long()) for number, plane in enumerate(planes))


@pytest.mark.parametrize("shape", [(2, 4, 5), (2, 1, 4, 5), (2, 6, 4, 5), (2, 3, 1, 4, 5)])
def test_labels_without_three_planes_are_refused(shape):
    with pytest.raises(ValueError, match="are not labels_BPHW"):
        chunk_planes(torch.zeros(shape, dtype=torch.int64))


def test_what_is_a_tensor_for_each_plane_stays_it():
    planes = [torch.zeros(2, 4, 5)] * 3

    assert all(one is other for one, other in zip(as_planes(planes), planes))
