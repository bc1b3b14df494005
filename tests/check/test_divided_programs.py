"""Programs of a folder are divided by what they and their imports have to do with ports."""

from __future__ import annotations

from pathlib import Path

import pytest

from porting.check.divided_programs import divide_programs
from porting.check.preflight import look_at_sources
from porting.source.project import read_programs

PLAIN = """\
import torch
from model import make
model = make()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
"""
PORTED = """\
import torch
from porting import to_ipu
from model import make
ported = to_ipu(make(), torch.nn.CrossEntropyLoss())
"""
MODEL = "import torch\ndef make():\n    return torch.nn.Linear(4, 3)\n"


def divide(tmp_path, monkeypatch, **texts):
    monkeypatch.chdir(tmp_path)
    for name, text in texts.items():
        path = Path(f"{name}.py")
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    groups = divide_programs(read_programs(["."]))
    return [group.files for group in groups if group.is_ported], [g.files for g in groups if not g.is_ported]


def test_a_plain_program_beside_a_ported_one_is_plain(tmp_path, monkeypatch):
    assert divide(tmp_path, monkeypatch, train=PLAIN, train_ipu=PORTED, model=MODEL) == (
        [("model.py", "train_ipu.py")],
        [("model.py", "train.py")],
    )


def test_what_it_needs_is_told_and_the_port_is_clean(tmp_path, monkeypatch):
    divide(tmp_path, monkeypatch, train=PLAIN, train_ipu=PORTED, model=MODEL)

    look = look_at_sources(["."])

    assert {finding.place.file for finding in look.findings} == {"train.py"}
    assert not look.is_ported


def test_programs_that_share_nothing_are_apart_and_those_that_do_are_together(tmp_path, monkeypatch):
    texts = {"a": "import shared\n", "b": "from shared import x\n", "c": "import d\n", "d": "", "shared": "", "e": ""}

    assert divide(tmp_path, monkeypatch, **texts) == ([], [("a.py", "b.py", "shared.py"), ("c.py", "d.py"), ("e.py",)])


def test_a_program_has_a_port_if_a_part_of_it_has(tmp_path, monkeypatch):
    divided = divide(tmp_path, monkeypatch, train="from model import make\nmake()\n", model="import poptorch\n")

    assert divided == ([("model.py", "train.py")], [])


@pytest.mark.parametrize(
    "line", ["from . import part", "from .part import x", "import pkg.part", "from pkg import part"]
)
def test_packages_are_followed(tmp_path, monkeypatch, line):
    texts = {"pkg/__init__": "", "pkg/part": "import popdist\n", "pkg/main": f"{line}\n"}

    ported, plain = divide(tmp_path, monkeypatch, **texts)

    assert "pkg/main.py" in ported[0]
    assert not any("pkg/main.py" in files for files in plain)


def test_of_a_circle_the_first_is_the_program(tmp_path, monkeypatch):
    assert divide(tmp_path, monkeypatch, a="import b\n", b="import a\n") == ([], [("a.py", "b.py")])


def test_a_file_that_imports_itself_is_a_program(tmp_path, monkeypatch):
    assert divide(tmp_path, monkeypatch, a="import a\n") == ([], [("a.py",)])


def test_nothing_is_no_program():
    assert divide_programs(read_programs([])) == []


@pytest.mark.parametrize("line", ["import poptorch", "from porting import to_ipu", "import popdist.poptorch as p"])
def test_a_program_that_imports_a_port_has_one(tmp_path, monkeypatch, line):
    assert divide(tmp_path, monkeypatch, train=f"def late():\n    {line}\n") == ([("train.py",)], [])


@pytest.mark.parametrize(
    "line", ["# porting is next", "import reporting", "from .porting import x", "import porting.models"]
)
def test_the_word_alone_makes_no_port(tmp_path, monkeypatch, line):
    assert divide(tmp_path, monkeypatch, train=f"{line}\n") == ([], [("train.py",)])
