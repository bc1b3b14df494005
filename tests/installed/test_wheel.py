"""The wheel holds the package with all that it reads and nothing else; `make pythons` installs it."""

from __future__ import annotations

import sys
import zipfile

import pytest

import porting
from tests.installed.environments import ROOT, build_wheel, run

PACKED = (".py", ".cpp", ".h", ".md", ".typed", ".jinja", ".json", ".png", ".txt")

pytestmark = pytest.mark.slow


def names_in(wheel):
    return set(zipfile.ZipFile(wheel).namelist())


def test_it_holds_the_package_with_its_pages_and_recipes_and_nothing_else(wheel):
    packed = [path for path in (ROOT / "porting").rglob("*") if path.suffix in PACKED and path.is_file()]

    names = names_in(wheel)

    assert {name.split("/")[0] for name in names} == {"porting", f"ipu_porting-{porting.__version__}.dist-info"}
    assert {path.relative_to(ROOT).as_posix() for path in packed} == {
        name for name in names if name.startswith("porting/")
    }


def test_it_holds_what_the_wheel_of_the_source_archive_holds(wheel, clone, tmp_path):
    pack = "import sys, setuptools.build_meta as backend; backend.build_sdist(sys.argv[1])"
    run([sys.executable, "-c", pack, str(tmp_path)], cwd=clone)
    (archive,) = tmp_path.glob("*.tar.gz")

    assert names_in(build_wheel(archive, tmp_path)) == names_in(wheel)
