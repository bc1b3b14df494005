"""The table of engines, and those of other packages."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata

import pytest

import porting.engines
from porting.diagnostics import OptionError
from porting.engines import ENGINES, MODES, engine_names, load_engine, require_engine, why_not_installed


@pytest.fixture
def foreign(monkeypatch):
    """Let another package bring an engine; the argument says where it lies."""

    def foreign(value: str, *, name: str = "theirs") -> None:
        entry = metadata.EntryPoint(name=name, value=value, group="porting.engines")
        monkeypatch.setattr(porting.engines, "read_entry_points", lambda _group: {entry.name: entry})

    return foreign


@pytest.mark.parametrize("name", sorted(ENGINES))
def test_each_engine_can_be_loaded_and_called(name):
    assert callable(load_engine(name))


@pytest.mark.parametrize("name", ["warp", "inductor"])
def test_an_unknown_engine_is_refused_with_those_there_are(name):
    with pytest.raises(OptionError) as caught:
        load_engine(name)

    assert caught.value.code == "P004"
    assert caught.value.finding.help == (f"use one of: ready, auto, {', '.join(sorted(ENGINES))}",)


def test_the_message_says_where_the_name_comes_from():
    with pytest.raises(OptionError, match="`warp` \\(from PORTING_ENGINE\\)"):
        require_engine("warp", source="from PORTING_ENGINE")


@pytest.mark.parametrize("name", [*MODES, *ENGINES])
def test_modes_and_engines_are_known(name):
    require_engine(name)


@pytest.fixture
def lacks_rooms(monkeypatch):
    """Return a function that makes an installation without some of the rooms."""

    def lacks_rooms(*rooms):
        monkeypatch.setattr(porting.engines, "_is_there", lambda room: room not in rooms)

    return lacks_rooms


@pytest.mark.parametrize("room", ["aot", "compiled"])
def test_a_compiling_engine_needs_the_rooms_of_the_compilers(lacks_rooms, room):
    lacks_rooms(room)

    assert engine_names() == ["replay"]
    with pytest.raises(OptionError, match=f"`aot` cannot be used: .* not installed: `porting.engines.{room}`"):
        require_engine("aot")


def test_to_choose_takes_the_tuner(lacks_rooms):
    lacks_rooms("tuning")

    assert why_not_installed("auto") == "the compilers are not installed: `porting.engines.tuning`"


def test_replay_and_the_modes_need_no_compiler(lacks_rooms):
    lacks_rooms("aot", "compiled", "recurrence", "tuning")

    for name in ("replay", *MODES):
        require_engine(name)


def test_an_engine_of_another_package_needs_none_of_this_one(foreign, lacks_rooms):
    foreign("os.path:join")
    lacks_rooms("aot", "compiled", "recurrence", "tuning")

    assert engine_names() == ["replay", "theirs"]


def test_a_folder_of_caches_alone_is_no_room(tmp_path, monkeypatch):
    (tmp_path / "left" / "__pycache__").mkdir(parents=True)
    monkeypatch.setattr(porting.engines, "__path__", [str(tmp_path)])

    assert not porting.engines._is_there("left")


def test_a_mode_is_no_engine():
    with pytest.raises(ValueError, match="a way to choose one"):
        load_engine("auto")


def test_an_engine_of_another_package_is_listed_and_loaded(foreign):
    foreign("os.path:join")

    import os.path

    assert "theirs" in engine_names()
    assert load_engine("theirs") is os.path.join


def test_listing_imports_nothing(foreign):
    foreign("not_installed.anywhere:build")

    assert "theirs" in engine_names()
    require_engine("theirs")


def test_an_engine_whose_package_is_broken_is_refused_with_the_reason(foreign):
    foreign("not_installed.anywhere:build")

    with pytest.raises(OptionError, match="cannot be loaded from `not_installed.anywhere:build`: ModuleNotFoundError"):
        load_engine("theirs")


def test_nobody_takes_the_name_of_an_engine_of_this_package(foreign):
    foreign("os.path:join", name="replay")

    assert load_engine("replay").__name__ == "build_replay"


@pytest.mark.slow
def test_naming_engines_imports_no_compiler():
    program = "import sys, porting.engines as e; e.engine_names(); print('torch._inductor' in sys.modules)"

    result = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, check=True, text=True)

    assert result.stdout == "False\n"
