"""Operators are seen as they are called, before autograd takes them apart."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch._dispatch.python import enable_python_dispatcher

from porting.capture.operator_mode import OperatorMode


class Listener(OperatorMode):
    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


def test_a_layer_is_one_operator():
    with enable_python_dispatcher(), Listener() as listener:
        F.linear(torch.ones(2, 3), torch.ones(4, 3))

    assert listener.seen[-1] == "aten.linear.default"
