"""Executables travel in one file; nothing that somebody may have put into it gets past the checks."""

from __future__ import annotations

import contextlib
import functools
import json
import tempfile
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from porting.diagnostics import ExecutableError
from porting.executables.archive import export_archive, import_archive
from porting.executables.entry import MANIFEST, read_explanation
from porting.executables.identity import ExecutableKey
from porting.executables.store import ExecutableStore

INDEX = "porting-executables.json"


@pytest.fixture
def full_store(store, make_key, files):
    for number in (1, 2):
        store.keep(make_key(threads=number), files, {"number": number}, sources={"files": {"train.py": "secret = 1"}})
    return store


@pytest.fixture
def archive(full_store, tmp_path):
    export_archive(full_store, tmp_path / "programs.zip", [entry.digest for entry in full_store.list_entries()])
    return tmp_path / "programs.zip"


@pytest.fixture
def other(tmp_path):
    return ExecutableStore(tmp_path / "other")


def rewritten(archive, change):
    """Write the members of an archive anew, as `change` makes them of a dictionary of names and bytes."""
    with zipfile.ZipFile(archive) as old:
        members = {name: old.read(name) for name in old.namelist()}
    change(members)
    with zipfile.ZipFile(archive, "w") as new:
        for name, content in members.items():
            new.writestr(name, content)
    return archive


def code_of(action, *args, **settings):
    with pytest.raises(ExecutableError) as caught:
        action(*args, **settings)
    return caught.value.code


def test_what_was_exported_is_found_where_it_was_imported(archive, other, make_key):
    imported = import_archive(other, archive)

    assert len(imported.kept) == 2
    assert imported.known == ()
    with other.find(make_key(threads=2)) as entry:
        assert entry.file("step/program.so").read_bytes() == b"machine code" * 100
        assert entry.manifest.content == {"number": 2}


def test_the_sources_stay_at_home(archive, other, make_key):
    import_archive(other, archive)

    with other.find(make_key(threads=1)) as entry:
        explanation = read_explanation(entry.folder, entry.manifest)
    assert explanation == {"components": make_key(threads=1).components, "sources": {}}


def test_the_sources_come_along_when_asked_to(full_store, other, tmp_path, make_key):
    digest = make_key(threads=1).digest
    export_archive(full_store, tmp_path / "one.zip", [digest], with_sources=True)

    import_archive(other, tmp_path / "one.zip")

    with other.find(make_key(threads=1)) as entry:
        assert read_explanation(entry.folder, entry.manifest)["sources"] == {"files": {"train.py": "secret = 1"}}


def test_importing_twice_keeps_nothing_new(archive, other):
    import_archive(other, archive)

    imported = import_archive(other, archive)

    assert (len(imported.kept), len(imported.known)) == (0, 2)


def test_a_damaged_executable_is_not_exported(full_store, tmp_path, make_key, reported):
    (full_store.programs / make_key(threads=1).digest / "layout.json").write_text("[]")

    written = export_archive(full_store, tmp_path / "x.zip", [make_key(threads=n).digest for n in (1, 2)])

    assert [manifest.content["number"] for manifest in written] == [2]
    assert [finding.code for finding in reported] == ["E005"]


def test_an_export_that_fails_leaves_the_old_file(full_store, tmp_path, monkeypatch):
    (tmp_path / "x.zip").write_text("old")
    monkeypatch.setattr(zipfile.ZipFile, "write", lambda *_args: (_ for _ in ()).throw(OSError(28, "no space left")))

    with pytest.raises(OSError, match="no space left"):
        export_archive(full_store, tmp_path / "x.zip", [entry.digest for entry in full_store.list_entries()])

    assert (tmp_path / "x.zip").read_text() == "old"


