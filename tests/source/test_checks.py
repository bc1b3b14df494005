"""What the rules find: in a corpus of programs, on the pages of the codes, and nothing in clean ports."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Dict, Iterator, List, Set, Tuple

import pytest

import porting
from porting.diagnostics import CODES, Severity
from porting.diagnostics.codes import read_page
from porting.source.checks import check_source
from porting.source.facts import Facts
from porting.source.notebooks import read_cells
from porting.source.project import read_programs
from porting.source.rules.wordings import read_wordings

PROGRAMS = Path(__file__).with_name("programs")
PACKAGE = Path(porting.__file__).parent
WORDINGS = read_wordings()
ANNOTATION = re.compile(r"# finds: ([A-Z0-9, ]+)")
FENCE = re.compile(r"^```python(?: (?:finds=(\w+)))?\n(.*?)^```$", re.DOTALL | re.MULTILINE)

# pages whose examples run, and end with the error that the port itself raises
RUN = {"C001", "C002", "C004", "C005", "C006", "C007", "C010", "C011", "C020", "L015"}
RUN |= {"C003", "C017", "C044", "D009", "O003"}
RUN |= {"O001", "O002", "O004", "O007", "B010", "D003"}

Found = Set[Tuple[str, int, str]]


def list_programs() -> List[Path]:
    """List the programs of the corpus: scripts, and folders that are one project each."""
    groups = [PROGRAMS / "clean", PROGRAMS / "faulty_ports", PROGRAMS / "kinds"]
    single = [path for group in groups for path in [*group.glob("*.py"), *group.glob("*.ipynb")]]
    single += PROGRAMS.glob("*.py")
    projects = [path for folder in (PROGRAMS, groups[-1]) for path in folder.iterdir() if path.is_dir()]
    projects = [path for path in projects if path not in groups]
    return sorted([*single, *(path for path in projects if path.name != "__pycache__")])


def read_texts(program: Path) -> Iterator[Tuple[str, str]]:
    """Read the files of a program, each cell of a notebook as one."""
    for file in [program] if program.is_file() else sorted([*program.rglob("*.py"), *program.rglob("*.yaml")]):
        if file.suffix == ".ipynb":
            yield from ((f"{file}:cell {cell.number}", cell.text) for cell in read_cells(file.read_bytes()))
        else:
            yield str(file), file.read_text(encoding="utf-8")


def read_expected(program: Path) -> Found:
    return {
        (place, number, code.strip())
        for place, text in read_texts(program)
        for number, line in enumerate(text.splitlines(), start=1)
        for match in ANNOTATION.finditer(line)
        for code in match[1].split(",")
    }


def find_in(*paths: Path) -> Found:
    findings = check_source(read_programs([str(path) for path in paths]))
    return {(str(Path(f.place.file).resolve()), f.place.line, f.code) for f in findings if f.place is not None}


def find_in_text(text: str, folder: Path) -> List[str]:
    path = folder / "program.py"
    path.write_text(text, encoding="utf-8")
    return [finding.code for finding in check_source(read_programs([str(path)]))]


@pytest.fixture(scope="module")
def results() -> Dict[Path, Tuple[Found, Found]]:
    """What was expected and what was found, for each program of the corpus."""
    return {program: (read_expected(program), find_in(program)) for program in list_programs()}


def describe(found: Found) -> str:
    return "\n".join(f"{file}:{line} {code}" for file, line, code in sorted(found))


def test_the_corpus_is_as_large_as_it_claims(results):
    plain = [program for program in results if program.parent == PROGRAMS]

    assert len(plain) >= 40
    assert sum(len(expected) for expected, _ in results.values()) >= 450


@pytest.mark.parametrize(
    "kind", ["lightning", "trainer", "accelerate", "hydra", "ignite", "notebook", "gnn", "speech", "rl"]
)
def test_the_corpus_has_three_programs_of_each_kind(kind, results):
    expected = [found[0] for program, found in results.items() if program.name.startswith(f"{kind}_")]

    assert len([found for found in expected if found]) >= 3


def test_recall_over_the_corpus(results):
    missing = {place for expected, found in results.values() for place in expected - found}
    num_expected = sum(len(expected) for expected, _ in results.values())

    assert 1 - len(missing) / num_expected >= 0.97, describe(missing)


def test_precision_over_the_corpus(results):
    wrong = {place for expected, found in results.values() for place in found - expected}
    num_found = sum(len(found) for _, found in results.values())

    assert 1 - len(wrong) / num_found >= 0.97, describe(wrong)


@pytest.mark.parametrize("name", ["cosmic", "cosmic_port"])
def test_a_large_program_and_its_port_are_found_line_by_line(name, results):
    expected, found = results[PROGRAMS / name]

    assert describe(found) == describe(expected)


@pytest.mark.parametrize("program", sorted((PROGRAMS / "clean").glob("*.py")), ids=lambda path: path.stem)
def test_a_clean_port_gives_no_finding(program, results):
    assert results[program][1] == set()


def list_last_steps() -> Iterator[Path]:
    for folder in sorted((PACKAGE / "recipes").iterdir()):
        steps = sorted(folder.glob("step_*.py"), key=lambda path: int(path.stem.split("_")[1]))
        # the last step of a conversion is plain PyTorch again
        yield from () if folder.name == "convert_your_project" else steps[-1:]


@pytest.mark.parametrize("step", list(list_last_steps()), ids=lambda path: path.parent.name)
def test_the_last_step_of_a_recipe_gives_no_finding(step):
    assert find_in(step) == set()


def test_our_own_models_give_no_finding():
    assert find_in(PACKAGE / "models") == set()


def test_every_code_has_an_example_that_is_read_or_run():
    read = {code for code in WORDINGS if f"finds={code}" in read_page(code)}

    assert set(WORDINGS) - read == RUN


@pytest.mark.parametrize("code", sorted(set(WORDINGS) - RUN))
def test_the_first_example_of_a_page_has_its_code_and_the_others_have_none(code, tmp_path):
    (first, *others) = FENCE.finditer(read_page(code))

    assert code in find_in_text(first[2], tmp_path)
    assert others
    assert [find_in_text(other[2], tmp_path) for other in others if other[1] == "none"] == [[] for _ in others]


def test_findings_of_a_plain_program_say_what_a_port_needs():
    findings = check_source(read_programs([str(PROGRAMS / "mnist.py")]))

    assert {finding.severity for finding in findings} <= {Severity.WARNING, Severity.NOTE}
    assert all(str(finding.message).startswith("a port") for finding in findings)


def test_findings_of_a_port_are_faults():
    findings = check_source(read_programs([str(PROGRAMS / "faulty_ports" / "poptorch_script.py")]))

    assert all(finding.severity is CODES[finding.code].severity for finding in findings)
    assert all(finding.message == finding.title or finding.code == "O001" for finding in findings)


@pytest.mark.parametrize("code", sorted(WORDINGS))
def test_every_finding_says_what_to_do_and_which_recipe_shows_it(code):
    wording = WORDINGS[code]

    assert wording.help
    if wording.shown is not None:
        assert list((PACKAGE / "recipes" / wording.shown[0]).glob(f"step_{wording.shown[1]}_*.py"))


def test_findings_are_sorted_and_each_stands_once():
    findings = check_source(read_programs([str(PROGRAMS / "cosmic_port")]))
    places = [(f.place.file, f.place.line, f.place.column or 0, f.code) for f in findings if f.place is not None]

    assert places == sorted(places)
    assert max(Counter((file, line, code) for file, line, _, code in places).values()) == 1


def test_no_facts_give_no_findings():
    assert check_source(read_programs([]), Facts()) == []


def test_a_notebook_is_checked_by_its_cells(tmp_path):
    cells = [
        "import torch\nDEVICE = 'cuda'",
        "model = torch.nn.Linear(4, 3)",
        "model.to(DEVICE)\nfor p in model.parameters():\n    p.data -= 0.1 * p.grad",
    ]
    path = tmp_path / "notebook.ipynb"
    document = {"cells": [{"cell_type": "code", "source": cell} for cell in cells], "nbformat": 4, "metadata": {}}
    path.write_text(json.dumps(document), encoding="utf-8")

    findings = check_source(read_programs([str(path)]))

    places = [(f.code, f.place.file, f.place.line) for f in findings if f.place is not None]
    assert places == [("D013", f"{path}:cell 1", 2), ("O015", f"{path}:cell 3", 3)]


PORT_SCRIPT = """
import time
import poptorch
from shared import Net, dataset, save

