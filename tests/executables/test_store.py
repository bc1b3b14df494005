"""Executables are kept whole, found by their key, and lost one by one; no folder and no file makes the store fail."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import threading
import time

import pytest

from porting.executables import store as store_module
from porting.executables.entry import EXPLANATION, MANIFEST, read_explanation
from porting.executables.folders import LockUnsupportedError
from porting.executables.identity import ExecutableKey
from porting.executables.store import ExecutableStore

is_root = hasattr(os, "geteuid") and os.geteuid() == 0


def codes(reported):
    return [finding.code for finding in reported]


def hidden_in(store):
    return [path.name for path in store.programs.iterdir() if path.name.startswith((".new-", ".removing-"))]


# -- keeping and finding -----------------------------------------------------------------------------------------------


def test_what_was_kept_is_found_with_its_files_and_its_content(store, make_key, files):
    assert store.keep(make_key(), files, {"speed_up": 1.5}, sources={"files": {}})

    with store.find(make_key()) as entry:
        assert entry.file("step/program.so").read_bytes() == b"machine code" * 100
        assert entry.manifest.content == {"speed_up": 1.5}


def test_another_key_finds_nothing(store, make_key, files, reported):
    store.keep(make_key(), files, {})

    assert store.find(make_key(threads=2)) is None
    assert reported == []


def test_looking_into_a_folder_that_is_not_there_does_not_make_it(store, make_key):
    assert store.find(make_key()) is None
    assert store.list_entries() == []
    assert not store.folder.exists()


def test_the_explanation_has_the_components_and_the_sources(store, make_key, files):
    store.keep(make_key(), files, {}, sources={"files": {"train.py": "x = 1"}})

    with store.find(make_key()) as entry:
        explanation = read_explanation(entry.folder, entry.manifest)
    assert explanation["components"] == make_key().components
    assert explanation["sources"] == {"files": {"train.py": "x = 1"}}


def test_a_file_that_was_not_kept_is_a_key_error(store, make_key, files):
    store.keep(make_key(), files, {})

    with store.find(make_key()) as entry, pytest.raises(KeyError):
        entry.file("step/other.so")


def test_the_second_of_two_that_keep_the_same_key_discards_its_own(store, make_key, files):
    store.keep(make_key(), files, {"number": 1})

    assert store.keep(make_key(), files, {"number": 2})

    with store.find(make_key()) as entry:
        assert entry.manifest.content == {"number": 1}
    assert hidden_in(store) == []


def test_an_executable_can_be_replaced(store, make_key, files):
    store.keep(make_key(), files, {"number": 1})

    store.keep(make_key(), files, {"number": 2}, replace=True)

    with store.find(make_key()) as entry:
        assert entry.manifest.content == {"number": 2}


def test_an_executable_of_this_process_only_is_neither_kept_nor_found(store, files):
    key = ExecutableKey({"graph": {}}, opaque=("train.callback",))

    assert not store.keep(key, files, {})
    assert store.find(key) is None
    assert not store.folder.exists()


# -- damage ------------------------------------------------------------------------------------------------------------


def truncate(folder):
    (folder / "step" / "program.so").write_bytes(b"machine")


def flip(folder):
    content = bytearray((folder / "step" / "program.so").read_bytes())
    content[100] ^= 1
    (folder / "step" / "program.so").write_bytes(bytes(content))


def lose_a_file(folder):
    (folder / "layout.json").unlink()


def lose_the_manifest(folder):
    (folder / MANIFEST).unlink()


def empty_the_manifest(folder):
    (folder / MANIFEST).write_bytes(b"")


def link_a_file(folder):
    (folder / "layout.json").unlink()
    (folder / "layout.json").symlink_to(os.devnull)


def change_the_version(folder):
    text = (folder / MANIFEST).read_text().replace('"schema": 1', '"schema": 999')
    (folder / MANIFEST).write_text(text)


def become_another_entry(folder):
    text = (folder / MANIFEST).read_text().replace(folder.name, "0" * 32)
    (folder / MANIFEST).write_text(text)


DAMAGES = {
    truncate: "`step/program.so` has 7 bytes instead of 1200",
    flip: "`step/program.so` has another content than when it was written",
    lose_a_file: "`layout.json` is missing",
    lose_the_manifest: "the manifest is missing",
    empty_the_manifest: "the manifest is not JSON",
    link_a_file: "`layout.json` is not a file",
    change_the_version: "it has version 999; this package reads 1",
    become_another_entry: "the manifest is one of another executable",
}


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_damaged_executable_is_reported_with_the_reason_and_counts_as_missing(
    damage, store, make_key, files, reported
):
    store.keep(make_key(), files, {})
    damage(store.programs / make_key().digest)

    assert store.find(make_key()) is None

    assert codes(reported) == ["E005"]
    assert DAMAGES[damage] in reported[0].message


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_damaged_executable_is_replaced_by_the_next_one(damage, store, make_key, files):
    store.keep(make_key(), files, {"number": 1})
    damage(store.programs / make_key().digest)

    assert store.keep(make_key(), files, {"number": 2})

    with store.find(make_key()) as entry:
        assert entry.manifest.content == {"number": 2}
    assert hidden_in(store) == []


def test_an_executable_for_another_processor_under_this_name_is_not_used(store, make_key, files, reported):
    store.keep(make_key(processor={"name": "another"}), files, {})
    other = make_key(processor={"name": "another"}).digest
    folder = store.programs / make_key().digest
    (store.programs / other).rename(folder)
    (folder / MANIFEST).write_text((folder / MANIFEST).read_text().replace(other, folder.name))

    assert store.find(make_key()) is None

    assert "it was made for another processor" in reported[0].message


def test_a_file_in_place_of_an_executable_does_no_harm(store, make_key, files, reported):
    store.programs.mkdir(parents=True)
    (store.programs / make_key().digest).write_text("what is this")

    assert store.find(make_key()) is None
    assert store.keep(make_key(), files, {})
    assert store.find(make_key()) is not None


def test_files_of_somebody_else_are_left_alone(store, make_key, files):
    store.programs.mkdir(parents=True)
    (store.programs / "notes.txt").write_text("mine")

    store.keep(make_key(), files, {})
    store.shrink(max_bytes=0)

    assert (store.programs / "notes.txt").read_text() == "mine"
    assert store.list_entries() == []


# -- folders that cannot be used ---------------------------------------------------------------------------------------


def test_a_folder_that_is_a_file_is_reported_once_and_keeps_nothing(tmp_path, make_key, files, reported):
    (tmp_path / "cache").write_text("a file")
    store = ExecutableStore(tmp_path / "cache", report=reported.append)

    assert not store.keep(make_key(), files, {})
    assert not store.keep(make_key(threads=2), files, {})

    assert codes(reported) == ["E004"]
    assert str(tmp_path / "cache") in reported[0].message
    with store.lock(make_key()) as is_held:
        assert not is_held
    assert store.find(make_key()) is None
    assert store.list_entries() == []


@pytest.mark.skipif(is_root, reason="nothing is forbidden to root")
def test_a_folder_that_can_only_be_read_serves_what_it_has(store, make_key, files, reported):
    store.keep(make_key(), files, {})
    store.programs.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        assert store.find(make_key()) is not None
        assert not store.keep(make_key(threads=2), files, {})
    finally:
        store.programs.chmod(stat.S_IRWXU)

    assert codes(reported) == ["E004"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EDQUOT, errno.EIO])
def test_a_disk_that_takes_nothing_is_reported_once_and_leaves_nothing_behind(
    number, store, make_key, files, reported, monkeypatch
):
    def fail(*_args):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("shutil.copyfile", fail)

    assert not store.keep(make_key(), files, {})
    assert not store.keep(make_key(threads=2), files, {})

    assert codes(reported) == ["E004"]
    assert "keeps nothing" in reported[0].message
    assert os.strerror(number).lower() in reported[0].message.lower()
    assert hidden_in(store) == []


def test_without_locks_executables_are_found_and_not_kept(store, make_key, files, reported, monkeypatch):
    store.keep(make_key(), files, {})

    def refuse(*_args, **_settings):
        raise LockUnsupportedError(errno.ENOLCK, "no locks")

    monkeypatch.setattr(store_module, "try_lock", refuse)
    monkeypatch.setattr("porting.executables.folders.try_lock", refuse)
    monkeypatch.setattr("porting.executables.folders.try_lock", refuse)

    assert store.find(make_key()) is not None
    assert not store.keep(make_key(threads=2), files, {})
    with store.lock(make_key()) as is_held:
        assert not is_held
    assert "it has no file locks" in reported[0].message


# -- room --------------------------------------------------------------------------------------------------------------


def test_the_least_recently_used_go_first(tmp_path, make_key, files):
    store = ExecutableStore(tmp_path / "cache")
    keys = [make_key(threads=number) for number in range(4)]
    for number, key in enumerate(keys[:3]):
        store.keep(key, files, {})
        os.utime(store.programs / key.digest / MANIFEST, (number, number))
    store.find(keys[0]).close()
    store.max_bytes = int(2.5 * store.list_entries()[0].num_bytes)

    store.keep(keys[3], files, {})

    assert {entry.digest for entry in store.list_entries()} == {keys[0].digest, keys[3].digest}


def test_an_executable_that_is_being_loaded_is_not_evicted(store, make_key, files):
    store.keep(make_key(), files, {})

    with store.find(make_key()) as entry:
        assert store.shrink(max_bytes=0) == 0
        assert entry.file("layout.json").exists()
    assert store.shrink(max_bytes=0) > 0


def test_an_executable_that_is_larger_than_the_cache_may_be_is_reported(tmp_path, make_key, files, reported):
    store = ExecutableStore(tmp_path / "cache", max_bytes=100, report=reported.append)

    assert not store.keep(make_key(), files, {})

    assert codes(reported) == ["E004"]
    assert "PORTING_CACHE_MAX_BYTES" in reported[0].help[0]


def test_removing_says_whether_something_was_removed(store, make_key, files):
    store.keep(make_key(), files, {})

    assert store.remove(make_key().digest)
    assert not store.remove(make_key().digest)
    assert store.find(make_key()) is None


# -- locks -------------------------------------------------------------------------------------------------------------


def test_one_thread_after_the_other_works_on_a_key(store, make_key):
    inside, most = [], []

    def work():
        with store.lock(make_key()) as is_held:
            assert is_held
            inside.append(1)
            most.append(len(inside))
            time.sleep(0.02)
            inside.pop()

    threads = [threading.Thread(target=work) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert most == [1] * 5
    assert list((store.programs / ".locks").iterdir()) == []


def test_a_lock_that_is_not_to_be_had_in_time_is_not_held(store, make_key):
    with store.lock(make_key()), store.lock(make_key(), timeout_seconds=0.05) as is_held:
        assert not is_held


def test_an_error_within_the_lock_releases_it(store, make_key):
    with contextlib.suppress(RuntimeError), store.lock(make_key()):
        raise RuntimeError("compiler")

    with store.lock(make_key(), timeout_seconds=0.0) as is_held:
        assert is_held


def test_entries_that_are_damaged_are_listed_with_their_problem(store, make_key, files):
    store.keep(make_key(), files, {})
    flip(store.programs / make_key().digest)

    assert [entry.problem for entry in store.list_entries()] == [""]
    (thorough,) = store.list_entries(is_thorough=True)
    assert thorough.manifest is None
    assert "another content" in thorough.problem


def test_a_lost_explanation_does_not_hinder_a_program(store, make_key, files):
    store.keep(make_key(), files, {})
    path = store.programs / make_key().digest / EXPLANATION
    path.write_bytes(b"x" * path.stat().st_size)

    assert store.find(make_key()) is not None


def test_failures_are_remembered_for_their_key_and_this_compiler(store, make_key, monkeypatch):
    store.failures.note(make_key(), "inductor", "the compiler crashed")
    store.failures.note(make_key(), "aot", "it took too long")

    assert store.failures.read(make_key().digest) == {"inductor": "the compiler crashed", "aot": "it took too long"}
    assert store.failures.read(make_key(threads=2).digest) == {}
    monkeypatch.setattr("porting.executables.store.find_compiler", lambda: "/opt/another/g++")
    assert store.failures.read(make_key().digest) == {}


def test_failures_can_be_forgotten(store, make_key):
    store.failures.note(make_key(), "aot", "it took too long")

    assert store.failures.forget(make_key().digest)
    assert store.failures.read(make_key().digest) == {}
    assert not store.failures.forget(make_key().digest)


@pytest.mark.parametrize("text", ["", "[]", '{"format": "porting-failures", "failures": [1]}', "[" * 100_000])
def test_a_damaged_record_of_failures_is_no_record(text, store, make_key):
    store.failures.note(make_key(), "aot", "it took too long")
    path = store.programs / ".failures" / f"{make_key().digest}.json"
    path.write_text(text)

    assert store.failures.read(make_key().digest) == {}
    assert store.failures.read_all() == {}
    store.failures.note(make_key(), "aot", "again")
    assert store.failures.read(make_key().digest) == {"aot": "again"}
