"""`porting graph` shows the graph of a step and compares computation orders."""

from __future__ import annotations

import json

import pytest

from porting.cli.main import main

pytestmark = pytest.mark.usefixtures("target_folder")


@pytest.mark.parametrize("option", ["--as", "--format"])
def test_a_graph_is_shown_on_the_standard_output(capfd, option):
    main(["graph", "exported_of_test.py:make", option, "json"])

    assert json.loads(capfd.readouterr().out)["schema"] == "porting.graph/1"


def test_computation_orders_are_compared(exported_step, capsys):
    main(["graph", exported_step, "--orders", "none,chen,gttime,gtmem"])

    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == "order none chen gttime gtmem".split()


def test_the_comparison_of_computation_orders_is_told_as_data(exported_step, capsys):
    main(["graph", exported_step, "--orders", "none,chen", "--format", "json"])

    assert [cost["order"] for cost in json.loads(capsys.readouterr().out)] == ["none", "chen"]
