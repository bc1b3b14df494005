"""A folder of several programs: what happens in each of them, apart."""

from __future__ import annotations

from pathlib import Path
from typing import List

from porting.source import Facts, Kind, collect_facts, read_programs, split_facts

MODEL = "import torch\nnet = torch.nn.Linear(3, 2)\n"


def split(folder: Path, **files: str) -> List[Facts]:
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    project = read_programs([folder])
    return split_facts(project, collect_facts(project))


def test_a_port_beside_a_plain_program_does_not_make_it_a_port(tmp_path):
    programs = split(
        tmp_path,
        model=MODEL,
        plain="from model import net\nnet(1)\n",
        ported="import poptorch\nfrom model import net\npoptorch.trainingModel(net)\n",
    )

    assert [facts.is_ported for facts in programs] == [False, True]
    assert [len(facts.list_things(Kind.MODULE)) for facts in programs] == [1, 1]


def test_one_program_is_left_whole(tmp_path):
    (facts,) = split(tmp_path, model=MODEL, train="from model import net\nnet(1)\n")

    assert len(facts.calls) == 2


def test_files_that_only_import_each_other_are_a_program(tmp_path):
    assert len(split(tmp_path, a="import b\n", b="import a\n", c="x = 1\n")) == 2


def test_very_many_programs_are_joined_where_they_share_a_file(tmp_path, monkeypatch):
    monkeypatch.setattr("porting.source.programs._MOST_PROGRAMS", 1)
    programs = split(tmp_path, model=MODEL, a="import model\nf()\n", b="import model\ng()\n", c="h()\n")

    assert sorted(len(facts.calls) for facts in programs) == [1, 3]
