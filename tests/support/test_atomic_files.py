"""Files appear as a whole or not at all."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest

from porting.support.atomic_files import replacing_file, write_atomically


def test_a_file_replaces_the_old_one_and_leaves_nothing_else(tmp_path):
    write_atomically(tmp_path / "file", b"old")

    write_atomically(tmp_path / "file", b"new")

    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_bytes() == b"new"


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    write_atomically(tmp_path / "file", b"old")

    def fail(*_args):
        raise OSError("no space left")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="no space left"):
        write_atomically(tmp_path / "file", b"new")

    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_bytes() == b"old"


def test_a_folder_that_is_not_there_is_said_with_the_name_that_was_given(tmp_path):
    path = tmp_path / "absent" / "file"

    with pytest.raises(FileNotFoundError) as caught, replacing_file(path):
        pass

    assert caught.value.filename == str(path)


def test_a_link_to_a_file_stays_a_link(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(Path("folder", "file"))

    for content in (b"new", b"newer"):
        write_atomically(tmp_path / "link", content)

    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "folder" / "file").read_bytes() == b"newer"


def test_a_device_is_not_replaced_by_a_file(tmp_path):
    write_atomically(Path(os.devnull), b"text")

    assert not os.path.isfile(os.devnull)


def test_an_error_while_a_file_is_written_leaves_the_old_one(tmp_path):
    write_atomically(tmp_path / "file", b"old")

    with contextlib.suppress(KeyboardInterrupt), replacing_file(tmp_path / "file") as file:
        file.write(b"half")
        raise KeyboardInterrupt

    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_bytes() == b"old"


def test_nobody_sees_a_file_before_it_is_whole(tmp_path):
    with replacing_file(tmp_path / "file") as file:
        file.write(b"half")
        file.flush()

        assert not (tmp_path / "file").exists()
    assert (tmp_path / "file").read_bytes() == b"half"


def test_the_longest_name_that_a_file_can_have_can_be_written(tmp_path):
    path = tmp_path / ("n" * 255)

    write_atomically(path, b"text")

    assert path.read_bytes() == b"text"


def test_folders_are_made_for_a_whole_file_and_not_for_an_open_one(tmp_path):
    write_atomically(tmp_path / "a" / "file", b"text")

    assert (tmp_path / "a" / "file").exists()
    with pytest.raises(FileNotFoundError), replacing_file(tmp_path / "b" / "file"):
        pass
