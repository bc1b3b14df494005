"""What stands in for torch's functions of nested values does what they do, for the containers that arguments have."""

from __future__ import annotations

from collections import OrderedDict, namedtuple

import pytest
import torch.utils._pytree as torchs

from porting.torch_insides import trees

Pair = namedtuple("Pair", ["one", "other"])
TREES = [1, [], [1, (2, [3])], {"a": 1, "b": [2, None]}, Pair(1, (2,)), OrderedDict(b=1, a=2), ((), {}, [[1]])]


@pytest.mark.parametrize("tree", TREES)
def test_leaves_are_torchs(tree):
    assert trees.list_leaves_plainly(tree) == torchs.tree_leaves(tree)


@pytest.mark.parametrize("tree", TREES)
def test_what_is_mapped_is_torchs(tree):
    assert trees.map_plainly(repr, tree) == torchs.tree_map(repr, tree)
