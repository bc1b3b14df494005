"""A preflight's capture finds the faults of both ways of a branch, and says what ended it."""

from __future__ import annotations

import torch
from torch import nn

from porting.check.step_capture import capture_with_faults, wrap_model
from porting.options import PortOptions

X, Y = torch.rand(8, 4), torch.randint(4, (8,))


def capture(forward, loss=None, mode="training"):
    class Made(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 4)

    Made.forward = forward
    model = Made()
    wrapped = wrap_model(model, loss or nn.CrossEntropyLoss(), PortOptions())
    return capture_with_faults(model, wrapped, ((X, Y), {}), mode=mode)


def test_a_clean_step_has_a_whole_graph():
    step = capture(lambda self, x: self.layer(x))

    assert (step.faults, step.failure, step.graph.has_loss) == ((), None, True)


def test_both_ways_of_a_branch_are_looked_at():
    def forward(self, x):
        x = self.layer(x)
        if x.sum() > 0:
            return x.cpu()
        return x * x.max().item()

    step = capture(forward)

    first = forward.__code__.co_firstlineno
    assert [(fault.code, fault.place.line - first) for fault in step.faults] == [("C001", 2), ("C004", 3), ("C001", 4)]
    assert step.other_graph is not None


def test_a_fault_in_a_loop_is_told_once():
    def forward(self, x):
        for _ in range(4):
            str(x)
        return self.layer(x)

    assert [fault.code for fault in capture(forward).faults] == ["C010"]


def test_an_error_of_the_users_is_a_fault_with_its_line():
    def forward(self, x):
        return self.layer(x[:, :3])

    (fault,) = capture(forward).faults

    assert (fault.code, fault.place.line) == ("C040", forward.__code__.co_firstlineno + 1)
    assert "mat1 and mat2" in fault.message


def test_what_fails_after_a_fault_is_no_fault_of_its_own():
    def forward(self, x):
        kept = x[: int(x.sum().item()) + 1]
        return self.layer(kept)

    step = capture(forward)

    assert [fault.code for fault in step.faults] == ["C001"]
    assert step.failure is not None


def test_modules_are_in_their_modes_again():
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)).eval()

    capture_with_faults(model, wrap_model(model, nn.CrossEntropyLoss(), PortOptions()), ((X, Y), {}))

    assert not any(module.training for module in model.modules())
