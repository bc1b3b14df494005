"""Imports lead to the files that Python would find, and no further."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Dict, List, Set, Tuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from porting.source import project as project_module
from porting.source import read_programs
from porting.source.project import is_library, name_module


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        path = folder / (name.replace("__", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_a_module_is_named_with_its_packages(tmp_path):
    write(tmp_path, pkg__models__net="")
    for folder in ("pkg", "pkg/models"):
        (tmp_path / folder / "__init__.py").write_text("")

    assert name_module(str(tmp_path / "pkg" / "models" / "net.py")) == "pkg.models.net"
    assert name_module(str(tmp_path / "pkg" / "__init__.py")) == "pkg"


def test_an_import_is_found_beside_the_importer(tmp_path):
    write(tmp_path, train="import model", model="x = 1")
    project = read_programs([tmp_path / "train.py"])
    train = project.modules[project.entries[0]]

    found = project.resolve_import("model", train)[-1]
    assert found.path == str(tmp_path / "model.py")
    assert project.entries == [str(tmp_path / "train.py")]


def test_what_python_has_itself_is_no_file_of_a_folder_that_is_only_guessed(tmp_path):
    write(tmp_path, scripts__train="", time="", tools="")
    project = read_programs([tmp_path / "scripts" / "train.py"])
    train = project.modules[project.entries[0]]

    found = [project.resolve_import(name, train) for name in ("time", "tools")]
    assert [[module.name for module in modules] for modules in found] == [[], ["tools"]]


def test_a_relative_import_is_found_in_its_package(tmp_path):
    write(tmp_path, pkg__a__train="", pkg__b__net="")
    project = read_programs([tmp_path / "pkg" / "a" / "train.py"])
    train = project.modules[project.entries[0]]

    found = project.resolve_import("b.net", train, 2)[-1]
    assert found.path.endswith("net.py")


def test_an_import_is_found_anywhere_in_the_folder(tmp_path):
    write(tmp_path, tools__train="", src__lib__net="")
    project = read_programs([tmp_path])
    train = next(module for module in project.modules.values() if module.name == "train")

    found = project.resolve_import("lib.net", train)[-1]
    assert found.path.endswith("net.py")


@pytest.mark.parametrize("name", ["torch", "torch.nn", "porting", "porting.options", "poptorch", "numpy.random"])
def test_a_library_is_no_part_of_the_program(name):
    assert is_library(name)


@pytest.mark.parametrize(
    "name", ["model", "utils.torch", "porting.recipes.first_port.workload", "datasets", "transformers"]
)
def test_a_file_of_the_users_is(name):
    assert not is_library(name)


def test_a_module_is_found_by_its_dotted_name():
    project = read_programs(["porting.recipes.first_port.step_0_plain"])

    assert [Path(entry).name for entry in project.entries] == ["step_0_plain.py"]


def test_a_name_that_leads_nowhere_is_a_finding():
    project = read_programs(["no.such.module"])

    assert [finding.code for finding in project.findings] == ["X004"]
    assert project.entries == []


def test_a_broken_file_does_not_hide_the_others(tmp_path):
    write(tmp_path, broken="x = (", train="import torch")
    project = read_programs([tmp_path])

    assert [finding.code for finding in project.findings] == ["X002"]
    assert project.entries == [str(tmp_path / "train.py")]


def test_a_file_is_read_once(tmp_path):
    write(tmp_path, train="")

    assert len(read_programs([tmp_path, tmp_path / "train.py", tmp_path]).entries) == 1


def read_files(folder: Path, entry: str) -> Set[str]:
    project = read_programs([folder / entry])
    project.follow_all()
    return {str(Path(path).resolve().relative_to(folder)) for path in project.modules}


def missing_in(folder: Path, entry: str = "train.py") -> List[str]:
    project = read_programs([folder / entry])
    project.follow_all()
    modules = list(project.modules.values())
    return [str(f.message).split("`")[1] for m in modules for _wanted, f in project.follow_imports(m).missing]


LISTING = """
import sys
sys.path.insert(0, {folder!r})
sys.dont_write_bytecode = True
import runpy
try:
    runpy.run_path({entry!r}, run_name="__main__")
except ImportError as error:
    print("failed", error)
for module in list(sys.modules.values()):
    if (getattr(module, "__file__", None) or "").startswith({folder!r}):
        print(module.__file__)
