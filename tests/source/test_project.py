"""Imports lead to the files that Python would find, and no further."""

from __future__ import annotations

from pathlib import Path

import pytest

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

    found = project.find_modules("model", train)[-1]
    assert found.path == str(tmp_path / "model.py")
    assert project.entries == [str(tmp_path / "train.py")]


def test_a_relative_import_is_found_in_its_package(tmp_path):
    write(tmp_path, pkg__a__train="", pkg__b__net="")
    project = read_programs([tmp_path / "pkg" / "a" / "train.py"])
    train = project.modules[project.entries[0]]

    found = project.find_modules("b.net", train, 2)[-1]
    assert found.path.endswith("net.py")


def test_an_import_is_found_anywhere_in_the_folder(tmp_path):
    write(tmp_path, tools__train="", src__lib__net="")
    project = read_programs([tmp_path])
    train = next(module for module in project.modules.values() if module.name == "train")

    found = project.find_modules("lib.net", train)[-1]
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
