"""What a run has shown of a program is joined with what the walk knows of it."""

from __future__ import annotations

import ast

from porting.convert.program import read_program
from porting.convert.sites import Role, Site
from tests.convert.conversions import LOOP


def test_a_backward_pass_that_a_run_has_shown_is_that_of_the_loss_and_not_what_scales_it(tmp_path):
    text = LOOP.replace("    loss.backward()", "    scaler.scale(loss).backward()").replace(
        "    optimizer.step()", "    scaler.step(optimizer)\n    scaler.update()"
    )
    text = text.replace("optimizer =", "scaler = torch.amp.GradScaler('cpu')\noptimizer =")
    (tmp_path / "train.py").write_text(text)
    program = read_program(str(tmp_path), str(tmp_path / "train.py"))
    lines = {word: number for number, line in enumerate(text.split("\n"), 1) for word in line.split() if "(" in word}
    path = str(tmp_path / "train.py")
    shown = [(Role.BACKWARD, "scaler.scale(loss).backward()"), (Role.STEP, "scaler.step(optimizer)")]

    program.add_sites(Site(role, path, lines[word], 4) for role, word in shown)

    assert {ast.unparse(one.call) for one in program.list_sites(Role.BACKWARD)} == {"scaler.scale(loss).backward()"}
    assert not program.list_sites(Role.STEP)
