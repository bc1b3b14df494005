"""A step file is read as it was written or refused with a name; nothing that can happen to a file is a crash."""

from __future__ import annotations

import hashlib
import json
import random
import struct
import zlib

import pytest
import torch

from porting.diagnostics import ExecutableError
from porting.executables.step_file import read_step_file, write_step_file
from porting.exports import is_step_file, load_step

HEAD = 12 + 4 + 32 + 8


def with_header(content, change):
    """Return a file whose header was changed and whose checksum is right again."""
    (length,) = struct.unpack("<Q", content[HEAD - 8 : HEAD])
    header = json.loads(zlib.decompress(content[HEAD : HEAD + length]))
    change(header)
    text = zlib.compress(json.dumps(header).encode())
    rest = struct.pack("<Q", len(text)) + text + content[HEAD + length :]
    return content[:16] + hashlib.sha256(rest).digest() + rest


def paths_of(value, path=()):
    """List the ways to all values inside of nested lists and tables."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from paths_of(item, (*path, key))


def test_values_and_tensors_come_back(tmp_path):
    tensors = {"a": torch.randn(2, 3), "b": torch.tensor(True), "c": torch.empty(0, 4, dtype=torch.int16)}
    tensors["d"] = torch.randn(4, 4, dtype=torch.float16).t()

    write_step_file(tmp_path / "file", {"number": 1}, tensors)

    header, found = read_step_file(tmp_path / "file")
    assert header == {"number": 1}
    assert all(
        torch.equal(found[name], tensor) and found[name].dtype == tensor.dtype for name, tensor in tensors.items()
    )


def test_a_failed_write_leaves_the_file_that_was_there(tmp_path):
    write_step_file(tmp_path / "file", {"number": 1}, {})

    with pytest.raises(ValueError, match="JSON compliant"):
        write_step_file(tmp_path / "file", {"number": float("nan")}, {})

    assert read_step_file(tmp_path / "file")[0] == {"number": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("content", [b"", b"PORT", b"hello, world" * 100])
def test_another_file_is_no_step(tmp_path, content):
    (tmp_path / "file").write_bytes(content)

    with pytest.raises(ExecutableError, match="E023"):
        load_step(tmp_path / "file")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ExecutableError, match="there is no such file"):
        load_step(tmp_path / "missing.step")


def test_a_folder_is_no_missing_file_that_is_meant_itself(tmp_path):
    with pytest.raises(ExecutableError, match="it is a folder") as caught:
        read_step_file(tmp_path)

    assert caught.value.finding.help == ("name the file in it that `porting export` wrote",)


def test_a_step_file_is_told_from_others(step_file, tmp_path):
    (tmp_path / "train.py").write_text("pass")

    assert [is_step_file(path) for path in (step_file, tmp_path / "train.py", tmp_path / "no")] == [True, False, False]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("share", [0.0, 0.001, 0.01, 0.3, 0.9, 0.9999])
def test_a_file_that_is_cut_off_is_refused(step_file, share):
    content = step_file.read_bytes()
    step_file.write_bytes(content[: int(len(content) * share)])

    with pytest.raises(ExecutableError, match="E023"):
        load_step(step_file)


def test_every_flipped_bit_is_noticed(step_file):
    content = step_file.read_bytes()
    chance = random.Random(0)
    positions = [*range(HEAD), *(chance.randrange(len(content)) for _ in range(100))]
    codes = set()

    for position in positions:
        damaged = bytearray(content)
        damaged[position] ^= 1 << chance.randrange(8)
        step_file.write_bytes(damaged)
        with pytest.raises(ExecutableError) as raised:
            load_step(step_file)
        codes.add(raised.value.code)

    assert codes == {"E023", "E024"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "value", [None, -1, 2**70, "x", [], {}, {"node": "no"}, {"body": []}, "op:aten.nothing.default"]
)
def test_a_header_with_another_value_anywhere_is_refused_or_harmless(step_file, value):
    content = step_file.read_bytes()
    (length,) = struct.unpack("<Q", content[HEAD - 8 : HEAD])
    header = json.loads(zlib.decompress(content[HEAD : HEAD + length]))
    paths = [path for path in paths_of(header) if path and "places" not in path]

    for path in random.Random(0).sample(paths, 60):

        def change(values, path=path):
            for key in path[:-1]:
                values = values[key]
            values[path[-1]] = value

        step_file.write_bytes(with_header(content, change))
        try:
            load_step(step_file)
        except ExecutableError as error:
            assert error.code in ("E023", "E024", "E027")  # noqa: PT017 - what is harmless may as well be read


@pytest.mark.parametrize("written", ["2.0.1", "99.1.0", ""])
def test_a_step_of_another_torch_is_refused(step_file, written):
    step_file.write_bytes(with_header(step_file.read_bytes(), lambda header: header["versions"].update(torch=written)))

    with pytest.raises(ExecutableError, match="E024"):
        load_step(step_file)


def test_a_name_cannot_smuggle_a_program_in(step_file, tmp_path):
    def change(header):
        node = next(node for node in header["graph"]["nodes"] if node["target"].startswith("op:"))
        node["kwargs"][f"x=open({str(tmp_path / 'written')!r}, 'w'), y"] = 1

    step_file.write_bytes(with_header(step_file.read_bytes(), change))

    with pytest.raises(ExecutableError, match="E023"):
        load_step(step_file)
    assert not (tmp_path / "written").exists()


def test_operators_that_reach_out_of_the_process_are_refused(step_file):
    def change(header):
        node = next(node for node in header["graph"]["nodes"] if node["target"].startswith("op:"))
        node["target"] = "op:aten.from_file.default"

    step_file.write_bytes(with_header(step_file.read_bytes(), change))

    with pytest.raises(ExecutableError, match="E023"):
        load_step(step_file)
