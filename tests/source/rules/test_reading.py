"""What kind of program it is."""

from __future__ import annotations

import textwrap

import pytest

from porting.source.project import read_programs
from porting.source.rules.reading import Reading
from porting.source.walk import collect_facts


def read(tmp_path, text: str) -> Reading:
    path = tmp_path / "program.py"
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    project = read_programs([str(path)])
    return Reading(collect_facts(project), project.units)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import torch", False),
        ("import poptorch", True),
        ("from porting import to_ipu", True),
        ("import portingtools", False),
    ],
)
def test_a_program_is_ported(tmp_path, text, expected):
    assert read(tmp_path, text).is_ported is expected


def test_a_port_for_inference_alone_does_not_train(tmp_path):
    reading = read(
        tmp_path,
        """
        import torch
        from porting import to_ipu
        infer = to_ipu(torch.nn.Linear(4, 3)).inference()
        print(infer(torch.rand(8, 4)))
        """,
    )

    assert reading.ports
    assert reading.training_ports == []


def test_a_finding_of_a_plain_program_is_milder_than_the_fault(tmp_path):
    text = "import torch\nmodel = torch.nn.Linear(4, 3)\n"
    plain, ported = read(tmp_path, text), read(tmp_path, "import poptorch\n" + text)
    place = plain.facts.calls[0].place

    assert plain.report("L001", place).severity.value == "warning"
    assert ported.report("L001", place).severity.value == "error"
    assert plain.report("D020", place).severity.value == "note"
