"""List the remedies for libraries: those of this package, and a program's own.

`Remedies` selects those that a model needs.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Dict, Tuple

from torch.utils.hooks import RemovableHandle

from porting.diagnostics import OptionError
from porting.remedies.entries import Remedy
from porting.remedies.transformers_values import TRANSFORMERS

__all__ = ["list_remedies", "register_remedy"]

_registered: Dict[int, Remedy] = OrderedDict()


def list_remedies() -> Tuple[Remedy, ...]:
    """List all remedies, a program's own last.

    >>> sorted({remedy.library for remedy in list_remedies()})
    ['transformers']
    """
    return (*TRANSFORMERS, *_registered.values())


def register_remedy(remedy: Remedy) -> RemovableHandle:
    """Apply a remedy to what is compiled from now on, until its handle is removed; a `with` statement does that too.

    Raises OptionError P002 for a name that another remedy has.
    """
    if any(known.name == remedy.name for known in list_remedies()):
        raise OptionError.at_caller(
            "P002", message=f"there is a remedy `{remedy.name}` already", help="give this one another name"
        )
    handle = RemovableHandle(_registered)
    _registered[handle.id] = remedy
    return handle
