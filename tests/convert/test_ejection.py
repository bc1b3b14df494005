"""An ejection is the way back: what a conversion has added goes, and every other byte is as it was."""

from __future__ import annotations

import pytest

from porting.convert.ejection import plan_ejection
from tests.convert.conversions import LOOP, convert_files
from tests.convert.training_programs import HEAD, write_loop

STEP = ("optimizer.zero_grad()", "loss.backward()", "optimizer.step()  # each turn")
PARSED = "import argparse\n\nparser = argparse.ArgumentParser()\nargs = parser.parse_args()\n\n" + LOOP
CALLED = (
    HEAD
    + """

def train(net):  # the loop
    for step in range(3):
        x, y = torch.randn(8, 4), torch.zeros(8).long()
        optimizer.zero_grad()
        criterion(net(x), y).backward()
        optimizer.step()


train(model)
"""
)
PROGRAMS = {
    "a script": LOOP,
    "a script with a docstring": f'"""Train."""\n\nfrom __future__ import annotations\n\n{LOOP}',
    "a command line": PARSED,
    "Windows line ends": LOOP.replace("\n", "\r\n"),
    "a function": CALLED,
    "a named output": write_loop("output = model(x)", "loss = criterion(output, y)", *STEP),
}


def eject(folder, text, style):
    """Convert a script, and take the port out of what came of it."""
    made = convert_files(folder, {"train.py": text}, style=style)
    assert made.is_whole
    (folder / "train.py").write_bytes(made.changed["train.py"])
    return plan_ejection(str(folder), "train.py", (), ("--device", "sim"))


@pytest.mark.parametrize("style", ["minimal", "idiomatic"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_an_ejected_conversion_is_the_program_byte_for_byte(tmp_path, name, style):
    made = eject(tmp_path, PROGRAMS[name], style)
    assert made.changed["train.py"].decode() == PROGRAMS[name]
    assert not made.left


def test_a_project_without_a_port_stays_as_it_is(tmp_path):
    (tmp_path / "train.py").write_text(LOOP)
    assert plan_ejection(str(tmp_path), "train.py", (), ()).changed == {}


def test_nothing_is_noted_of_a_project_without_a_port(tmp_path):
    (tmp_path / "train.py").write_text(LOOP)
    made = plan_ejection(str(tmp_path), "train.py", (), ())
    assert (made.changed, made.left, made.notes) == ({}, [], [])


def test_what_has_no_plain_branch_is_left_with_its_line(tmp_path):
    (tmp_path / "train.py").write_text("from porting import check\n\ncheck(None)\n")
    (left,) = plan_ejection(str(tmp_path), "train.py", (), ()).left
    assert left.line == 3
    assert left.reason.startswith("`check` is of the port's package")
