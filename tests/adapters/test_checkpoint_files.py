"""Files of `torch.save`, whole, damaged and foreign."""

from __future__ import annotations

import pickle

import pytest
import torch
from torch import nn

from porting.adapters.checkpoint_files import read_tensors
from porting.diagnostics import CheckpointError

TENSORS = {"weight": torch.arange(1000.0), "nested": [torch.ones(2), 3]}


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "tensors.pt"
    torch.save(TENSORS, path)
    return path


def reason(path):
    with pytest.raises(CheckpointError) as caught:
        read_tensors(path)
    assert caught.value.code == "K001"
    assert caught.value.finding.message == f"`{path}` cannot be loaded"
    return caught.value.finding.notes[0]


def test_a_whole_file_is_read(file):
    torch.testing.assert_close(read_tensors(file), TENSORS)


def test_a_file_without_checksums_is_read(tmp_path):
    path = tmp_path / "tensors.pt"
    had_checksums = torch.serialization.get_crc32_options()
    torch.serialization.set_crc32_options(False)
    try:
        torch.save(TENSORS, path)
    finally:
        torch.serialization.set_crc32_options(had_checksums)

    torch.testing.assert_close(read_tensors(path), TENSORS)


def test_a_file_of_the_old_format_is_read(tmp_path):
    path = tmp_path / "tensors.pt"
    torch.save(TENSORS, path, _use_new_zipfile_serialization=False)

    torch.testing.assert_close(read_tensors(path), TENSORS)


def test_one_flipped_bit_in_the_weights_is_found(file):
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)

    assert reason(file).startswith("the archive is cut off or corrupt: Bad CRC-32")


@pytest.mark.parametrize("share", [0.1, 0.5, 0.99])
def test_a_truncated_file_is_found(file, share):
    content = file.read_bytes()
    file.write_bytes(content[: int(len(content) * share)])

    assert reason(file).startswith("the archive is cut off or corrupt")


def test_an_empty_file_is_found(file):
    file.write_bytes(b"")

    assert reason(file) == "it is empty"


@pytest.mark.parametrize("content", [b"hello, world\n" * 10, b"\x80\x02.", b"\x00" * 100])
def test_something_else_is_found(file, content):
    file.write_bytes(content)

    assert "torch" in reason(file)


def test_a_pickled_model_is_named_and_not_run(tmp_path):
    path = tmp_path / "model.pt"
    torch.save(nn.Linear(2, 2), path)

    with pytest.raises(CheckpointError) as caught:
        read_tensors(path)

    assert "torch.nn.modules.linear.Linear" in caught.value.finding.notes[0]
    assert "model.state_dict()" in caught.value.finding.help[0]


def test_a_pickle_that_would_run_code_is_not_run(tmp_path):
    path = tmp_path / "evil.pt"
    path.write_bytes(pickle.dumps({"weight": _Touch(tmp_path / "touched")}, protocol=2))

    reason(path)

    assert not (tmp_path / "touched").exists()


def test_a_file_that_is_not_there_is_pythons_own_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_tensors(tmp_path / "nowhere.pt")


class _Touch:
    """Pickled, it makes a file when somebody unpickles it."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")