@pytest.mark.parametrize(
    ("fact", "value"), [("versions", {"torch": "1.0"}), ("processor", {"name": "6502", "instructions": ["bcd"]})]
)
def test_executables_of_another_machine_or_version_are_refused_unless_forced(archive, other, fact, value):
    def change(members):
        for name in [name for name in members if name.endswith(MANIFEST)]:
            members[name] = json.dumps({**json.loads(members[name]), fact: value}).encode()

    rewritten(archive, change)

    assert code_of(import_archive, other, archive) == "E009"
    assert other.list_entries() == []
    assert len(import_archive(other, archive, is_forced=True).kept) == 2


def test_more_than_the_cache_may_take_is_refused(archive, other):
    other.max_bytes = 1000

    assert code_of(import_archive, other, archive) == "E004"


def first_with(members, end):
    return next(name for name in members if name.endswith(end))


def traverse(members):
    members["../../evil.so"] = b"x"


def be_absolute(members):
    members["/tmp/evil.so"] = b"x"


def hold_something_else(members):
    members["README"] = b"x"


def flip(members):
    members[first_with(members, ".so")] = b"machine c0de" * 100


def cut(members):
    members[first_with(members, ".so")] = b"machine"


def grow(members):
    members[first_with(members, ".so")] += b"x" * (4 << 20)


def lose_a_file(members):
    del members[first_with(members, ".so")]


def lose_a_manifest(members):
    del members[first_with(members, MANIFEST)]


def lose_the_index(members):
    del members[INDEX]


def index_nonsense(members):
    members[INDEX] = json.dumps({"format": "porting-executables", "schema": 1, "executables": ["../.."]}).encode()


def index_another_version(members):
    members[INDEX] = members[INDEX].replace(b'"schema": 1', b'"schema": 7')


def manifest_of_another(members):
    name = first_with(members, MANIFEST)
    values = json.loads(members[name])
    members[name] = json.dumps({**values, "sections": {**values["sections"], "threads": "0" * 32}}).encode()


CHANGES = [
    traverse,
    be_absolute,
    hold_something_else,
    flip,
    cut,
    grow,
    lose_a_file,
    lose_a_manifest,
    lose_the_index,
    index_nonsense,
    index_another_version,
    manifest_of_another,
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_an_archive_that_somebody_changed_is_refused_as_a_whole(change, archive, other, tmp_path):
    rewritten(archive, change)

    assert code_of(import_archive, other, archive) == "E005"

    assert other.list_entries() == []
    left = [path.name for path in other.folder.rglob("*")] if other.folder.exists() else []
    assert set(left) <= {"programs"}
    assert not (tmp_path / "evil.so").exists()


def test_a_file_that_is_not_there_is_an_os_error(other, tmp_path):
    with pytest.raises(FileNotFoundError):
        import_archive(other, tmp_path / "nothing.zip")


@given(content=st.binary(max_size=200))
def test_any_bytes_are_refused(content, tmp_path_factory):
    folder = tmp_path_factory.mktemp("archives")
    (folder / "x.zip").write_bytes(content)

    assert code_of(import_archive, ExecutableStore(folder / "cache"), folder / "x.zip") == "E005"


@functools.lru_cache(maxsize=1)
def small_archive():
    """Make the bytes of an archive with one small executable."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "files").mkdir()
        (folder / "files" / "program").write_bytes(b"x" * 50)
        store = ExecutableStore(folder / "cache")
        key = ExecutableKey({"graph": {"mode": "training", "operators": []}, "engine": {"name": "aot"}})
        store.keep(key, folder / "files", {}, sources={})
        export_archive(store, folder / "x.zip", [key.digest])
        return (folder / "x.zip").read_bytes()


@given(data=st.data())
def test_an_archive_with_any_bytes_changed_is_refused_or_holds_what_it_held(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("archives")
    content = bytearray(small_archive())
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    (folder / "x.zip").write_bytes(bytes(content[: data.draw(st.integers(1, len(content)))]))
    store = ExecutableStore(folder / "cache")

    with contextlib.suppress(ExecutableError):
        import_archive(store, folder / "x.zip", is_forced=True)

    for listed in store.list_entries():
        with store.open(listed.digest) as entry:
            assert entry.file("program").read_bytes() == b"x" * 50
