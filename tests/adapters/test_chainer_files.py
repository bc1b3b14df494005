"""Files of Chainer are read without unpickling; a damaged one is an error that names it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from porting import PortingError, load_chainer_npz
from porting.models import mlp
from tests.adapters import chainer_oracle as chainer


@pytest.fixture
def random():
    return np.random.default_rng(0)


@pytest.fixture
def file(tmp_path):
    return tmp_path / "model.npz"


def float32(random, *shape):
    return random.standard_normal(shape).astype(np.float32)


def mushroom_arrays(random, prefix=""):
    sizes = (22, 44, 44, 1)
    arrays = {}
    for number, (before, after) in enumerate(zip(sizes, sizes[1:]), start=1):
        arrays[f"{prefix}l{number}/W"] = float32(random, after, before)
        arrays[f"{prefix}l{number}/b"] = float32(random, after)
    return arrays


MUSHROOM_NAMES = {"l1": "0", "l2": "2", "l3": "4"}


def test_a_missing_file_is_said_to_be_missing(tmp_path):
    with pytest.raises(PortingError, match="F002"):
        load_chainer_npz(tmp_path / "none.npz", nn.Linear(1, 1))


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"no archive at all"])
def test_what_is_no_archive_is_damaged(file, content):
    file.write_bytes(content)

    with pytest.raises(PortingError, match="F001"):
        load_chainer_npz(file, nn.Linear(1, 1))


def test_objects_are_never_unpickled(file):
    chainer.save_npz(file, {"l1/W": np.array([{"a": 1}, None], dtype=object)})

    with pytest.raises(PortingError, match="F001.*"):
        load_chainer_npz(file, nn.ModuleDict({"l1": nn.Linear(1, 1)}))


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_a_damaged_file_gives_an_error_or_the_right_weights(tmp_path_factory, data):
    file = tmp_path_factory.getbasetemp() / "fuzzed.npz"
    arrays = mushroom_arrays(np.random.default_rng(0))
    chainer.save_npz(file, arrays)
    content = bytearray(file.read_bytes())
    position = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        content = content[:position]
    else:
        content[position] ^= data.draw(st.integers(1, 255))
    file.write_bytes(bytes(content))
    model = mlp.build("mushrooms")

    try:
        load_chainer_npz(file, model, names=MUSHROOM_NAMES)
        code = ""
    except PortingError as error:
        code = error.finding.code

    is_loaded = np.array_equal(model[0].weight.detach().numpy(), arrays["l1/W"])
    assert code in ("F001", "K002") if not is_loaded else code == ""
