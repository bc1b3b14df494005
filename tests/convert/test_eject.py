"""What a conversion has added is taken out again, byte for byte, whatever the program looked like."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from porting.convert.eject import eject_text, list_names_left
from tests.convert.conversions import LOOP, convert_text
from tests.convert.sources.programs import ACCELERATE, IGNITE, LIGHTNING, TRANSFORMERS

_MODELS = ["nn.Linear(4, 2)", "nn.Sequential(\n    nn.Linear(4, 8),  # wide\n    nn.Linear(8, 2),\n)"]
_LINES = ["", "# a comment", "import os", "import argparse, sys", '"""A text."""', "print('begun')"]


def convert_and_eject(text, style="minimal"):
    with tempfile.TemporaryDirectory() as folder:
        converted, _made = convert_text(Path(folder), text, style=style)
    assert converted != text
    return eject_text(converted.encode()).decode()


@pytest.mark.parametrize("style", ["minimal", "idiomatic"])
@pytest.mark.parametrize("text", [LOOP, ACCELERATE, IGNITE, LIGHTNING, TRANSFORMERS])
def test_a_port_is_taken_out_byte_for_byte(text, style):
    assert convert_and_eject(text, style) == text


@pytest.mark.slow
@given(
    head=st.lists(st.sampled_from(_LINES), max_size=4),
    model=st.sampled_from(_MODELS),
    between=st.lists(st.sampled_from(_LINES), max_size=3),
    style=st.sampled_from(["minimal", "idiomatic"]),
)
def test_any_program_that_was_only_added_to_is_what_it_was(head, model, between, style):
    text = LOOP.replace("nn.Linear(4, 2)", model).replace("optimizer =", "\n".join([*between, "optimizer ="]))
    text = "".join(f"{line}\n" for line in head) + text

    assert convert_and_eject(text, style) == text


def test_settings_in_several_lines_keep_their_comments():
    text = LIGHTNING.replace("max_epochs=1", "\n    max_epochs=1,  # a short one\n    devices=2,\n")
    assert convert_and_eject(text) == text


@pytest.mark.parametrize("given_strategy", ['"auto"', '"ddp"', "choose() or None"])
def test_a_strategy_of_the_program_stays_its_own(given_strategy):
    text = LIGHTNING.replace("max_epochs=1", f"strategy={given_strategy}, max_epochs=1")
    assert convert_and_eject(text) == text


def test_what_no_plain_branch_stands_beside_is_named():
    assert list_names_left(b"from porting import to_ipu\nmodel = to_ipu(model)\n") == ["to_ipu"]
