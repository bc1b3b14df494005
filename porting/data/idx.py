"""Read and write files of the IDX format, in which MNIST and its relatives come, plain or packed with gzip.

B = samples, H and W = height and width in pixels.
"""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path
from typing import BinaryIO, Optional, Tuple, cast

import numpy as np
import torch
from torch.utils.data import TensorDataset

from porting.support.data_files import AnyPath, make_file_error, require_file

from .digits import make_digits

__all__ = ["read_idx", "read_mnist", "read_or_make_digits"]

# the third byte of a file names the type of its numbers, which have the highest byte first
_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}

_HELP = "the format is IDX: two zero bytes, the type, the number of sizes, the sizes, then the numbers"
_PORTION_BYTES = 2**20


def read_mnist(folder: AnyPath, part: str = "train") -> Tuple[torch.Tensor, torch.Tensor]:
    """Read the digits of MNIST, or clothes of Fashion-MNIST: images_B1HW, float32 from 0 to 1, and labels_B, int64.

    `part` is "train" or "t10k", as in the names of the files `train-images-idx3-ubyte` and `train-labels-idx1-ubyte`,
    with or without `.gz`. Files that are not there raise PortingError F002; those that are damaged, or do not fit
    together, F001.
    """
    images_file, images = _read_bytes_of(Path(folder) / f"{part}-images-idx3-ubyte", 3, "images of whole numbers")
    labels_file, labels = _read_bytes_of(Path(folder) / f"{part}-labels-idx1-ubyte", 1, "labels")
    if len(images) != len(labels):
        what = f"{len(labels)} labels, but {len(images)} images in `{images_file.name}`"
        raise make_file_error(labels_file, what, location="byte 4", help="take both files from the same source")
    return images.unsqueeze(1).float() / 255, labels.long()


def read_or_make_digits(
    folder: Optional[AnyPath], *, num_train: int, num_test: int, is_flat: bool = False
) -> Tuple[TensorDataset, TensorDataset]:
    """Read MNIST from a folder, or draw as many digits if there is none; return those to train and those to test with.

    `is_flat` lays the pixels of an image in a row.

    >>> [len(digits) for digits in read_or_make_digits(None, num_train=3, num_test=2)]
    [3, 2]
    """
    if folder:
        parts = [read_mnist(folder, "train"), read_mnist(folder, "t10k")]
    else:
        parts = [make_digits(num_train, seed=0), make_digits(num_test, seed=1)]
    train_set, test_set = (TensorDataset(images.flatten(1) if is_flat else images, labels) for images, labels in parts)
    return train_set, test_set


def read_idx(path: AnyPath) -> torch.Tensor:
    """Read a file of the IDX format, unpacking it if it is packed: a tensor of its sizes and type.

    A file that is not there raises PortingError F002; one that is cut off, too long, or of another format F001, with
    the byte. Memory is taken for the content of the file, whatever the sizes in its head are.
    """
    file = require_file(path)
    with open(file, "rb") as plain:
        is_packed = plain.read(2) == b"\x1f\x8b"
        plain.seek(0)
        content = cast(BinaryIO, gzip.GzipFile(fileobj=plain)) if is_packed else plain
        try:
            return _read_tensor(content, file)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            # gzip reads ahead: its position is at most a portion after the damage
            where = f"byte {plain.tell()} of the packed file, or before"
            raise make_file_error(file, f"gzip cannot unpack it ({error})", location=where) from None


def _read_bytes_of(path: Path, num_dims: int, what: str) -> Tuple[Path, torch.Tensor]:
    """Read a file of whole numbers from 0 to 255, packed or not, in so many dimensions."""
    packed = path.with_name(f"{path.name}.gz")
    file = require_file(packed if packed.is_file() and not path.is_file() else path)
    tensor = read_idx(file)
    if tensor.dim() != num_dims or tensor.dtype != torch.uint8:
        raise make_file_error(file, f"these are no {what} from 0 to 255", location="byte 2", help=_HELP)
    return file, tensor


def _read_tensor(content: BinaryIO, file: Path) -> torch.Tensor:
    magic = content.read(4)
    if len(magic) < 4 or magic[:2] != b"\0\0":
        found = " ".join(f"{byte:02x}" for byte in magic[:2]) or "nothing"
        what = f"the two zero bytes of the format are missing: {found}"
        raise make_file_error(file, what, location="byte 0", help=_HELP)
    if magic[2] not in _TYPES:
        raise make_file_error(file, f"type 0x{magic[2]:02x} is unknown", location="byte 2", help=_HELP)
    header = content.read(4 * magic[3])
    if len(header) < 4 * magic[3]:
        what = f"the file ends, but {magic[3]} sizes of 4 bytes should stand here"
        raise make_file_error(file, what, location=f"byte {4 + len(header)}", help=_HELP)
    sizes = tuple(int(size) for size in np.frombuffer(header, dtype=">u4"))
    dtype = np.dtype(_TYPES[magic[2]])
    numbers = np.frombuffer(_read_numbers(content, file, sizes, start=4 + len(header), dtype=dtype), dtype)
    try:
        return torch.from_numpy(numbers.astype(dtype.newbyteorder("=")).reshape(sizes))
    except ValueError as error:
        # of too many sizes, or of huge ones beside a zero
        what = f"{len(sizes)} sizes that no array can have ({error})"
        raise make_file_error(file, what, location="byte 3", help=_HELP) from None


def _read_numbers(content: BinaryIO, file: Path, sizes: Tuple[int, ...], *, start: int, dtype: np.dtype) -> bytes:
    """Read exactly the numbers that the sizes announce, in portions, so that wrong sizes do not fill the memory."""
    num_bytes = math.prod(sizes) * dtype.itemsize
    portions, missing = [], num_bytes
    while missing:
        portion = content.read(min(missing, _PORTION_BYTES))
        if not portion:
            what = f"the file ends, {missing} of the {num_bytes} bytes that its sizes {sizes} announce are missing"
            raise make_file_error(file, what, location=f"byte {start + num_bytes - missing}")
        portions.append(portion)
        missing -= len(portion)
    # one more read also makes gzip compare its checksum
    if content.read(1):
        what = f"there is more than the {num_bytes} bytes that the sizes {sizes} announce"
        raise make_file_error(file, what, location=f"byte {start + num_bytes}", help=_HELP)
    return b"".join(portions)
