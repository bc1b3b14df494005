"""The hardware path reads no name that torch 2.0 lacks, and imports no module that needs a newer one."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import porting
from tests.hardware.test_imports import IMPORT_ALL, MAY_NEED_CAPTURE, MODULES, NEED_CAPTURE, ORDINARY, names_of
from tests.hardware.torch_names import ROOT, members_since, missing_part, sources, uses_in

# names that are read only where `hasattr` or the version has said that they are there, each with its file
GUARDED = {("porting/api/optimizer.py", ".register_state_dict_post_hook")}
# members of this package's classes, of NumPy's and of storages, that newer classes of torch have too
OF_OTHERS = {"compile", "itemsize", "nbytes"}


def name_of(path):
    return str(path.relative_to(ROOT)) if ROOT in path.parents else path.name


def too_new_in(path):
    """List the names and members that a file reads and torch 2.0 does not have."""
    since = {f".{name}" for name in members_since() - OF_OTHERS}
    uses = uses_in(path)
    found = [(use.line, missing_part(use.name)) for use in uses if not use.name.startswith(".")]
    found += [(use.line, use.name) for use in uses if use.name in since]
    missing = [(line, name) for line, name in found if name is not None and (name_of(path), name) not in GUARDED]
    return [f"line {line}: {name}" for line, name in missing]


def test_modules_read_only_names_that_torch_2_0_has():
    found = {name_of(path): too_new_in(path) for path in sources()}

    too_new = {path: uses for path, uses in found.items() if uses}
    assert too_new == {}, "if torch 2.0 has it, write the table again: see torch_names.py"


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("from torch.nn import Buffer", "torch.nn.Buffer"),
        ("import torch\nisinstance(1, torch._C.TensorBase)", "torch._C.TensorBase"),
        ("from torch import _C\n_C.TensorBase", "torch._C.TensorBase"),
        ("import torch.export", "torch.export"),
        ("from torch.nn import attention", "torch.nn.attention"),
        ("def f(o):\n    o.register_state_dict_post_hook(f)", ".register_state_dict_post_hook"),
    ],
)
def test_a_name_that_torch_2_0_lacks_is_found(source, name, tmp_path):
    path = tmp_path / "module.py"
    path.write_text(source)

    assert [found.partition(": ")[2] for found in too_new_in(path)] == [name]


@pytest.mark.parametrize(
    "source",
    [
        "from torch.nn.parameter import is_lazy",
        "import torch\ndef f(x: torch.Unknown) -> torch.Unknown:\n    y: torch.Unknown = x",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from torch.export import ExportedProgram",
        "import torch\ngetattr(torch._C, 'TensorBase', torch._C._TensorBase)",
    ],
    ids=["known", "annotations", "for types only", "guarded"],
)
def test_a_name_that_is_never_missed_is_not_found(source, tmp_path):
    path = tmp_path / "module.py"
    path.write_text(source)

    assert too_new_in(path) == []


# -- imports ---------------------------------------------------------------------------------------------------------

PRETENDING = "import torch\ntorch.__version__ = '2.0.1'\n"


@pytest.fixture(scope="module")
def imported(tmp_path_factory, program_server):
    """Import all modules where torch says that it is 2.0.1: "there", the code of a finding, or a traceback."""
    folder = tmp_path_factory.mktemp("imports")
    program = f"{PRETENDING}MODULES = {[*ORDINARY, 'porting.capture']!r}\n{IMPORT_ALL}"
    subprocess.run([program_server.python, "-W", "ignore", "-c", program], cwd=folder, check=True)
    return json.loads((folder / "told.json").read_text())


@pytest.mark.slow
@pytest.mark.parametrize("module", ORDINARY)
def test_a_module_is_there_where_nothing_can_be_captured(module, imported):
    told = names_of(module, imported)

    assert {name: said for name, said in told.items() if said != "there" and name not in MAY_NEED_CAPTURE} == {}


@pytest.mark.slow
def test_what_captures_says_c009(imported):
    names = ["porting.capture", *(f"porting.{name}" for name in NEED_CAPTURE)]

    assert {name: imported[name] for name in names if imported[name] != "C009"} == {}


@pytest.mark.usefixtures("programs_have_torch")
@pytest.mark.slow
def test_to_ipu_can_be_imported_first_where_nothing_can_be_captured():
    program = f"{PRETENDING}from porting import to_ipu, PortOptions, fit, compare_training"

    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stderr == ""


def test_every_public_name_is_either_ordinary_or_captures():
    assert set(NEED_CAPTURE) < set(porting.__all__)
    assert set(ORDINARY) < set(MODULES)
