"""Executables come only from folders in which nobody but trusted users could have put them."""

from __future__ import annotations

import os
import shlex
import stat
import subprocess
from contextlib import contextmanager

import pytest

from porting.diagnostics import ExecutableError, OptionError
from porting.executables import trust
from porting.executables.archive import export_archive, import_archive
from porting.executables.store import ExecutableStore
from porting.executables.trust import UntrustedError, create_folder, find_trusted_folder, require_trusted_folder

pytestmark = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="this system has no owners of files")

STRANGER = 54321


@pytest.fixture(autouse=True)
def _nothing_was_told(monkeypatch):
    monkeypatch.setattr(trust, "_told", set())
    monkeypatch.delenv("PORTING_CACHE_OWNER", raising=False)


@pytest.fixture
def kept(store, make_key, files):
    """Give a store with one executable, which the key of the fixture names."""
    assert store.keep(make_key(), files, {})
    return store


@contextmanager
def owned_by(path, owner):
    """Let a file or folder seem to belong to another user."""

    def pretend(ask):
        def answer(asked, *arguments, **keywords):
            values = list(ask(asked, *arguments, **keywords))
            if os.fspath(asked) == os.fspath(path):
                values[stat.ST_UID] = owner
            return os.stat_result(values)

        return answer

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "stat", pretend(os.stat))
        patched.setattr(os, "lstat", pretend(os.lstat))
        yield


def parts_of(store):
    """List everything in the store that an executable is loaded through, by name."""
    (entry,) = store.list_entries()
    files = sorted(path for path in entry.folder.rglob("*") if path.name != "explanation.json.gz")
    return {"folder": store.folder, "programs": store.programs, "entry": entry.folder, **{p.name: p for p in files}}


def test_what_others_can_change_is_not_loaded_wherever_it_lies(kept, make_key, reported):
    for part in parts_of(kept).values():
        mode = part.stat().st_mode
        part.chmod(mode | stat.S_IWOTH)
        assert kept.find(make_key()) is None, part
        part.chmod(mode)

    assert [finding.code for finding in reported] == ["E004"] * len(parts_of(kept))
    assert "others can write to" in reported[0].message
    with kept.find(make_key()):
        pass


def test_what_belongs_to_a_stranger_is_not_loaded_wherever_it_lies(kept, make_key, reported):
    for part in parts_of(kept).values():
        with owned_by(part, STRANGER):
            assert kept.find(make_key()) is None, part

    assert all(f"belongs to {STRANGER}" in finding.message for finding in reported)


def test_the_help_helps(kept, make_key, reported):
    kept.folder.chmod(0o777)
    kept.programs.chmod(0o777)

    for _turn in range(2):
        assert kept.find(make_key()) is None
        command = reported[-1].help[0].split("`")[1]
        subprocess.run(shlex.split(command), check=True)
        if kept.find(make_key()) is not None:
            break

    assert len(reported) == 1


def test_a_user_who_is_named_is_trusted(kept, make_key, monkeypatch, reported):
    with owned_by(kept.programs, STRANGER):
        assert kept.find(make_key()) is None
        assert f"export PORTING_CACHE_OWNER={STRANGER}" in reported[0].help[1]
        monkeypatch.setenv("PORTING_CACHE_OWNER", str(STRANGER))

        with kept.find(make_key()):
            pass


def test_an_owner_that_there_is_not_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setenv("PORTING_CACHE_OWNER", "nobody of this name")

    with pytest.raises(OptionError, match="P005"):
        require_trusted_folder(tmp_path)


def test_a_folder_in_which_nobody_can_exchange_what_belongs_to_others_is_used(kept, make_key, files):
    kept.folder.chmod(0o1777)
    kept.programs.chmod(0o1777)

    with kept.find(make_key()):
        pass
    assert kept.keep(make_key(threads=2), files, {})


def test_an_entry_that_is_a_link_to_somewhere_is_no_entry_of_the_store(kept, make_key, tmp_path, reported):
    entry = parts_of(kept)["entry"]
    (entry / "layout.json").rename(tmp_path / "elsewhere")
    (entry / "layout.json").symlink_to(tmp_path / "elsewhere")

    assert kept.find(make_key()) is None


def test_nothing_is_kept_where_others_can_write(store, make_key, files, reported):
    create_folder(store.programs)
    store.programs.chmod(0o777)

    assert not store.keep(make_key(), files, {})

    assert [finding.code for finding in reported] == ["E004"]
    assert list(store.programs.iterdir()) == []


@pytest.mark.parametrize("mask", [0o000, 0o002, 0o022, 0o077])
def test_what_is_kept_can_be_changed_by_its_owner_alone_whatever_the_mask(mask, tmp_path, make_key, files):
    before = os.umask(mask)
    try:
        for path in files.rglob("*"):
            path.chmod(path.stat().st_mode | 0o020)
        store = ExecutableStore(tmp_path / "deep" / "cache")
        store.keep(make_key(), files, {})
    finally:
        os.umask(before)

    assert [path for path in parts_of(store).values() if path.stat().st_mode & 0o022] == []
    with store.find(make_key()):
        pass


def test_a_private_folder_takes_the_place_of_one_that_others_can_write_to_and_is_said_once(tmp_path):
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    reported = []

    found = [find_trusted_folder(tmp_path / "open", reported.append) for _ in range(2)]

    assert found[0] == found[1] != tmp_path / "open"
    assert stat.S_IMODE(found[0].stat().st_mode) == 0o700
    assert [finding.code for finding in reported] == ["E004"]


def test_a_folder_that_is_not_there_yet_is_used(tmp_path):
    assert find_trusted_folder(tmp_path / "new", pytest.fail) == tmp_path / "new"


def test_a_group_of_ones_own_is_nobody_else(tmp_path, monkeypatch):
    monkeypatch.setattr(trust, "_is_own_group", lambda _number: True)
    tmp_path.chmod(0o775)
    require_trusted_folder(tmp_path)
    monkeypatch.setattr(trust, "_is_own_group", lambda _number: False)

    with pytest.raises(UntrustedError, match="others can write"):
        require_trusted_folder(tmp_path)


def test_a_system_without_owners_of_files_is_not_asked(tmp_path, monkeypatch):
    monkeypatch.delattr(trust.os, "geteuid")
    tmp_path.chmod(0o777)

    require_trusted_folder(tmp_path)


def test_nothing_is_imported_into_a_folder_that_others_can_write_to(kept, tmp_path):
    export_archive(kept, tmp_path / "programs.zip", [entry.digest for entry in kept.list_entries()])
    other = ExecutableStore(tmp_path / "open")
    create_folder(other.folder)
    other.folder.chmod(0o777)

    with pytest.raises(ExecutableError, match="E004.*others can write"):
        import_archive(other, tmp_path / "programs.zip")
