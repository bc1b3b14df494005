"""A choice by the device is written where the device is known, and means what it is written for."""

from __future__ import annotations

import pytest

from tests.convert.training_programs import LOADED, convert_instances

PARSED = "import argparse\nargs = argparse.ArgumentParser().parse_args()\n"


def test_what_comes_before_the_command_line_is_read_is_left(tmp_path):
    text = LOADED.replace("model =", f"{PARSED}model =")
    (left,) = convert_instances(tmp_path, text)[1].left

    assert left.line == 8
    assert left.reason.startswith("it comes before the command line is read")


@pytest.mark.parametrize(
    ("line", "choice"),
    [
        ("[open('a', 'w')][0].close()", "[({0})][0].close()"),
        ("print(open('a', 'w'))", "print({0})"),
        ("with open('a', 'w') as file: pass", "with {0} as file: pass"),
    ],
)
def test_a_choice_has_brackets_where_it_is_a_part_of_another_expression(tmp_path, line, choice):
    test = '"PORT_DEVICE" in os.environ and this_instance().index != 0'
    text, _made = convert_instances(tmp_path, LOADED.replace("seen =", f"{line}\nseen ="))
    assert choice.format(f"open(os.devnull, 'w') if {test} else open('a', 'w')") in text


def test_the_names_of_this_package_are_imported_together(tmp_path):
    text, _made = convert_instances(tmp_path, LOADED)
    assert text.count("except ImportError") == 1