if __name__ == "__main__":
    options = poptorch.Options()
    model = Net()
    port = poptorch.trainingModel(model, options, poptorch.optim.SGD(model.parameters(), lr=0.1))
    for x, y in poptorch.DataLoader(options, dataset, batch_size=8):
        port(x, y)
    save(model)
"""
TEST_SCRIPT = """
import time
import popdist
import poptorch
import torch
from shared import Net, save

def test_net():
    popdist.init()
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    begin = time.time()
    optimizer.step()
    print(time.time() - begin)
    if popdist.getInstanceIndex() == 0:
        save(model)
"""
SHARED = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)
    def forward(self, x, y):
        out = self.fc(x)
        return out, nn.functional.cross_entropy(out, y)

dataset = torch.utils.data.TensorDataset(torch.rand(16, 4), torch.zeros(16).long())

def save(model):
    torch.save(model.state_dict(), "weights.pt")
"""


def test_programs_of_one_folder_have_nothing_to_do_with_each_other(tmp_path):
    for name, text in (("train", PORT_SCRIPT), ("test_net", TEST_SCRIPT), ("shared", SHARED)):
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")

    assert find_in(tmp_path) == set()


def test_a_finding_that_rests_on_a_name_is_a_note_that_says_so(tmp_path):
    text = """
import poptorch
from model import ModelWithLoss

def train(model, loader):
    port = poptorch.trainingModel(model, poptorch.Options())
    for x, y in loader:
        port(x, y)
"""
    (tmp_path / "train.py").write_text(text, encoding="utf-8")

    (finding,) = check_source(read_programs([str(tmp_path / "train.py")]))

    assert (finding.code, finding.severity, finding.is_guess) == ("B014", Severity.NOTE, True)
    assert finding.notes == ("a guess: only its name says that `loader` is a loader",)
