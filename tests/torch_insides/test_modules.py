"""Hooks and kinds of modules, as this package names them."""

from __future__ import annotations

import pytest
from torch import nn

from porting.torch_insides.modules import (
    BATCH_NORMS,
    CONVOLUTIONS,
    DROPOUTS,
    LOSSES,
    probe,
    read_backward_hooks,
    read_forward_hooks,
    read_forward_pre_hooks,
)


def test_this_torch_has_all_parts():
    assert probe() == ""


@pytest.mark.parametrize(
    ("kind", "layer"),
    [
        (BATCH_NORMS, nn.BatchNorm2d(1)),
        (CONVOLUTIONS, nn.ConvTranspose1d(1, 1, 1)),
        (DROPOUTS, nn.Dropout2d()),
        (LOSSES, nn.SmoothL1Loss()),
    ],
    ids=["norm", "convolution", "dropout", "loss"],
)
def test_layers_are_told_by_their_kind(kind, layer):
    assert isinstance(layer, kind)
    assert not isinstance(nn.Linear(1, 1), kind)


@pytest.mark.parametrize(
    ("read", "register"),
    [
        (read_forward_hooks, nn.Module.register_forward_hook),
        (read_forward_pre_hooks, nn.Module.register_forward_pre_hook),
        (read_backward_hooks, nn.Module.register_full_backward_hook),
    ],
    ids=["forward", "before forward", "backward"],
)
def test_hooks_are_read_as_they_were_registered(read, register):
    layer = nn.Linear(1, 1)

    def hook(*_arguments):
        return None

    handle = register(layer, hook)

    assert list(read(layer).values()) == [hook]
    handle.remove()
    assert not read(layer)
