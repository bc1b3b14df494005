"""Stand in for `examples_utils.load_lib_utils`, which compiles and loads operators written in C++ for an IPU."""

from __future__ import annotations

import glob
import os
from typing import List

from ...._logging import logger
from ... import refuse_unknown_names

__all__ = ["load_lib", "load_lib_all"]


def load_lib(path_to_source: str, *_args: object, **_kwargs: object) -> None:
    """Compile nothing and report that; a model that uses the operator fails later, with the operator's name.

    Raises FileNotFoundError if there is no such source.
    """
    # the one mistake that shows here as on a machine with IPUs
    if not os.path.exists(path_to_source):
        raise FileNotFoundError(f"Custom op source file does not exist: {path_to_source}")
    logger.warning(
        "%s was not compiled: code for the IPU does not run here. The simulator needs a Python function for each "
        "custom operator that a model uses.",
        path_to_source,
    )


def load_lib_all(dir_path: str, *_args: object, **_kwargs: object) -> List[None]:
    """Do what `load_lib` does for every C++ file in a folder and below."""
    sources = sorted(glob.glob(os.path.join(dir_path, "**", "*.cpp"), recursive=True))
    return [load_lib(source) for source in sources]  # type: ignore[func-returns-value]


__getattr__ = refuse_unknown_names("examples_utils.load_lib_utils")
