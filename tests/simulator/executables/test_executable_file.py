"""The file format of saved executables: sections with checksums, and errors that name the file and the byte."""

from __future__ import annotations

import pytest

from porting.simulator._executables.executable_file import (
    appendPoptorchMetadataToFile,
    importPoptorchMetadataFromFile,
    read_graph_record,
    write_executable_file,
)
from porting.simulator.errors import Error


@pytest.fixture
def file(tmp_path):
    """Give a saved executable."""
    write_executable_file(tmp_path / "file", {"format": 1}, b"metadata")
    return tmp_path / "file"


def test_both_parts_come_back(file):
    assert importPoptorchMetadataFromFile(file) == b"metadata"
    assert read_graph_record(file) == {"format": 1}


def test_the_name_may_be_a_string(file):
    assert importPoptorchMetadataFromFile(str(file)) == b"metadata"


def test_appended_metadata_take_the_place_of_the_old(file):
    appendPoptorchMetadataToFile(b"other", file)

    assert importPoptorchMetadataFromFile(file) == b"other"
    assert read_graph_record(file) == {"format": 1}


def test_a_file_of_another_kind_is_refused(tmp_path):
    (tmp_path / "file").write_bytes(b"\x80\x02pickle")

    with pytest.raises(
        Error, match=r"Invalid file .*/file: it is not an executable that the simulator saved \(byte 0\)"
    ):
        importPoptorchMetadataFromFile(tmp_path / "file")


def test_metadata_are_not_appended_to_a_file_of_another_kind(tmp_path):
    (tmp_path / "file").write_bytes(b"text")

    with pytest.raises(Error, match="not an executable"):
        appendPoptorchMetadataToFile(b"metadata", tmp_path / "file")

    assert (tmp_path / "file").read_bytes() == b"text"


def test_a_missing_file_is_the_systems_error(tmp_path):
    with pytest.raises(FileNotFoundError, match="file"):
        importPoptorchMetadataFromFile(tmp_path / "file")


@pytest.mark.parametrize("num_bytes", [13, 20, 60, -1])
def test_a_file_that_ends_too_early_is_refused_with_the_place(file, num_bytes):
    whole = file.read_bytes()
    file.write_bytes(whole[:num_bytes])

    with pytest.raises(Error, match=r"Invalid file .*/file: it ends .* \(byte \d+\)"):
        importPoptorchMetadataFromFile(file)


def test_changed_bytes_are_found(file):
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)

    with pytest.raises(Error, match=r"the content does not match its checksum \(byte \d+\)"):
        importPoptorchMetadataFromFile(file)


def test_a_later_format_is_told_apart(file):
    content = bytearray(file.read_bytes())
    content[12] = 9
    file.write_bytes(content)

    with pytest.raises(Error, match=r"it has the format 9, this version reads 2 \(byte 12\)"):
        read_graph_record(file)


def test_a_missing_part_is_named(tmp_path):
    write_executable_file(tmp_path / "file", {}, b"metadata")
    head = (tmp_path / "file").read_bytes()[:16]
    (tmp_path / "file").write_bytes(head)

    with pytest.raises(Error, match="Invalid file .*/file: it has no metadata"):
        importPoptorchMetadataFromFile(tmp_path / "file")
