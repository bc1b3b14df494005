"""The wheel holds the package with all that it reads and nothing else; `make pythons` installs it."""

from __future__ import annotations

import re
import sys
import zipfile
from email import message_from_string

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


# -- what an index shows -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def metadata(wheel):
    (name,) = (name for name in names_in(wheel) if name.endswith(".dist-info/METADATA"))
    return message_from_string(zipfile.ZipFile(wheel).read(name).decode())


def test_each_link_of_its_page_leads_to_a_file_of_the_repository(metadata):
    page, repository = metadata.get_payload(), metadata["Home-page"]

    links = [link for found in re.findall(r'\]\(([^)#]+)|src="([^"]+)"', page) for link in found if link]

    own = [link.partition(f"/v{porting.__version__}/")[2] for link in links if link.startswith(repository)]
    assert len(own) > 20
    assert [link for link in links if not link.startswith("https://")] == []
    assert [path for path in own if not (ROOT / path).exists()] == []


def test_it_names_changelog_documentation_issues_and_source(metadata):
    named = dict(text.split(", ") for text in metadata.get_all("Project-URL"))

    assert sorted(named) == ["Changelog", "Documentation", "Issues", "Source"]
    assert {address.startswith(metadata["Home-page"]) for address in named.values()} == {True}


def test_what_pip_brings_for_it_trains_on_each_python(metadata):
    torch = [text for text in metadata.get_all("Requires-Dist") if re.match("torch[<>]", text)]

    assert torch == ['torch>=2.6; python_version >= "3.9"', 'torch<2.1,>=2.0; python_version < "3.9"']


def test_an_index_takes_it(wheel):
    pytest.importorskip("twine")

    assert "PASSED" in run([sys.executable, "-m", "twine", "check", "--strict", str(wheel)])
