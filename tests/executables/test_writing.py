"""An entry is written with its files, a manifest that knows their checksums, and an explanation."""

from __future__ import annotations

import os

import pytest

from porting.executables import writing
from porting.executables.entry import EXPLANATION, MANIFEST, compute_checksum
from porting.executables.writing import sync_tree, write_entry


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
    monkeypatch.setattr(writing.os, "fsync", synced.append)
    monkeypatch.setattr(writing, "sync_folder", folders.append)

    sync_tree(files)

    assert len(synced) == 2
    assert set(folders) == {files, files / "step"}
