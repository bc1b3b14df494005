"""The text of a printed tensor: brackets, alignment, formats, long lines, summaries."""

from __future__ import annotations

import math

import pytest
import torch

from porting.simulator._operators.tensor_text import FLOAT_FORMATS, PrintStyle, tensor_text

SAMPLE = torch.tensor([[1.4962566, 1.7682219], [1.0884774, 1.1320305]])


def style(float_format="auto", **settings):
    return PrintStyle(float_format=FLOAT_FORMATS[float_format], **settings)


def test_fixed_point_numbers_have_the_digits_asked_for():
    text = tensor_text(SAMPLE, "title", style(digits=8, separator=" ", open_bracket="{", close_bracket="}"))

    assert text == "title: {\n {1.4962566 1.7682219}\n {1.0884774 1.1320305}\n}"


def test_long_rows_continue_on_indented_lines():
    settings = style("scientific", digits=8, separator=",", max_line_width=15, open_bracket="[", close_bracket="]")

    assert tensor_text(SAMPLE, "title", settings) == (
        "title: [\n [1.4962566e+00,\n   1.7682219e+00]\n [1.0884774e+00,\n   1.1320305e+00]\n]"
    )


def test_the_separator_joins_elements():
    text = tensor_text(SAMPLE, "title", style("fixed", digits=8, separator=";"))

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
    assert tensor_text(values, "t", style()) == f"t: {text}"


def test_unformatted_numbers_are_as_short_as_they_can_be():
    assert tensor_text(torch.tensor([1.0, 2.25, 1e6]), "t", style("none")) == "t: (1, 2.25, 1e+06)"
    assert tensor_text(torch.tensor([1.0, 2.25]), "t", style("fixed", digits=0)) == "t: (1, 2.25)"


def test_three_dimensions_nest():
    assert tensor_text(torch.arange(4).reshape(2, 1, 2), "t", style()) == "t: (\n (\n  (0, 1)\n )\n (\n  (2, 3)\n )\n)"


def test_large_tensors_show_their_edges():
    text = tensor_text(torch.arange(40).reshape(2, 20), "t", style(summarise_threshold=10, edge_items=2))

    assert text == "t: (\n ( 0,  1, ..., 18, 19)\n (20, 21, ..., 38, 39)\n)"


def test_rows_are_left_out_too():
    text = tensor_text(torch.arange(10).reshape(10, 1), "t", style(summarise_threshold=9, edge_items=1))

    assert text == "t: (\n (0)\n ...\n (9)\n)"


def test_as_many_elements_as_the_threshold_are_all_shown():
    assert "..." not in tensor_text(torch.arange(10), "t", style(summarise_threshold=10, edge_items=1))
