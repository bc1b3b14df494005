"""`ipu_print_tensor` prints when the device runs, each time, and changes nothing; and the text that it prints."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from porting.simulator._operators.print_tensor import FLOAT_FORMATS, PrintStyle, format_tensor


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


# the text: brackets, alignment, formats, long lines, summaries

SAMPLE = torch.tensor([[1.4962566, 1.7682219], [1.0884774, 1.1320305]])


def style(float_format="auto", **settings):
    return PrintStyle(float_format=FLOAT_FORMATS[float_format], **settings)


def test_fixed_point_numbers_have_the_digits_asked_for():
    text = format_tensor(SAMPLE, "title", style(digits=8, separator=" ", open_bracket="{", close_bracket="}"))

    assert text == "title: {\n {1.4962566 1.7682219}\n {1.0884774 1.1320305}\n}"


def test_long_rows_continue_on_indented_lines():
    settings = style("scientific", digits=8, separator=",", max_line_width=15, open_bracket="[", close_bracket="]")

    assert format_tensor(SAMPLE, "title", settings) == (
        "title: [\n [1.4962566e+00,\n   1.7682219e+00]\n [1.0884774e+00,\n   1.1320305e+00]\n]"
    )


def test_the_separator_joins_elements():
    text = format_tensor(SAMPLE, "title", style("fixed", digits=8, separator=";"))

    assert text == "title: (\n (1.4962566;1.7682219)\n (1.0884774;1.1320305)\n)"


@pytest.mark.parametrize(
    ("values", "text"),
    [
        (torch.tensor([1.0, 2.5]), "(1.000, 2.500)"),
        (torch.tensor(2.5), "2.500"),
        (torch.tensor([3, -20]), "(  3, -20)"),
        (torch.tensor([True, False]), "(1, 0)"),
        (torch.tensor([12.5, -1.0]), "(12.50, -1.00)"),
        (torch.tensor([1.0, 1e6]), "(1.000e+00, 1.000e+06)"),
        (torch.tensor([1e-6]), "(1.000e-06)"),
        (torch.tensor([0.0, 0.0]), "(0.000, 0.000)"),
        (torch.tensor([math.nan, math.inf, 1.0]), "(  nan,   inf, 1.000)"),
        (torch.tensor([0.1]).half(), "(0.100)"),
        (torch.zeros(0), "()"),
    ],
)
def test_elements_are_of_one_width(values, text):
    assert format_tensor(values, "t", style()) == f"t: {text}"


def test_unformatted_numbers_are_as_short_as_they_can_be():
    assert format_tensor(torch.tensor([1.0, 2.25, 1e6]), "t", style("none")) == "t: (1, 2.25, 1e+06)"
    assert format_tensor(torch.tensor([1.0, 2.25]), "t", style("fixed", digits=0)) == "t: (1, 2.25)"


def test_three_dimensions_nest():
    assert (
        format_tensor(torch.arange(4).reshape(2, 1, 2), "t", style()) == "t: (\n (\n  (0, 1)\n )\n (\n  (2, 3)\n )\n)"
    )


def test_large_tensors_show_their_edges():
    text = format_tensor(torch.arange(40).reshape(2, 20), "t", style(summarise_threshold=10, edge_items=2))

    assert text == "t: (\n ( 0,  1, ..., 18, 19)\n (20, 21, ..., 38, 39)\n)"


def test_rows_are_left_out_too():
    text = format_tensor(torch.arange(10).reshape(10, 1), "t", style(summarise_threshold=9, edge_items=1))

    assert text == "t: (\n (0)\n ...\n (9)\n)"


def test_as_many_elements_as_the_threshold_are_all_shown():
    assert "..." not in format_tensor(torch.arange(10), "t", style(summarise_threshold=10, edge_items=1))
