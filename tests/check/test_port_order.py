"""What a port needs stands in the order in which ports are made, with a recipe that exists."""

from __future__ import annotations

import shlex

import pytest

from porting.check.port_order import list_needs
from porting.cli.main import main
from porting.diagnostics import CODES, Finding, Place

EVERY_KIND = [Finding(code) for code in CODES]


def test_each_kind_is_listed_once_with_all_its_places():
    findings = [Finding("L002", place=Place("a.py", line)) for line in (3, 9)]

    (need,) = list_needs(findings)

    assert [place.line for place in need.places] == [3, 9]


def test_batches_come_before_the_loss_and_the_loss_before_the_training_step():
    codes = [need.code for need in list_needs([Finding(code) for code in ("O007", "L002", "B010", "B006", "O006")])]

    assert codes == ["B010", "L002", "O007", "O006", "B006"]


def test_what_to_do_is_the_help_or_else_the_message():
    told, untold = list_needs([Finding("L002", help="reduce it"), Finding("L003", "nothing flows")])

    assert (told.action, untold.action) == ("reduce it", "nothing flows")


@pytest.mark.parametrize("command", sorted({need.recipe for need in list_needs(EVERY_KIND)} - {""}))
def test_the_recipe_of_a_need_exists(command, capsys):
    assert main(shlex.split(command)[1:]) == 0
    assert capsys.readouterr().out.startswith("--- " if "--diff" in command else '"""')
