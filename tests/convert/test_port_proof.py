"""A port in other words has the bits of the port before, and what differs, or was not run, is said."""

from __future__ import annotations

import pytest

from porting.convert.columns import ConvertedProgram, Outcome
from porting.convert.conversion import plan_conversion
from porting.convert.port_proof import prove_ports
from tests.convert.sources.test_poptorch import PROGRAM

_PROGRAM = PROGRAM.replace("Training.gradientAccumulation(4)", "randomSeed(3)")

pytestmark = pytest.mark.slow


def prove(folder, text, *, change=("", "")):
    for name in ("old", "new"):
        (folder / name).mkdir()
        (folder / name / "train.py").write_text(text)
    made = plan_conversion(str(folder / "old"), "train.py", style="minimal")
    (folder / "new" / "train.py").write_text(made.changed["train.py"].decode().replace(*change))
    program = ConvertedProgram(folder / "old", folder / "new", "train.py", (), ())
    return prove_ports(program, num_steps=4, seed=0, tell=lambda _text: None)


def test_a_port_in_other_words_has_the_bits_of_the_port_before(tmp_path):
    proof = prove(tmp_path, _PROGRAM)
    assert proof.is_proven, str(proof)
    assert proof.columns[2].numbers["compared bit by bit"]["loss"]


def test_another_learning_rate_fails_what_was_compared(tmp_path):
    proof = prove(tmp_path, _PROGRAM, change=("lr=0.1", "lr=0.2"))
    assert proof.columns[2].outcome is Outcome.FAILED


def test_a_port_that_did_not_run_before_proves_nothing(tmp_path):
    proof = prove(tmp_path, _PROGRAM.replace("model = Net()", "model = Net(unknown)"))
    assert [one.outcome for one in proof.columns] == [Outcome.NOT_RUN] * 3
