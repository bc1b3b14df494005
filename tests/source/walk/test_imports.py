"""Programs of several files: what is imported from where is known, and each file is walked once."""

from __future__ import annotations

from typing import Set

import pytest

from porting.source import Facts, Kind, collect_facts, read_programs

NET = "import torch\nclass Net(torch.nn.Module):\n    def forward(self, x):\n        return x\n"


def kinds_of(facts: Facts) -> Set[Kind]:
    return {one.kind for call in facts.calls if call.is_method("cuda") for one in call.receiver}


@pytest.mark.parametrize(
    "program",
    [
        "from model import Net\nNet().cuda()\n",
        "from model import Net as N\nN().cuda()\n",
        "import model\nmodel.Net().cuda()\n",
        "import model as m\nm.Net().cuda()\n",
        "from model import *\nNet().cuda()\n",
        "import lib.nets.net\nlib.nets.net.Net().cuda()\n",
        "from lib.nets import net\nnet.Net().cuda()\n",
        "from lib import Net\nNet().cuda()\n",
        "import lib\nlib.Net().cuda()\n",
        "def main():\n    from model import Net\n    Net().cuda()\nmain()\n",
        "try:\n    from model import Net\nexcept ImportError:\n    Net = None\nNet().cuda()\n",
        "import lib.nets\ngetattr(lib.nets.net, 'Net')().cuda()\n",
    ],
)
def test_a_class_of_another_file_is_found(facts_of, program):
    files = {"lib/__init__": "from .nets.net import Net", "lib/nets/__init__": "from . import net"}
    facts = facts_of(program, **files, **{"lib/nets/net": NET, "model": NET})

    assert Kind.MODULE in kinds_of(facts)


def test_a_class_that_derives_across_files_is_a_module(facts_of):
    facts = facts_of(
        "from base import Base\nclass Net(Base):\n    pass\nnet = Net()\n",
        base="from model import Net\nclass Base(Net):\n    pass\n",
        model=NET,
    )

    assert [one.name for one in facts.list_program_objects(Kind.MODULE)] == ["train.Net"]


def test_circles_of_imports_end(facts_of):
    facts = facts_of("import a\na.f().cuda()\n", a="import b\n" + NET + "def f():\n    return Net()\n", b="import a\n")

    assert kinds_of(facts) == {Kind.MODULE}


@pytest.mark.parametrize(
    ("program", "is_guarded"),
    [
        ("import poptorch\n", False),
        ("try:\n    import poptorch\nexcept ImportError:\n    poptorch = None\n", True),
        ("if ipu:\n    import poptorch\n", True),
        ("def f():\n    import poptorch\nif ipu:\n    f()\n", True),
        ("def f():\n    import poptorch\nf()\n", False),
    ],
)
def test_an_import_knows_whether_it_is_guarded(facts_of, program, is_guarded):
    (found,) = [fact for fact in facts_of(program).imports if fact.name == "poptorch"]

    assert found.is_guarded is is_guarded


def test_what_stands_under_the_guard_of_an_imported_file_does_not_run(facts_of):
    facts = facts_of("import model\nlast()\n", model=NET + "if __name__ == '__main__':\n    Net().cuda()\n")

    assert [call.name for call in facts.calls] == ["last"]
    assert [place.line for place in facts.main_parts] == [5]


def test_the_main_part_of_a_file_that_was_asked_for_as_well_does(facts_of, tmp_path):
    facts_of("import model\nlast()\n", model=NET + "if __name__ == '__main__':\n    Net().cuda()\n")
    facts = collect_facts(read_programs([tmp_path]))

    assert {call.name for call in facts.calls} == {"last", "model.Net", ".cuda"}


def test_names_are_qualified_by_the_imports(facts_of):
    facts = facts_of("import torch.nn.functional as F\nfrom torch import nn as n\nF.relu(1)\nn.init.zeros_(2)\n")

    assert [call.name for call in facts.calls] == ["torch.nn.functional.relu", "torch.nn.init.zeros_"]


def test_a_missing_file_leaves_a_name(facts_of):
    facts = facts_of("from .missing import thing\nfrom gone import other\nthing()\nother()\n")

    assert [call.name for call in facts.calls] == ["thing", "gone.other"]


def test_a_text_that_doubles_from_line_to_line_ends(facts_of):
    assert facts_of("x = 'a'\n" + "x = x + x\n" * 60 + "y = f'{x}{x}'\nlast()\n").calls
