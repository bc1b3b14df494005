"""Sources are read together, and what is told of them is what is wanted, not allowed and not known."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from porting.check import preflight
from porting.check.coverage import Coverage
from porting.check.preflight import SourceLook, assemble_report, look_at_sources
from porting.check.report import Report
from porting.check.selection import Selection
from porting.diagnostics import Finding, Place, PortingError


def test_a_plain_program_is_no_port(program):
    look = look_at_sources([program])

    assert (look.coverage.num_files, look.is_ported) == (1, False)


def test_files_that_cannot_be_read_count_as_well(program):
    Path("broken.py").write_text("def f(:\n")
    Path("binary.py").write_bytes(b"\0\1\2")

    look = look_at_sources(["."])

    assert look.coverage.num_files == 3
    assert {"X002", "X004"} <= {finding.code for finding in look.findings}


def test_a_path_where_nothing_is_is_refused(program):
    with pytest.raises(PortingError, match="there is no program `trian.py`") as refused:
        look_at_sources([program, "trian.py"])

    assert refused.value.code == "E020"


def test_a_circle_of_links_ends(program):
    Path("sub").mkdir()
    os.symlink("..", "sub/up")

    assert look_at_sources(["."]).coverage.num_files == 1


def test_a_fault_of_the_analysis_hides_nothing_of_other_programs(program, monkeypatch):
    Path("hostile.py").write_text("x = 1\n")

    def check(project, facts):
        if project.units[0].file == "hostile.py":
            raise KeyError("lost")
        return [Finding("L001", place=Place(program, 6))]

    monkeypatch.setattr(preflight, "check_source", check)

    findings = look_at_sources(["."]).findings

    assert {(finding.code, finding.place.file) for finding in findings} == {("L001", program), ("X008", "hostile.py")}
    assert any("KeyError: 'lost'" in note for finding in findings for note in finding.notes)


def make_look(*findings, **keywords):
    return SourceLook(findings=findings, coverage=Coverage(num_files=2), **keywords)


def test_findings_of_sources_and_of_the_model_are_one_report(program):
    source = Finding("L001", place=Place(program, 6))
    model = Report([Finding("C001", place=Place(program, 3))], looked_at=["a step of 7 operators"], facts=["a fact"])

    report = assemble_report("train.py", make_look(source, is_ported=False), model_report=model)

    assert report.codes == ("C001", "L001")
    assert report.looked_at[0] == "2 files"
    assert report.looked_at[-1] == "a step of 7 operators"
    assert report.facts == ("a fact",)


def test_what_sources_and_model_both_say_is_told_once(program):
    read = [Finding(code, place=Place(program, 3, 1, 3, 9)) for code in ("C001", "C002", "L001")]
    read.append(Finding("D013", place=Place(program, 3, 5, 3, 9)))
    captured = Finding("C001", "`item` reads a value", place=Place(program, 3, 5, 3, 14))

    report = assemble_report("train.py", make_look(*read), model_report=Report([captured]))

    # of a line that a capture has seen its source tells nothing more of the kind, and nothing of the same expression
    assert report.codes == ("L001", "C001")
    assert report.findings[1].message == captured.message


def test_unused_comments_are_told_unless_they_are_ignored(program):
    Path(program).write_text("x = 1  # porting: allow loss-outside-forward\n")
    look = look_at_sources([program])

    assert assemble_report(program, look).codes == ("X006",)
    assert assemble_report(program, look, selection=Selection(ignored=("X",))).standing == ()
    assert assemble_report(program, look, selection=Selection(selected=("C",))).standing == ()


def test_a_written_baseline_holds_what_is_left(program):
    look = make_look(Finding("L001", place=Place(program, 6)), Finding("C001", place=Place(program, 8)))
    baseline = Path("known.json")

    written = assemble_report(
        "train.py", look, selection=Selection(ignored=("C",)), baseline=baseline, writes_baseline=True
    )
    read = assemble_report("train.py", look, baseline=baseline)

    assert (written.is_clean, written.num_known) == (True, 1)
    assert (read.codes, read.num_known) == (("C001",), 1)


NET = """\
import torch
class Net(torch.nn.Module):
    def forward(self, x):
        return x if x.sum().item() > 0 else -x
"""
LOOP = """\
import torch
from models.net import Net
net = Net()
for x, y in torch.utils.data.DataLoader([], 4):
    torch.nn.functional.mse_loss(net(x), y).backward()
"""


@pytest.mark.parametrize(
    "paths",
    [
        ["scripts/train.py"],
        ["."],
        ["scripts/train.py", "models/net.py"],
        ["models/net.py", "scripts/train.py"],
        ["models", "scripts"],
    ],
)
def test_the_findings_are_the_same_however_it_is_asked(tmp_path, monkeypatch, paths):
    monkeypatch.chdir(tmp_path)
    for name, text in (("models/net.py", NET), ("scripts/train.py", LOOP)):
        Path(name).parent.mkdir()
        Path(name).write_text(text)

    found = {(finding.code, str(finding.place)) for finding in look_at_sources(paths).findings}

    alone = {(finding.code, str(finding.place)) for finding in look_at_sources(["scripts/train.py"]).findings}
    assert found == alone
    assert {code for code, _place in found} >= {"C001", "L010"}


@pytest.mark.parametrize(("comment", "codes"), [("", ["O001"]), ("  # porting: allow O001", [])])
def test_a_configuration_is_judged_and_its_comments_allow(tmp_path, monkeypatch, comment, codes):
    monkeypatch.chdir(tmp_path)
    Path("requirements.txt").write_text("hydra-core", encoding="utf-8")
    Path("config.yaml").write_text(f"optimizer:\n  _target_: torch.optim.Adagrad{comment}\n", encoding="utf-8")
    Path("train.py").write_text("from hydra.utils import instantiate\nit = instantiate({})\n", encoding="utf-8")

    report = assemble_report("train.py", look_at_sources(["train.py"]))

    found = [finding for finding in report.findings if finding.place is not None and finding.code == "O001"]
    assert [finding.code for finding in found] == codes
    assert {str(finding.place.file) for finding in found} <= {"config.yaml"}
