"""What each call of the catalogue comes to on one module with PopTorch's API, as JSON: `python -m ...outcomes MODULE`.

Written for the Python and torch of PopTorch 3.4 and for those of the simulator: both sides run this file.
"""

from __future__ import annotations

import enum
import gc
import importlib
import json
import logging
import os
import re
import sys
from typing import Any, Callable, Dict, List

import torch

from tests.hardware.calls import CALLS

_ORIGINS = {"poptorch_py_error": "front end", "poptorch_cpp_error": "core", "popart_exception": "core"}
_PUBLIC_ERRORS = ("RecoverableError", "UnrecoverableError", "Error")


class _Warnings(logging.Handler):
    """Collect the texts that PopTorch's Python logger says at warning level and above."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: List[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the text."""
        self.texts.append(_plain_text(record.getMessage()))


def outcome(call: Callable[[Any], Any], poptorch: Any) -> Dict[str, Any]:
    """Return what a call gives: a plain `value`, or the class, origin and text of its `error`; and its `warnings`."""
    torch.manual_seed(0)
    warnings = _Warnings()
    logger = logging.getLogger("poptorch::python")
    logger.addHandler(warnings)
    try:
        return {"value": _plain(call(poptorch)), "warnings": warnings.texts}
    except Exception as error:  # whatever it is, it is the outcome
        return {"error": _described(error), "warnings": warnings.texts}
    finally:
        logger.removeHandler(warnings)
        poptorch.setLogLevel("WARN")
        gc.collect()
        gc.freeze()  # what is left is of modules, and need not be looked through after every call
        _free_devices(poptorch)


def _described(error: Exception) -> Dict[str, str]:
    origin = _ORIGINS.get(getattr(error, "type", ""), "")
    text = getattr(error, "message", None) if origin else None
    return {"class": _public_class(error), "origin": origin, "text": _plain_text(text or str(error))}


def _public_class(error: Exception) -> str:
    """Name the class that a user would catch: PopTorch's three, or the error's own."""
    names = [cls.__name__ for cls in type(error).__mro__]
    return next((name for name in names if name in _PUBLIC_ERRORS), names[0])


def _plain_text(text: str) -> str:
    text = text.replace("porting.simulator", "poptorch")
    text = re.sub(r"0x[0-9a-f]+", "0x", " ".join(text.split()))
    return re.sub(r"\b\w+\.(?=\w+\(\) (missing|takes|got))", "", text)  # newer versions of Python name the class


def _plain(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        numbers = value.detach().to("cpu", torch.float64).flatten().tolist()
        return {"tensor": str(value.dtype), "shape": list(value.shape), "values": numbers}
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, dict):
        return {str(_plain(key)): _plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        kind = [] if type(value) in (list, tuple) else [type(value).__name__]
        return kind + [_plain(entry) for entry in value]
    if isinstance(value, (set, frozenset)):
        return sorted(_plain(entry) for entry in value)
    if value is None or isinstance(value, (bool, int, float)):
        return value
    return _plain_text(value) if isinstance(value, str) else f"a {type(value).__name__}"


def _free_devices(poptorch: Any) -> None:
    """Give free what executors in reference cycles hold of the stub's devices."""
    attached = getattr(sys.modules.get(f"{poptorch.__name__}.poptorch_core"), "_attached", None)
    if attached is not None:
        attached.clear()


def main(module: str, only: str = "") -> None:
    """Print the outcomes of all calls whose name has the text `only` in it."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what calls and compilers print is no outcome
    torch.set_num_threads(1)
    poptorch = importlib.import_module(module)
    out.write(json.dumps({name: outcome(call, poptorch) for name, call in CALLS.items() if only in name}))
    out.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
