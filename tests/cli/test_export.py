"""`porting export` writes a step and its dumps to files."""

from __future__ import annotations

import json

import pytest

from porting.cli.main import main

pytestmark = pytest.mark.usefixtures("target_folder")


def test_an_export_says_what_it_is(target_folder, capsys):
    status = main(["export", "exported_of_test.py:make", "--batch", "4", "--accumulation", "2", "-o", "model.step"])

    said = capsys.readouterr().out
    assert status == 0
    assert "training step of exported_of_test.py:make, batch 4 x 2 accumulation = 8 samples a call" in said


def test_a_file_that_cannot_be_written_is_a_finding(capsys):
    assert main(["export", "exported_of_test.py:make", "-o", "nowhere/model.step"]) == 2
    assert "error[E029]" in capsys.readouterr().err


@pytest.mark.parametrize("verb", [["export", "-o", "a.step"], ["trace"], ["compile"]])
def test_a_computation_order_that_there_is_not_is_refused(verb, capsys):
    assert main([*verb, "exported_of_test.py:make", "--computation-order", "foo"]) == 2
    assert "error[P002]: `computation_order` is 'foo'" in capsys.readouterr().err


def test_dumps_lie_beside_the_step_or_where_they_are_sent(target_folder, capsys):
    dumps = ["--dump-graph", "dot", "--dump-graph", "json=other.json", "--dump-graph", "text"]

    main(["export", "exported_of_test.py:make", "-o", "model.step", *dumps])

    assert (target_folder / "model.dot").read_text().startswith("digraph")
    assert json.loads((target_folder / "other.json").read_text())["batch"]["micro"] == 8
    assert (target_folder / "model.txt").exists()
