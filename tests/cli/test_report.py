"""`porting report`: one page of several verbs, each in a process of its own."""

from __future__ import annotations

import pytest

from porting.cli.main import main

PROGRAM = """
import torch

def make(batch_size=4):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    batch = torch.ones(batch_size, 16), torch.zeros(batch_size, dtype=torch.int64)
    return model, torch.nn.CrossEntropyLoss(), batch, torch.optim.Adam(model.parameters())

def broken():
    raise ValueError("no such model")
"""


@pytest.fixture
def target(tmp_path, monkeypatch):
    pytest.importorskip("jinja2", reason="needs the extra `bench`")
    (tmp_path / "train_of_report.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    return "train_of_report.py"


@pytest.mark.slow
def test_a_page_has_a_part_of_each_verb(target, tmp_path, capsys):
    status = main(["report", f"{target}:make", "--html", "report.html", "--without", "bench", "verify"])

    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert status == 0
    assert page.count("<iframe") == 2
    assert "Plan of train_of_report.py:make" in page
    assert "report.html: check, plan" in capsys.readouterr().out


@pytest.mark.slow
def test_what_a_verb_says_of_a_program_that_fails_is_on_the_page(target, tmp_path, capsys):
    status = main(["report", f"{target}:broken", "--html", "report.html", "--without", "bench", "verify", "check"])

    assert status == 2
    assert "no such model" in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert capsys.readouterr().out.startswith("plan    2  error[E021]: ")


@pytest.mark.slow
def test_all_verbs_are_on_one_page(target, tmp_path, capsys):
    assert main(["report", f"{target}:make", "--html", "report.html"]) == 0

    said = [line[10:] for line in capsys.readouterr().out.splitlines()[:-1]]
    assert [line.split()[0] for line in said[1:]] == ["PASS:", "fits:", "speed-up"]
    assert (tmp_path / "report.html").read_text(encoding="utf-8").count("<iframe") == 4


def test_a_page_needs_a_name(target, capsys):
    with pytest.raises(SystemExit):
        main(["report", f"{target}:make"])
