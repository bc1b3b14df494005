"""Reading the npz files of `chainer.serializers.save_npz`: arrays by their paths, without unpickling anything."""

from __future__ import annotations

import os
import re
import zipfile
import zlib
from typing import Any, Dict, Optional, Tuple, Union

import numpy as np

from porting.data.files import make_file_error, require_file

__all__ = ["Arrays", "find_model_entries", "read_arrays"]

Arrays = Dict[str, Optional[np.ndarray]]
"""The arrays of a snapshot by their paths; None for a parameter that never got a value."""

_MODEL_OF_TRAINER = "updater/model:main/"
_MODEL_OF_CLASSIFIER = "predictor/"

# what NumPy and zipfile raise, depending on which byte is wrong
_DAMAGE = (zipfile.BadZipFile, zlib.error, ValueError, EOFError, KeyError, NotImplementedError, OSError, RuntimeError)


def read_arrays(path: Union[str, os.PathLike[str]], *, prefix: Optional[str] = None) -> Tuple[str, Arrays]:
    """Read the arrays whose names begin with `prefix` (see `find_model_entries`); return it and them, named without it.

    Raises PortingError F002 when there is no such file, and F001 that names the entry for one that is damaged or no npz
    file. Entries outside of the prefix, such as an optimizer's state, are not read.
    """
    file = require_file(path, help="save one with `chainer.serializers.save_npz(path, model)`")
    try:
        with zipfile.ZipFile(file) as archive:
            # `save_npz` writes an absolute path where a serializer begins with one
            entries = {re.sub(r"\.npy$", "", record.filename).lstrip("/"): record for record in archive.infolist()}
            prefix = find_model_entries(entries) if prefix is None else prefix
            wanted = {name: record for name, record in entries.items() if name.startswith(prefix)}
            return prefix, {name[len(prefix) :]: _read_array(file, archive, record) for name, record in wanted.items()}
    except _DAMAGE as error:
        raise make_file_error(file, f"no npz file can be read from it: {error}", location="the archive") from error


def find_model_entries(names: Any) -> str:
    """Return what the names of a model's entries begin with: `updater/model:main/` in a snapshot of a trainer.

    A model that is the `predictor` of a Classifier is found inside of it.

    >>> find_model_entries(["updater/model:main/predictor/l1/W", "updater/iteration"])
    'updater/model:main/predictor/'
    >>> find_model_entries(["l1/W", "l1/b"])
    ''
    """
    prefix = _MODEL_OF_TRAINER if any(name.startswith(_MODEL_OF_TRAINER) for name in names) else ""
    inside = [name for name in names if name.startswith(prefix)]
    is_classifier = bool(inside) and all(name.startswith(prefix + _MODEL_OF_CLASSIFIER) for name in inside)
    return prefix + _MODEL_OF_CLASSIFIER if is_classifier else prefix


def _read_array(file: Any, archive: zipfile.ZipFile, record: zipfile.ZipInfo) -> Optional[np.ndarray]:
    """Read one array; None where Chainer has saved Python's None, of which only the type is looked at."""
    try:
        with archive.open(record) as stream:
            version = np.lib.format.read_magic(stream)
            readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
            shape, _is_fortran, dtype = readers[version](stream)
        if dtype.hasobject:
            if shape == ():
                return None
            raise ValueError(f"it holds Python objects of shape {shape}")
        with archive.open(record) as stream:
            array: np.ndarray = np.lib.format.read_array(stream, allow_pickle=False)
            # to the end, where the checksum is looked at
            if stream.read(1):
                raise ValueError("there are bytes behind the array")
        return array
    except (*_DAMAGE, SyntaxError, TypeError, MemoryError, AttributeError) as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise make_file_error(file, reason, location=f"entry `{record.filename}`") from error
