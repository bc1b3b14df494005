"""Manifests and explanations: what was written is read, and whatever else there is has one error and no other."""

from __future__ import annotations

import gzip
import json
import os
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from porting.executables import entry
from porting.executables.entry import (
    EXPLANATION,
    MANIFEST,
    DamagedEntryError,
    FileFacts,
    Manifest,
    compute_checksum,
    pack_explanation,
    read_explanation,
    read_manifest,
    sync_tree,
    write_entry,
)

DIGEST = "0123456789abcdef" * 2
MANIFEST_OF_TODAY = Manifest(
    digest=DIGEST,
    sections={"graph": "a"},
    created=1.5e9,
    model={"name": "Net"},
    engine="auto",
    versions={"torch": "2.13.0"},
    processor={"name": "cpu"},
    files={"step/program.so": FileFacts(3, DIGEST)},
    content={"speed_up": 1.5},
    because=({"text": "dropout p 0.1 -> 0.2"},),
)
VALUES = json.loads(MANIFEST_OF_TODAY.to_json())

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)


def entry_with(folder, explanation):
    """Make an entry whose explanation has these bytes, with the right checksum."""
    path = folder / DIGEST
    path.mkdir()
    (path / EXPLANATION).write_bytes(explanation)
    facts = FileFacts(len(explanation), compute_checksum(path / EXPLANATION))
    return path, replace(MANIFEST_OF_TODAY, files={EXPLANATION: facts})


def test_a_manifest_that_was_written_is_read_again():
    assert Manifest.from_json(MANIFEST_OF_TODAY.to_json()) == MANIFEST_OF_TODAY


@given(st.binary())
def test_any_bytes_are_a_damaged_manifest(content):
    with pytest.raises(DamagedEntryError):
        Manifest.from_json(content)


@pytest.mark.slow
@given(anything)
def test_any_json_is_a_damaged_manifest(values):
    with pytest.raises(DamagedEntryError):
        Manifest.from_json(json.dumps(values).encode())


@given(st.sampled_from(sorted(VALUES)), anything)
def test_a_manifest_with_another_value_somewhere_is_read_or_damaged(name, value):
    try:
        manifest = Manifest.from_json(json.dumps({**VALUES, name: value}).encode())
    except DamagedEntryError:
        return

    assert Manifest.from_json(manifest.to_json()).files == manifest.files


@pytest.mark.parametrize("name", sorted(VALUES))
def test_a_manifest_lacks_nothing(name):
    values = {key: value for key, value in VALUES.items() if key != name}

    with pytest.raises(DamagedEntryError):
        Manifest.from_json(json.dumps(values).encode())


@pytest.mark.parametrize(
    "name", ["../x", "a/../../x", "/etc/passwd", "", "a//b", "a/.", "C:\\x", "a\\..\\x", "a\0b", MANIFEST]
)
def test_a_manifest_names_no_file_outside_of_its_folder(name):
    text = json.dumps({**VALUES, "files": {name: [3, DIGEST]}}).encode()

    with pytest.raises(DamagedEntryError, match="files"):
        Manifest.from_json(text)


@pytest.mark.parametrize("text", [b"[" * 100_000, b'{"format": ' + b"9" * 5000 + b"}", b"\xff\xfe{}"])
def test_json_that_is_made_to_break_readers_is_damaged(text):
    with pytest.raises(DamagedEntryError):
        Manifest.from_json(text)


def test_a_manifest_that_is_too_long_is_not_read(tmp_path):
    (tmp_path / MANIFEST).write_bytes(b" " * (9 << 20))

    with pytest.raises(DamagedEntryError, match="too long"):
        read_manifest(tmp_path)


def test_an_explanation_that_was_packed_is_read_again(tmp_path):
    explanation = {"components": {"threads": 1}, "sources": {"files": {"train.py": "x = 1\n"}}}
    folder, manifest = entry_with(tmp_path, pack_explanation(explanation))

    assert read_explanation(folder, manifest) == explanation


def test_equal_explanations_have_equal_bytes():
    assert pack_explanation({"a": 1, "b": 2}) == pack_explanation({"b": 2, "a": 1})


@pytest.mark.parametrize(
    "content",
    [b"", b"no gzip", *(gzip.compress(text, mtime=0) for text in (b"no json", b"[]", b'{"components": {}}'))],
)
def test_an_explanation_of_something_else_is_damaged(content, tmp_path):
    folder, manifest = entry_with(tmp_path, content)

    with pytest.raises(DamagedEntryError):
        read_explanation(folder, manifest)


def test_an_explanation_that_unpacks_to_gigabytes_is_not_unpacked(tmp_path):
    folder, manifest = entry_with(tmp_path, gzip.compress(b" " * (65 << 20)))

    with pytest.raises(DamagedEntryError, match="too long"):
        read_explanation(folder, manifest)


def test_a_file_and_its_bytes_have_the_same_checksum(tmp_path):
    (tmp_path / "file").write_bytes(b"text")

    assert compute_checksum(tmp_path / "file") == compute_checksum(b"text")


# -- writing -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "entry").mkdir()
    return tmp_path / "entry"


def write(folder, key, files, **sections):
    return write_entry(folder, key, files, {"kind": "test"}, sources={"program": "train.py"}, because=(), **sections)


def test_files_come_with_their_sizes_and_checksums(folder, make_key, files):
    manifest = write(folder, make_key(), files)

    assert set(manifest.files) == {"layout.json", "step/program.so", EXPLANATION}
    for name, facts in manifest.files.items():
        assert (facts.num_bytes, facts.checksum) == (os.path.getsize(folder / name), compute_checksum(folder / name))


def test_the_model_is_described_by_its_key_and_its_program(folder, make_key, files):
    manifest = write(folder, make_key(), files)

    assert manifest.model == {"name": "Net", "mode": "training", "program": "train.py", "num_operators": 3}
    assert manifest.engine == "auto"


def test_a_manifest_among_the_files_is_not_taken_over(folder, make_key, files):
    (files / MANIFEST).write_text("somebody else's")

    manifest = write(folder, make_key(), files)

    assert (folder / MANIFEST).read_bytes() == manifest.to_json()


def test_links_are_followed(folder, make_key, files):
    (files / "linked.so").symlink_to(files / "step" / "program.so")

    write(folder, make_key(), files)

    assert not (folder / "linked.so").is_symlink()
    assert (folder / "linked.so").read_bytes() == (files / "step" / "program.so").read_bytes()


def test_all_files_and_folders_reach_the_disk(files, monkeypatch):
    synced, folders = [], []
    monkeypatch.setattr(entry.os, "fsync", synced.append)
    monkeypatch.setattr(entry, "sync_folder", folders.append)

    sync_tree(files)

    assert len(synced) == 2
    assert set(folders) == {files, files / "step"}
