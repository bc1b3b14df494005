"""A rule is applied where its scope says, and nowhere else."""

from __future__ import annotations

import textwrap

import pytest

from porting.source.project import read_programs
from porting.source.rules import RULES
from porting.source.rules.reading import Reading
from porting.source.rules.scope import Programs, Rule, apply_rule, rule
from porting.source.walk import collect_facts

HEADS = {
    "plain": "import torch\n",
    "ported": "import torch\nimport poptorch\nport = poptorch.trainingModel(torch.nn.Linear(4, 3))\n",
    "host loop": "import torch\nfrom porting import to_ipu\nport = to_ipu(torch.nn.Linear(4, 3), loop='host')\n",
}


def read(tmp_path, text: str) -> Reading:
    path = tmp_path / "program.py"
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    project = read_programs([str(path)])
    return Reading(collect_facts(project), project.units)


def find_seeds(reading: Reading):
    """Find the calls of `manual_seed`, which stand for what a rule finds."""
    return (reading.report("C010", call.place) for call in reading.facts.calls if call.name == "torch.manual_seed")


@pytest.mark.parametrize(
    ("scope", "judged"),
    [
        (rule(), {"plain", "ported", "host loop"}),
        (rule(Programs.PLAIN), {"plain"}),
        (rule(Programs.PORTED), {"ported", "host loop"}),
        (rule(in_host_loops=False), {"plain", "ported"}),
        (rule(with_poptorch=True), {"ported"}),
        (rule(with_poptorch=False), {"plain", "host loop"}),
    ],
)
def test_a_rule_judges_the_programs_of_its_scope(tmp_path, scope, judged):
    readings = {name: read(tmp_path, f"{head}torch.manual_seed(0)\n") for name, head in HEADS.items()}

    found = {name for name, reading in readings.items() if list(apply_rule(scope(find_seeds), reading))}

    assert found == judged


@pytest.mark.parametrize(
    "text",
    [
        "if not args.use_ipu:\n    torch.manual_seed(0)\n",
        "if args.device == 'ipu':\n    pass\nelse:\n    torch.manual_seed(0)\n",
        "def seed():\n    if use_ipu:\n        return\n    torch.manual_seed(0)\nseed()\n",
        "if not (args.use_ipu or args.fake):\n    torch.manual_seed(0)\n",
    ],
)
def test_what_runs_only_where_no_port_does_is_never_found_in_a_port(tmp_path, text):
    reading = read(tmp_path, HEADS["ported"] + text)

    assert list(apply_rule(rule()(find_seeds), reading)) == []


def test_a_rule_of_steps_judges_the_ports_step_alone(tmp_path):
    reading = read(
        tmp_path,
        """
        import poptorch
        import torch
        one, other = torch.nn.Linear(4, 3), torch.nn.Linear(4, 3)
        port = poptorch.trainingModel(one)
        for x in torch.rand(8, 2, 4):
            loss = port(x)
            loss.backward()
        for x in torch.rand(8, 2, 4):
            other(x).sum().backward()
        """,
    )

    found = [finding for each in RULES for finding in apply_rule(each, reading) if finding.code == "L010"]

    assert [finding.place.line for finding in found] == [8]


def test_a_search_that_says_nothing_of_its_scope_judges_all_programs():
    assert all(isinstance(each, Rule) for each in RULES)
    assert any(each == Rule(each.find) for each in RULES)
