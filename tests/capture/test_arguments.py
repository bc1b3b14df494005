"""Arguments of operators are gone through in one order, whatever lists they lie in."""

from __future__ import annotations

import torch

from porting.capture.arguments import device_tensors, list_leaves, map_leaves


def test_leaves_are_what_is_mapped_in_the_same_order():
    value = ((1, [2, None], torch.float32), {"dim": [3], "other": (4,)})
    seen = []

    map_leaves(seen.append, value)

    assert seen == list(list_leaves(value)) == [1, 2, None, torch.float32, 3, 4]


def test_the_form_stays():
    value = ([1, (2,)], {"a": [3]})

    assert map_leaves(lambda leaf: leaf + 1, value) == ([2, (3,)], {"a": [4]})


def test_sizes_are_leaves():
    size = torch.Size([1, 2])

    assert list(list_leaves([size])) == [size]


def test_host_tensors_are_no_device_tensors():
    assert device_tensors([torch.ones(1), 2]) == []
