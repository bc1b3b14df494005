"""Make `poptorch` and its companions importable; Python imports a module of this name when it starts.

The folder is on `PYTHONPATH` of a simulated program and thereby of every Python that the program starts. Afterwards it
is gone from `sys.path`, and the `sitecustomize` that would have been found without it has run.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from importlib.machinery import PathFinder

_FOLDER = os.path.dirname(os.path.abspath(__file__))


def _start() -> None:
    sys.path[:] = [entry for entry in sys.path if not entry or os.path.abspath(entry) != _FOLDER]
    if importlib.util.find_spec("porting") is None:
        # another interpreter than the one that has this package installed, or a clone that is not installed
        sys.path.append(os.path.abspath(os.path.join(_FOLDER, *[os.pardir] * 3)))
    from porting.aliases import COMPANIONS, VENDOR, install_aliases

    install_aliases(replace=VENDOR, provide=COMPANIONS)
    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        module = sys.modules["sitecustomize"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)


# not when a tool imports it as a part of the package
if __name__ == "sitecustomize":
    _start()
