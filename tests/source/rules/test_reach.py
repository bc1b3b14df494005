"""What of a program is reached, and which of its files are for torch."""

from __future__ import annotations

import textwrap

import pytest

from porting.source.project import read_programs
from porting.source.rules.reach import Reach
from porting.source.walk import collect_facts

PROGRAM = """
    import poptorch
    import torch
    def called():
        torch.manual_seed(1)
    def given():
        torch.manual_seed(2)
    def left():
        torch.manual_seed(3)
    if __name__ == "__main__":
        poptorch.trainingModel(torch.nn.Linear(4, 3))
        called()
        torch.utils.data.DataLoader([], collate_fn=given if __debug__ else None)
"""


@pytest.fixture
def facts(tmp_path):
    """The facts of a program with three functions."""
    path = tmp_path / "program.py"
    path.write_text(textwrap.dedent(PROGRAM), encoding="utf-8")
    return collect_facts(read_programs([str(path)]))


def test_what_is_called_or_given_to_a_call_is_reached(facts):
    seeds = [call for call in facts.calls if call.name == "torch.manual_seed"]

    assert [call.where.function for call in seeds if Reach(facts).is_missed([call])] == ["program.left"]


def test_a_file_with_torch_is_for_it_and_so_is_one_that_is_not_known(facts):
    assert not Reach(facts).is_of_others(facts.imports[0].place.file)
    assert not Reach(facts).is_of_others("other.py")
