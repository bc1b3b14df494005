"""Files of the IDX format are read exactly, or the damage is named with its byte."""

import gzip
import struct

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from porting.data.idx import read_idx, read_mnist, read_or_make_digits
from porting.diagnostics import PortingError

TYPES = {"u1": 0x08, "i1": 0x09, "i2": 0x0B, "i4": 0x0C, "f4": 0x0D, "f8": 0x0E}


def idx_bytes(array):
    """Return the file of an array, written by the format's description."""
    name = array.dtype.str[1:]
    header = bytes([0, 0, TYPES[name], array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + array.astype(f">{name}").tobytes()


def error_of(path, content):
    path.write_bytes(content)
    with pytest.raises(PortingError) as caught:
        read_idx(path)
    assert caught.value.finding.code == "F001"
    return str(caught.value)


def value_or_code(path):
    """Return the tensor, or the code of the error."""
    try:
        return read_idx(path)
    except PortingError as error:
        return error.finding.code


SMALL = np.arange(24, dtype="u1").reshape(2, 3, 4)


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "packed"])
@given(
    array=st.sampled_from(sorted(TYPES)).flatmap(
        lambda name: arrays.arrays(
            np.dtype(name), arrays.array_shapes(min_dims=0, max_dims=4, min_side=0), elements={"allow_nan": False}
            if name.startswith("f") else None,
        )
    )
)  # fmt: skip
def test_what_is_written_is_read(tmp_path_factory, pack, array):
    path = tmp_path_factory.mktemp("idx") / "numbers"
    path.write_bytes(pack(idx_bytes(array)))

    tensor = read_idx(path)

    assert tensor.dtype == torch.from_numpy(array.reshape(-1)).dtype
    assert tensor.shape == array.shape
    assert np.array_equal(tensor.numpy(), array)


@pytest.mark.parametrize(
    ("content", "place", "text"),
    [
        (b"", "byte 0", "the two zero bytes of the format are missing: nothing"),
        (b"\x89PNG...", "byte 0", "the two zero bytes of the format are missing: 89 50"),
        (b"\0\0\x07\x01\0\0\0\x01\0", "byte 2", "type 0x07 is unknown"),
        (idx_bytes(SMALL)[:13], "byte 13", "3 sizes of 4 bytes should stand here"),
        (
            idx_bytes(SMALL)[:-5],
            "byte 35",
            "5 of the 24 bytes that its sizes (2, 3, 4) announce are missing",
        ),
        (idx_bytes(SMALL) + b"x", "byte 40", "there is more than the 24 bytes"),
        (b"\0\0\x0e\x03" + b"\xff" * 12, "byte 16", "are missing"),
        (b"\0\0\x08\x64" + b"\0\0\0\x01" * 100 + b"x", "byte 3", "100 sizes"),
        (b"\0\0\x08\x03" + b"\0" * 4 + b"\xff" * 8, "byte 3", "3 sizes"),
        (gzip.compress(idx_bytes(SMALL), mtime=0)[:-9], "of the packed file", "gzip cannot unpack it"),
        (gzip.compress(idx_bytes(SMALL)[:-5], mtime=0), "byte 35", "5 of the 24 bytes"),
    ],
)
def test_damage_is_found_where_it_is(tmp_path, content, place, text):
    error = error_of(tmp_path / "numbers", content)

    assert place in error
    assert text in error


def test_a_wrong_checksum_is_found(tmp_path):
    packed = bytearray(gzip.compress(idx_bytes(SMALL), mtime=0))
    packed[-8] ^= 1

    assert "CRC check failed" in error_of(tmp_path / "numbers.gz", bytes(packed))


def test_a_file_that_is_not_there_is_missing(tmp_path):
    with pytest.raises(PortingError) as caught:
        read_idx(tmp_path / "none")

    assert caught.value.finding.code == "F002"


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "packed"])
@given(data=st.data())
def test_a_damaged_file_gives_an_error_or_an_array(tmp_path_factory, pack, data):
    content = bytearray(pack(idx_bytes(SMALL)))
    content = content[: data.draw(st.integers(0, len(content)))] if data.draw(st.booleans()) else content
    for _ in range(data.draw(st.integers(0, 3)) if content else 0):
        content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    path = tmp_path_factory.mktemp("damaged") / "numbers"
    path.write_bytes(content)

    tensor = value_or_code(path)

    assert tensor == "F001" or tensor.numel() * tensor.element_size() <= 24


def write_mnist(folder, *, num_images, num_labels, suffix="", pack=bytes):
    images = np.arange(num_images * 6, dtype="u1").reshape(num_images, 2, 3)
    (folder / f"t10k-images-idx3-ubyte{suffix}").write_bytes(pack(idx_bytes(images)))
    labels = np.arange(num_labels, dtype="u1")
    (folder / f"t10k-labels-idx1-ubyte{suffix}").write_bytes(pack(idx_bytes(labels)))


@pytest.mark.parametrize(("suffix", "pack"), [("", bytes), (".gz", gzip.compress)])
def test_mnist_is_read_as_images_and_labels(tmp_path, suffix, pack):
    write_mnist(tmp_path, num_images=4, num_labels=4, suffix=suffix, pack=pack)

    images, labels = read_mnist(tmp_path, "t10k")

    assert images.shape == (4, 1, 2, 3)
    assert images.flatten().tolist() == pytest.approx([number / 255 for number in range(24)])
    assert labels.tolist() == [0, 1, 2, 3]
    assert labels.dtype == torch.int64


def test_labels_of_other_images_are_found(tmp_path):
    write_mnist(tmp_path, num_images=4, num_labels=3)

    with pytest.raises(PortingError, match="3 labels, but 4 images in `t10k-images-idx3-ubyte`"):
        read_mnist(tmp_path, "t10k")


def test_images_in_the_place_of_labels_are_found(tmp_path):
    write_mnist(tmp_path, num_images=4, num_labels=4)
    (tmp_path / "t10k-images-idx3-ubyte").replace(tmp_path / "t10k-labels-idx1-ubyte")
    write_mnist(tmp_path / "..", num_images=4, num_labels=4)
    (tmp_path / "../t10k-images-idx3-ubyte").replace(tmp_path / "t10k-images-idx3-ubyte")

    with pytest.raises(PortingError, match="these are no labels from 0 to 255"):
        read_mnist(tmp_path, "t10k")


def test_missing_parts_of_mnist_are_named(tmp_path):
    with pytest.raises(PortingError, match="train-images-idx3-ubyte") as caught:
        read_mnist(tmp_path)

    assert caught.value.finding.code == "F002"


def test_digits_are_drawn_where_no_folder_is_given_and_lie_in_rows_if_asked():
    train_set, test_set = read_or_make_digits(None, num_train=4, num_test=2)
    flat, _test_set = read_or_make_digits(None, num_train=4, num_test=2, is_flat=True)

    assert [len(train_set), len(test_set)] == [4, 2]
    assert torch.equal(train_set.tensors[0].flatten(1), flat.tensors[0])


def test_digits_of_a_folder_are_those_of_its_files(tmp_path):
    for part, num_samples in (("train", 3), ("t10k", 2)):
        (tmp_path / f"{part}-images-idx3-ubyte").write_bytes(idx_bytes(np.zeros((num_samples, 28, 28), dtype="u1")))
        (tmp_path / f"{part}-labels-idx1-ubyte").write_bytes(idx_bytes(np.arange(num_samples, dtype="u1")))

    digits = read_or_make_digits(str(tmp_path), num_train=9, num_test=9)

    assert [part.tensors[1].tolist() for part in digits] == [[0, 1, 2], [0, 1]]
