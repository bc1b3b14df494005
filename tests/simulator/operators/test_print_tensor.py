"""`ipu_print_tensor` prints when the device runs, each time, and changes nothing."""

from __future__ import annotations

import pytest
import torch
from torch import nn


class Printing(nn.Module):
    """A linear layer whose output is printed, and its sum as a loss."""

    def __init__(self, poptorch, *args, **kwargs):
        super().__init__()
        self.linear = nn.Linear(2, 1, bias=False)
        nn.init.ones_(self.linear.weight)
        self.print = lambda x: poptorch.ipu_print_tensor(x, *args, **kwargs)
        self.loss = lambda x: poptorch.identity_loss(x, "sum")

    def forward(self, x):
        y = self.print(self.linear(x))
        return y, self.loss(y * 3)


@pytest.fixture
def printed(capsys):
    """Give a function that returns what went to stderr since it was last asked, without the progress bar."""

    def printed():
        lines = capsys.readouterr().err.splitlines()
        return [line for line in lines if "Graph compilation" not in line and line.strip()]

    return printed


def test_each_micro_batch_is_printed(poptorch, printed):
    model = poptorch.inferenceModel(Printing(poptorch, "y"), poptorch.Options().deviceIterations(2))
    x = torch.tensor([[1.0, 1.0], [2.0, 3.0]])
    model.compile(x)
    at_compilation = printed()

    result, _ = model(x)

    assert at_compilation == []
    assert printed() == ["y: (", " (2.000)", ")", "y: (", " (5.000)", ")"]
    assert torch.equal(result, torch.tensor([[2.0], [5.0]]))


def test_nothing_is_printed_on_the_cpu(poptorch, printed):
    x = torch.ones(3)

    result = poptorch.ipu_print_tensor(x, "x")

    assert torch.equal(result, x)
    assert printed() == []


def test_training_prints_the_gradient(poptorch, printed):
    model = poptorch.trainingModel(Printing(poptorch, "y"))

    model(torch.ones(1, 2))

    assert printed() == ["y: (", " (2.000)", ")", "y_gradient: (", " (3.000)", ")"]


def test_the_gradient_need_not_be_printed(poptorch, printed):
    model = poptorch.trainingModel(Printing(poptorch, "y", print_gradient=False))

    model(torch.ones(1, 2))

    assert printed() == ["y: (", " (2.000)", ")"]


def test_printing_does_not_change_training(poptorch):
    model, silent = Printing(poptorch, "y"), Printing(poptorch, "y")
    silent.print = lambda x: x

    for one in (model, silent):
        poptorch.trainingModel(one, optimizer=poptorch.optim.SGD(one.parameters(), lr=0.1))(torch.ones(1, 2))

    assert torch.equal(model.linear.weight, silent.linear.weight)


def test_the_text_follows_the_arguments(poptorch, printed):
    model = Printing(poptorch, "t", True, 1000, 3, 80, 8, "fixed", ";", "[", "]")

    poptorch.inferenceModel(model)(torch.tensor([[0.5, 1.0]]))

    assert printed() == ["t: [", " [1.5000000]", "]"]


@pytest.mark.parametrize("float_format", ["auto", "fixed", "scientific", "none"])
def test_all_formats_are_known(poptorch, float_format):
    assert poptorch.ipu_print_tensor(torch.ones(1), float_format=float_format).item() == 1


def test_other_formats_are_a_key_error(poptorch):
    with pytest.raises(KeyError):
        poptorch.ipu_print_tensor(torch.ones(1), float_format="wibble")


def test_only_tensors_can_be_printed(poptorch):
    with pytest.raises(poptorch.Error, match="ipu print tensor must take a torch.tensor argument"):
        poptorch.ipu_print_tensor([torch.ones(1)])


def test_printing_in_a_loop_happens_in_each_round(poptorch, printed):
    class Loop(nn.Module):
        def forward(self, x):
            return poptorch.for_loop(2, lambda v: poptorch.ipu_print_tensor(v + 1, "v"), [x])

    poptorch.inferenceModel(Loop())(torch.zeros(1))

    assert printed() == ["v: (1.000)", "v: (2.000)"]
