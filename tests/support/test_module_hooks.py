"""Every module's `forward` is followed, for as long as that is asked for, and no module shows a hook."""

from __future__ import annotations

import torch
from torch import nn

from porting.support.module_hooks import follow_modules


def test_each_forward_is_entered_and_left_until_it_is_closed():
    model = nn.Sequential(nn.Linear(2, 2))
    seen = []

    with follow_modules(
        lambda module, _args: seen.append(("enter", type(module).__name__)),
        lambda module, _args, _result: seen.append(("leave", type(module).__name__)),
    ):
        model(torch.ones(1, 2))
    model(torch.ones(1, 2))

    assert seen == [("enter", "Sequential"), ("enter", "Linear"), ("leave", "Linear"), ("leave", "Sequential")]
    assert not model._forward_hooks
    assert not model[0]._forward_pre_hooks
