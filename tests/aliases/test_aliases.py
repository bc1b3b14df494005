"""A module under a second name is one module: one object, one set of classes, loaded once and only when asked for."""

from __future__ import annotations

import copy
import importlib
import importlib.metadata
import importlib.util
import inspect
import pickle
import pkgutil
import subprocess
import sys

import pytest

from porting.aliases import COMPANIONS, VENDOR, AliasFinder, install_aliases

PACKAGE = {
    "real_tools/__init__.py": "__version__ = '3.4.0-simulator'\nfrom . import shapes\nloads = []\n",
    "real_tools/shapes.py": "import real_tools\nclass Circle:\n    'Round.'\n",
    "real_tools/deep/__init__.py": "",
    "real_tools/deep/well.py": "water = object()\n",
    "stand_in/__init__.py": "class Plain:\n    pass\n",
    "stand_in/part.py": "origin = 'stand-in'\n",
    "installed/__init__.py": "origin = 'installed'\n",
    "installed/part.py": "origin = 'installed'\n",
}


@pytest.fixture
def aliases(tmp_path, monkeypatch):
    """Give `tools` for a package `real_tools`, `missing` and `installed` for `stand_in` where they are missing."""
    for name, source in PACKAGE.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    before = dict(sys.modules)
    install_aliases(replace={"tools": "real_tools"}, provide={"missing": "stand_in", "installed": "stand_in"})
    yield
    for name in set(sys.modules) - set(before):
        del sys.modules[name]


def test_both_names_are_one_module(aliases):
    import real_tools
    import tools

    assert tools is real_tools


def test_modules_below_are_one_however_they_are_imported(aliases):
    import real_tools.deep.well
    import tools.deep.well as well
    from tools import shapes
    from tools.deep.well import water

    assert well is real_tools.deep.well
    assert shapes is real_tools.shapes
    assert water is real_tools.deep.well.water


def test_nothing_is_imported_before_it_is_asked_for(aliases):
    assert importlib.util.find_spec("tools") is not None

    assert {"tools", "real_tools"} & set(sys.modules) == set()


def test_the_module_keeps_its_own_name_and_spec(aliases):
    import tools

    assert (tools.__name__, tools.__spec__.name, tools.__package__) == ("real_tools", "real_tools", "real_tools")


def test_a_module_that_there_is_not_is_missed_under_the_name_that_was_asked_for(aliases):
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'tools\.nothing'") as caught:
        import tools.nothing  # noqa: F401

    assert caught.value.name == "tools.nothing"


def test_reloading_keeps_the_one_module(aliases):
    import tools

    before = tools.loads

    assert importlib.reload(tools) is tools is sys.modules["real_tools"]
    assert tools.loads is not before


def test_running_a_module_again_through_its_loader_keeps_the_one_module(aliases):
    import tools.shapes

    spec = importlib.util.find_spec("tools.shapes")
    spec.loader.exec_module(tools.shapes)

    assert sys.modules["tools.shapes"] is sys.modules["real_tools.shapes"] is tools.shapes


def test_pickles_name_the_place_of_definition_and_old_ones_load(aliases):
    from tools.shapes import Circle

    assert pickle.loads(pickle.dumps(Circle)) is Circle
    assert pickle.loads(pickle.dumps(Circle, protocol=0).replace(b"real_tools", b"tools")) is Circle


def test_tools_see_sources_and_modules_below(aliases):
    import tools

    assert {module.name for module in pkgutil.walk_packages(tools.__path__, "tools.")} == {
        "tools.shapes",
        "tools.deep",
        "tools.deep.well",
    }
    assert "Round." in inspect.getsource(tools.shapes.Circle)
    assert importlib.util.find_spec("tools.deep.well").loader.get_source("tools.deep.well") == "water = object()\n"


def test_the_version_can_be_asked_for_and_nothing_is_listed_as_installed(aliases):
    assert importlib.metadata.version("tools") == "3.4.0+simulator"
    assert "tools" not in [found.metadata["Name"] for found in importlib.metadata.distributions()]


def test_versions_of_other_packages_are_theirs(aliases):
    import torch

    assert importlib.metadata.version("torch").startswith(torch.__version__.partition("+")[0])
    with pytest.raises(importlib.metadata.PackageNotFoundError):
        importlib.metadata.version("missing")


def test_a_stand_in_takes_the_place_of_what_is_missing(aliases):
    import missing.part
    import stand_in.part

    assert missing is stand_in
    assert missing.part is stand_in.part


def test_what_is_installed_stays(aliases):
    import installed.part

    assert (installed.origin, installed.part.origin) == ("installed", "installed")


def test_a_mere_folder_of_that_name_is_no_package(aliases, tmp_path, monkeypatch):
    (tmp_path / "folder" / "missing").mkdir(parents=True)
    monkeypatch.syspath_prepend(str(tmp_path / "folder"))

    import missing
    import stand_in

    assert missing is stand_in


def test_the_loader_of_an_alias_can_be_copied(aliases):
    spec = importlib.util.find_spec("tools")

    assert copy.copy(spec.loader).create_module(spec) is sys.modules["real_tools"]


def test_installing_again_changes_nothing(aliases):
    before = list(sys.meta_path)

    install_aliases(replace={"tools": "real_tools"}, provide={})

    assert sys.meta_path == before


def test_other_names_are_left_to_others():
    finder = AliasFinder(replace={"tools": "real_tools"}, provide={})

    assert finder.find_spec("json") is None
    assert finder.find_spec("tools_extra") is None


def test_every_alias_leads_to_a_module():
    assert [name for name in {**VENDOR, **COMPANIONS}.values() if importlib.util.find_spec(name) is None] == []


def test_a_stand_in_says_once_that_it_is_one(monkeypatch, capsys):
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    monkeypatch.setenv("PORTING_STAND_INS", "popart")
    sys.modules.pop("libpvti", None)
    sys.modules.pop("popart", None)
    install_aliases(replace={}, provide=COMPANIONS)

    import libpvti  # noqa: F401
    import popart  # noqa: F401

    assert capsys.readouterr().err == (
        "simulated: `libpvti` is not installed; a stand-in, porting.simulator.companions.libpvti, answers for it\n"
    )


def test_only_the_first_of_several_processes_says_so(monkeypatch, capsys):
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    monkeypatch.setenv("PORTING_STAND_INS", "")
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    sys.modules.pop("libpvti", None)
    install_aliases(replace={}, provide=COMPANIONS)

    import libpvti  # noqa: F401

    assert capsys.readouterr().err == ""


def test_the_finder_costs_a_new_process_neither_torch_nor_the_metadata_of_packages():
    program = "import porting.aliases, sys; print({'torch', 'importlib.metadata'} & set(sys.modules))"

    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout

    assert printed == "set()\n"
