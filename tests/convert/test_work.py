"""A conversion is tried in the styles that suit what was seen, and proven in the whole project around it."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from porting.convert import work
from porting.convert.columns import Column, Outcome, Proof
from porting.convert.dry_run import DryRun
from tests.convert.conversions import LOOP


@pytest.fixture
def convert(tmp_path, monkeypatch):
    """Convert the program of a folder of a project; nothing is run, and what would be proven is handed over."""
    (tmp_path / ".git").mkdir()
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "shapes.py").write_text("SIZE = 4\n")
    folder = tmp_path / "programs" / "first"
    folder.mkdir(parents=True)
    (folder / "train.py").write_text('import sys\nsys.path.append("../../")\nfrom lib.shapes import SIZE\n' + LOOP)

    def convert(look, *, num_backward=1, num_passed=lambda _text: 0):
        def prove(program, **_settings):
            look(program)
            passed = num_passed((program.converted / program.script).read_text())
            reason = f"it failed in {program.converted}/programs/first/train.py"
            outcomes = [Outcome.PASSED] * passed + [Outcome.FAILED] * (3 - passed)
            return Proof(tuple(Column("numeric", outcome, reason) for outcome in outcomes))

        monkeypatch.setattr(work, "prove_conversion", prove)
        monkeypatch.setattr(work, "run_program", lambda *_, **__: DryRun(num_backward={1: (num_backward,)}))
        settings = {
            "style": None,
            "instances": False,
            "plan": False,
            "format": "text",
            "diff": False,
            "write": False,
            "out": None,
        }
        arguments = argparse.Namespace(path=str(folder), command="train.py", steps=2, seed=0, **settings)
        return work.convert_project(arguments).text

    return convert


def test_the_project_around_a_folder_is_there_in_the_proof(convert):
    seen = []

    def look(program):
        trees = (program.original, program.converted)
        seen.append(([(tree / "lib" / "shapes.py").read_text() for tree in trees], program.working))
        texts = [(tree / program.script).read_text() for tree in trees]
        assert ["to_ipu" in text for text in texts] == [False, True]

    text = convert(look)

    assert seen == [(["SIZE = 4\n"] * 2, Path("programs/first"))] * 2
    assert "it failed in CONVERTED/train.py" in text
    assert "note: it imports `shapes.py` from beside the folder" in text


def test_gradients_that_are_added_up_are_no_step_of_a_device(convert):
    programs = []

    text = convert(programs.append, num_backward=2)

    assert len(programs) == 1
    assert "the idiomatic style was left: gradients of several backward passes make one step" in text


@pytest.mark.parametrize(
    ("idiomatic", "minimal", "style"), [(3, 3, "idiomatic"), (2, 2, "idiomatic"), (2, 3, "minimal"), (1, 2, "minimal")]
)
def test_the_style_of_which_most_is_proven_is_taken(convert, idiomatic, minimal, style):
    text = convert(lambda _program: None, num_passed=lambda new: minimal if 'loop="host"' in new else idiomatic)

    assert text.startswith(f"train.py, style {style}: ")