"""


def read_as_python(folder: Path, entry: str) -> Tuple[Set[str], bool]:
    """Run a program and list the files of its folder that it imports."""
    text = LISTING.format(folder=str(folder), entry=str(folder / entry))
    result = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, cwd=folder, check=True)
    lines = result.stdout.splitlines()
    files = {str(Path(line).relative_to(folder)) for line in lines if not line.startswith("failed")}
    return {entry, *files}, not any(line.startswith("failed") for line in lines)


PACKAGES = st.sampled_from(["", "aa", "bb", "aa/cc", "aa/dd", "bb/cc"])
FILES = st.builds(os.path.join, PACKAGES, st.sampled_from(["ee", "ff", "__init__"]))


def write_import(importer: str, wanted: str, form: int) -> str:
    """Write an import of one file in another: absolute, under a name, from its package, or relative to it."""
    name = wanted.replace("/", ".")
    name = name[: -len(".__init__")] if name.endswith(".__init__") else name
    package, _, last = name.rpartition(".")
    own = importer.split("/")[:-1]
    shared = len(os.path.commonprefix([own, package.split(".")])) if own else 0
    if form == 0 or not package:
        return f"import {name}"
    if form == 1 or not shared:
        return f"from {package} import {last} as x"
    above = "." * (len(own) - shared + 1)
    return f"from {above}{'.'.join(package.split('.')[shared:])} import {last}"


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    files=st.lists(FILES.filter(lambda name: name != "__init__"), min_size=2, max_size=8, unique=True),
    choices=st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7), st.integers(0, 2)), min_size=2, max_size=8),
)
def test_of_a_program_that_runs_what_python_imports_is_read(tmp_path_factory, files, choices):
    folder = tmp_path_factory.mktemp("tree").resolve()
    lines: Dict[str, List[str]] = {name: [] for name in files}
    for importer, wanted, form in choices:
        source = files[importer % len(files)]
        lines[source].append(write_import(source, files[wanted % len(files)], form))
    lines["train"] = [write_import("train", files[0], 1), write_import("train", files[-1], 0)]
    for name, text in lines.items():
        path = folder / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(text))

    expected, has_ended = read_as_python(folder, "train.py")

    if has_ended:
        # a name that a package has already may be a module that is read besides
        assert read_files(folder, "train.py") >= expected
        assert missing_in(folder) == []


ABOVE = "import os, sys\nsys.path.insert(0, os.path.join(os.path.dirname(__file__), '..'))\nimport net"
LAYOUTS = {
    "a package without an init": {"train": "from pkg.sub import net", "pkg/sub/net": ""},
    "a module of it under a name": {"train": "import pkg.sub.net as n", "pkg/sub/net": ""},
    "a package beside the script's folder": {"bin/train": "from lib import net", "lib/net": "", "setup": ""},
    "a folder above that is added": {"bin/train": ABOVE, "net": ""},
    "a file that adds it": {
        "train": "import _paths\nimport net",
        "_paths": "import sys\nsys.path.append('lib')",
        "lib/net": "",
    },
    "a src layout": {"tools/train": "import pkg.net", "src/pkg/net": "", "setup": ""},
    "an import in a function": {"train": "def f():\n    from net import Net", "net": ""},
    "the second of two": {"train": "try:\n    import gone\nexcept ImportError:\n    import net", "net": ""},
    "a constant": {"train": "import importlib\nimportlib.import_module('pkg' + '.net')", "pkg/net": ""},
    "a relative constant": {"pkg/train": "import_module('.net', __package__)", "pkg/net": ""},
    "a pattern": {"train": "import_module(f'pkg.{kind}_net')", "pkg/a_net": "", "pkg/b_net": ""},
    "a table": {"train": "T = {'a': 'pkg.net:Net'}\nimport_module(T[a].split(':')[0])", "pkg/net": ""},
}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_programs_of_every_layout_are_read_as_a_whole(tmp_path, monkeypatch, layout):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, **{name.replace("/", "__"): text for name, text in layout.items()})
    (entry,) = [f"{name}.py" for name in layout if name.endswith("train")]

    assert read_files(tmp_path, entry) == {f"{name}.py" for name in layout} - {"setup.py"}
    assert missing_in(tmp_path, entry) == []


@pytest.mark.parametrize(
    ("line", "missing"),
    [
        ("import gone", ["gone"]),
        ("from gone.part import thing", ["gone.part"]),
        ("from . import gone", [".gone"]),
        ("from .gone import thing", [".gone"]),
        ("from lib import gone", ["lib.gone"]),
        ("from lib.net import gone", []),
        ("import own.gone", ["own.gone"]),
        ("import_module('gone.' + 'part')", ["gone.part"]),
        ("import torch, os, wandb, poptorch.optim", []),
        ("import required", []),
        ("from datasets import load_dataset", []),
        ("try:\n    import gone\nexcept ImportError:\n    gone = None", []),
        ("if TYPE_CHECKING:\n    import gone", []),
        ("if __name__ == '__main__':\n    import gone", ["gone"]),
    ],
)
def test_an_import_is_missing_where_it_is_the_programs_own(tmp_path, monkeypatch, line, missing):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, train=line, lib__net="", own____init__="", datasets__coco="")
    (tmp_path / "requirements.txt").write_text("required==1.0\n")

    assert missing_in(tmp_path) == missing


def test_what_is_missing_says_where_it_was_looked_for(tmp_path):
    write(tmp_path, train="from models.net import Net")
    project = read_programs([tmp_path / "train.py"])

    ((_wanted, finding),) = project.follow_imports(project.modules[project.entries[0]]).missing

    assert finding.code == "X024"
    assert (finding.place.line, finding.place.column) == (1, 1)
    assert str(tmp_path) in finding.notes[0]


def test_a_file_is_read_in_the_same_way_alone_and_with_others(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, pkg__train="from lib import net", lib__net="", other="import pkg.train", setup="")

    assert read_files(tmp_path, "pkg/train.py") <= read_files(tmp_path, "other.py")


def test_a_large_library_is_not_read_to_its_end_and_that_is_said(tmp_path, monkeypatch):
    write(tmp_path, train="import a, b", a="\n" * 10, b="")
    monkeypatch.setattr(project_module, "MOST_FOLLOWED_LINES", 5)
    project = read_programs([tmp_path / "train.py"])
    project.follow_all()

    assert list(project.unread) == [str(tmp_path / "b.py")]
