"""Read the table of the device's operators, which is data for each version of its software (`operators-3.4.json`).

`operator_support` uses it. `operators` are torch's own, by the names that a captured graph has for them; `functions`
are those that programs call, with the vendor's notes; `refused_forms` are the messages that refuse some forms of
operators that the device has.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Mapping, Tuple

__all__ = [
    "DEFAULT_VERSION",
    "OperatorEntry",
    "OperatorTable",
    "RefusedForm",
    "read_function_table",
    "read_operator_table",
]

DEFAULT_VERSION = "3.4"
"""The version of PopTorch whose operators count."""


@dataclass(frozen=True)
class OperatorEntry:
    """The device's support of an operator or function: `status` is "supported", "partial" or "unsupported".

    `remedy` is the code to write instead, if known; `in_ports` means that `to_ipu` computes it by other operators.
    Without `gradient` it is for inference alone.
    """

    status: str
    note: str = ""
    remedy: str = ""
    in_ports: bool = False
    gradient: bool = True
    dtypes: Tuple[str, ...] = ()


@dataclass(frozen=True)
class RefusedForm:
    """The remedy for refusals with these `words`."""

    words: str
    remedy: str = ""
    in_ports: bool = False


@dataclass(frozen=True)
class OperatorTable:
    """The tables of one version of the device's software."""

    software: str
    operators: Mapping[str, OperatorEntry]
    refused_forms: Tuple[RefusedForm, ...] = ()

    def is_lacking(self, name: str) -> bool:
        """Tell whether the device has no such operator, directly or as a composition; unknown ones may be the latter.

        >>> read_operator_table().is_lacking("lgamma"), read_operator_table().is_lacking("relu")
        (True, False)
        """
        entry = self.operators.get(name)
        return entry is not None and entry.status == "unsupported"

    def find_remedy(self, name: str, message: str = "") -> str:
        """Return the code to write instead of an operator, or of the form that `message` refuses; may be empty."""
        form = next((form for form in self.refused_forms if form.remedy and form.words in message), None)
        if message and form is not None:
            return form.remedy
        entry = self.operators.get(name)
        return "" if entry is None else entry.remedy

    def is_computed_in_ports(self, name: str, message: str = "") -> bool:
        """Tell whether `to_ipu` computes an operator, or the form that `message` refuses, by other operators."""
        if message:
            return any(form.in_ports and form.words in message for form in self.refused_forms)
        entry = self.operators.get(name)
        return entry is not None and entry.in_ports


@functools.lru_cache(maxsize=None)
def read_operator_table(version: str = DEFAULT_VERSION) -> OperatorTable:
    """Read the table of one version; FileNotFoundError for one that has none.

    >>> read_operator_table().operators["huber_loss"].in_ports
    True
    """
    data = _read_file(version)
    return OperatorTable(
        software=data["software"],
        operators=_read_entries(data["operators"]),
        refused_forms=tuple(RefusedForm(**form) for form in data["refused_forms"]),
    )


@functools.lru_cache(maxsize=None)
def read_function_table(version: str = DEFAULT_VERSION) -> Mapping[str, OperatorEntry]:
    """Read the device's support of functions and modules that programs name; FileNotFoundError as above.

    >>> read_function_table()["torch.linalg.svd"].status
    'unsupported'
    """
    return _read_entries(_read_file(version)["functions"])


def _read_file(version: str) -> Dict[str, Any]:
    text = Path(__file__).with_name(f"operators-{version}.json").read_text(encoding="utf-8")
    data: Dict[str, Any] = json.loads(text)
    return data


_SUPPORTED = OperatorEntry("supported")


def _read_entries(data: Mapping[str, Mapping[str, Any]]) -> Dict[str, OperatorEntry]:
    plain = {"status": "supported"}
    # most are, and a first call waits for this
    return {
        name: _SUPPORTED if entry == plain else OperatorEntry(**{**entry, "dtypes": tuple(entry.get("dtypes", ()))})
        for name, entry in data.items()
    }
