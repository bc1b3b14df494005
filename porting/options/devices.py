"""List the names that `device` and PORTING_DEVICE may have, and load backends that others register.

`to_ipu` and the command line use it.
"""

from __future__ import annotations

import importlib
import os
from types import ModuleType
from typing import Any, Dict, Tuple, Union

from porting.diagnostics import OptionError, join_names, say_kind
from porting.support.entry_points import read_entry_points

__all__ = ["DEVICES", "ENTRY_POINTS", "list_devices", "load_backend", "read_requested_device", "register_backend"]

DEVICES = ("auto", "ipu", "sim")
"""The devices of this package."""

ENTRY_POINTS = "porting.backends"
"""The group of entry points by which an installed package names its backends."""

_REGISTERED: Dict[str, Union[str, ModuleType]] = {}


def register_backend(name: str, module: Union[str, ModuleType]) -> None:
    """Let `to_ipu(device=name)` run on `module`, a module with PopTorch's API or the path that it is imported by.

    It is imported when it is first asked for. A name that was registered before is given to the new module. An
    installed package registers by an entry point of the group `porting.backends` instead. `porting backend check` tells
    whether a module offers what a backend must. Raises OptionError P002 for a name that this package has, or that is
    none.
    """
    if not isinstance(name, str) or not name.isidentifier() or name in DEVICES:
        raise OptionError.at_caller(
            "P002",
            message=f"a backend cannot be called {name!r}",
            help=f"use a name like those of variables, and none of {join_names(DEVICES)}",
        )
    if not isinstance(module, (str, ModuleType)) or not module:
        raise OptionError.at_caller(
            "P002",
            message=f"the backend `{name}` is {say_kind(module)}",
            help="pass a module with PopTorch's API, or its path: `register_backend('name', 'package.module')`",
        )
    _REGISTERED[name] = module


def list_devices() -> Tuple[str, ...]:
    """List the names that `device` may have."""
    others = {*_REGISTERED, *read_entry_points(ENTRY_POINTS)} - set(DEVICES)
    return (*DEVICES, *sorted(others))


def load_backend(name: str) -> Any:
    """Return the module of a registered backend; OptionError P002 with the reason where it cannot be imported."""
    found = _REGISTERED.get(name)
    if isinstance(found, ModuleType):
        return found
    path = found or read_entry_points(ENTRY_POINTS)[name].value
    module, _colon, attribute = path.partition(":")
    try:
        loaded = importlib.import_module(module)
        return getattr(loaded, attribute) if attribute else loaded
    except Exception as error:
        raise OptionError.at_caller(
            "P002",
            message=f"the backend `{name}` cannot be loaded from `{path}`: {type(error).__name__}: {error}",
            help="repair or remove what registers it, or use another device",
        ) from error


def read_requested_device(device: str = "auto") -> str:
    """Return which device was asked for: "auto", "ipu", "sim", or the name of a registered backend.

    An argument other than "auto" wins; otherwise the environment variable PORTING_DEVICE decides. Raises OptionError:
    P002 for an unknown argument, P005 for an unknown value of the variable.
    """
    value = os.environ.get("PORTING_DEVICE", "").strip()
    # looking for the devices of others reads a file of each installed package
    known = DEVICES if device in DEVICES and value in ("", *DEVICES) else list_devices()
    if device not in known:
        raise OptionError.at_caller("P002", message=f"`device` is {device!r}", help=f"use one of {join_names(known)}")
    value = value if value in known else value.lower()
    if device != "auto" or not value:
        return device
    if value not in known:
        raise OptionError.of(
            "P005",
            message=f"the environment variable PORTING_DEVICE is {os.environ['PORTING_DEVICE']!r}",
            help=f"set it to one of {join_names(known, quote='')}, or unset it",
        )
    return value
