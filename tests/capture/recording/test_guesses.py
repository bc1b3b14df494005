"""A capture whose refusals are collected goes on with guesses, and tells all faults at their lines."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from porting.capture import capture_step
from porting.diagnostics import CaptureError, collected_refusals

X, Y = torch.rand(8, 8), torch.randint(4, (8,))


class Rounded(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, gradient):
        return gradient


def function(forward, **attributes):
    return type("Made", (nn.Module,), {"forward": forward, **attributes})()


def faults(forward, *args, **options):
    """Return the code and the line, counted from that of `def`, of each fault, and the graph."""
    first = forward.__code__.co_firstlineno
    with collected_refusals() as found:
        graph = capture_step(function(forward), args, mode="inference", **options)
    return [(error.code, error.finding.place.line - first) for error in found], graph


def test_all_faults_are_told_with_their_lines():
    def forward(self, x, y):
        scale = x.max().item()
        if x.mean() > 0:
            x = x * scale
        moved = x.cpu()
        rows = torch.nonzero(moved)
        kinds = torch.unique(y)
        mixed = x + torch.zeros(8, 8, device="cpu")
        waves = torch.fft.rfft(mixed)
        return x, rows, kinds, waves

    found, graph = faults(forward, X, Y)

    assert found == [("C001", 1), ("C001", 2), ("C004", 4), ("C002", 5), ("C002", 6), ("C003", 7), ("C012", 8)]
    assert len(graph.outputs) == 4


@pytest.mark.parametrize(
    "read",
    [
        lambda x: x.sum().item(),
        lambda x: float(x.sum()),
        lambda x: int(x.sum()),
        lambda x: bool(x.sum()),
        lambda x: x.numpy(),
        lambda x: x.tolist(),
        lambda x: torch.equal(x, x),
        lambda x: torch.allclose(x, x),
        lambda x: 1.0 in x,
        lambda x: f"{x.sum():.3f}",
        lambda x: list(range(x.sum())),
        lambda x: x.data_ptr(),
        lambda x: torch.tensor([x.sum(), 1.0], device=x.device),
    ],
)
def test_each_read_has_an_example(read):
    def forward(self, x):
        read(x)
        return x * 2

    with collected_refusals() as found:
        graph = capture_step(
            function(forward),
            [X.int() if "range" in str(read.__code__.co_names) else X],
            mode="inference",
            prints="unavailable",
        )

    assert [error.code for error in found] == ["C001"]
    assert graph.operators[-1].operator == "aten.mul.Tensor"


def test_a_loop_on_a_value_ends():
    def forward(self, x):
        while x.sum() > 1:
            x = x / 2
        while x.sum().item() < 7:
            x = x * 2
        return x

    found, _graph = faults(forward, X)

    assert set(found) == {("C001", 1), ("C001", 3)}


def test_a_loop_that_no_example_ends_is_given_up():
    def forward(self, x):
        while x.sum().item() != 5:
            x = x / 2
        return x

    ends = []
    with collected_refusals():
        graph = capture_step(function(forward), [X], mode="inference", failures=ends)

    assert [error.code for error in ends] == ["C001"]
    assert graph.operators


def test_the_other_way_of_a_branch_is_taken_with_other_examples():
    def forward(self, x):
        return torch.relu(x) if x.sum() > 0 else torch.sigmoid(x)

    names = [faults(forward, X, starts_false=starts)[1].operators[-1].operator for starts in (False, True)]

    assert names == ["aten.relu.default", "aten.sigmoid.default"]


def test_what_was_moved_to_the_host_is_read_without_another_word():
    def forward(self, x):
        values = x.detach().cpu().numpy()
        return x * float(values.max())

    assert faults(forward, X)[0] == [("C004", 1)]


def test_tensors_for_another_accelerator_stay_on_the_device():
    kept = torch.ones(8)

    def forward(self, x):
        made = torch.zeros(8, device="cuda")
        return x + made + kept.cuda() + torch.ones(8, device=x.device).cuda(0)

    found, graph = faults(forward, X)

    assert found == [("C004", 1), ("C004", 2), ("C004", 2)]
    assert graph.outputs[0].shape == (8, 8)


def test_a_mask_selects_all_as_an_example():
    def forward(self, x):
        return x[x > 0.5]

    found, graph = faults(forward, X)

    assert found == [("C002", 1)]
    assert graph.outputs[0].shape == (64,)


def test_what_follows_a_complex_tensor_is_no_fault_of_its_own():
    def forward(self, x):
        waves = torch.fft.rfft(x)
        return (waves * 2).abs()

    assert faults(forward, X)[0] == [("C012", 1)]


def test_a_custom_function_goes_on_with_what_its_forward_does():
    def forward(self, x):
        return Rounded.apply(self.layer(x)).sum()

    model = function(forward)
    model.layer = nn.Linear(8, 4)
    with collected_refusals() as found:
        graph = capture_step(model, [X, torch.zeros(())], loss=F.l1_loss)

    assert [error.code for error in found] == ["C005"]
    assert "aten.round.default" in [op.operator for op in graph.operators]


def test_autograd_in_forward_goes_on():
    def forward(self, x):
        (gradient,) = torch.autograd.grad(x.sum(), [x])
        return gradient

    found, graph = faults(forward, X)

    assert (found, graph.outputs[0].shape) == ([("C007", 1)], (8, 8))


def test_a_wrong_shape_is_the_users_own_error():
    def forward(self, x):
        x.sum().item()
        return x @ torch.ones(3, 3, device=x.device)

    ends = []
    with collected_refusals() as found:
        graph = capture_step(function(forward), [X], mode="inference", failures=ends)

    assert [error.code for error in found] == ["C001"]
    assert "cannot be multiplied" in str(ends[0])
    assert [op.operator for op in graph.operators][0] == "aten.sum.default"


def test_without_collection_the_first_fault_ends_the_capture():
    def forward(self, x):
        return x * x.sum().item()

    with pytest.raises(CaptureError, match="C001"):
        capture_step(function(forward), [X], mode="inference")


def test_a_fault_names_its_module():
    class Inner(nn.Module):
        def forward(self, x):
            return x * x.sum().item()

    with collected_refusals() as found:
        capture_step(nn.Sequential(Inner()), [X], mode="inference")

    assert found[0].finding.notes == ("the module is `0` (Inner)",)


def test_reassigned_buffers_are_told_together():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("one", torch.zeros(()))
            self.register_buffer("two", torch.zeros(()))

        def forward(self, x):
            self.one = self.one + 1
            self.two = self.two + 1
            return x * self.two

    model = Counting()
    with collected_refusals() as found:
        capture_step(model, [X], mode="inference")

    assert [error.code for error in found] == ["C006", "C006"]
    assert float(model.two) == 0.0


def test_several_losses_leave_a_graph_without_a_loss():
    def forward(self, x):
        return F.mse_loss(x, x * 2), F.l1_loss(x, x * 2)

    with collected_refusals() as found:
        graph = capture_step(function(forward), [X])

    assert [error.code for error in found] == ["L005"]
    assert not graph.has_loss
