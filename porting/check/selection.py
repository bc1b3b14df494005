"""The kinds of findings that are wanted: codes, slugs and families, as `--select` and `--ignore` name them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterable, Sequence, Tuple

from porting.diagnostics import CODES, find_code, join_names
from porting.diagnostics.codes import FAMILIES, suggest_names

__all__ = ["Selection", "UnknownCodeError", "read_codes"]


class UnknownCodeError(ValueError):
    """A name is no code, slug or family; the message says which ones are near."""


@dataclass(frozen=True)
class Selection:
    """The codes that are wanted: those of `selected`, or all if there are none, without those of `ignored`."""

    selected: Tuple[str, ...] = ()
    ignored: Tuple[str, ...] = ()

    def includes(self, code: str) -> bool:
        """Tell whether findings of a code are wanted.

        >>> Selection(selected=("L",), ignored=("L002",)).includes("L003")
        True
        """
        is_selected = not self.selected or code.startswith(self.selected)
        return is_selected and not (self.ignored and code.startswith(self.ignored))


def read_codes(texts: Iterable[str]) -> Tuple[str, ...]:
    """Read names parted by commas: `L001`, `loss-outside-forward`, or the first characters of codes, such as `L`.

    Raises UnknownCodeError for a name that is none of these.

    >>> read_codes(["host-read,O", "b01"])
    ('C001', 'O', 'B01')
    """
    return tuple(_read_code(name.strip()) for text in texts for name in text.split(",") if name.strip())


def _read_code(name: str) -> str:
    code = find_code(name)
    if code is not None:
        return code.code
    if any(known.startswith(name.upper()) for known in CODES):
        return name.upper()
    near: Sequence[str] = suggest_names(name) if len(name) > 1 else ()
    families = join_names(FAMILIES, quote="")
    advice = f"did you mean {join_names(near, quote='')}?" if near else f"families are {families}"
    raise UnknownCodeError(f"no code, slug or family {name!r}; {advice}")
