"""A finding: one fault or fact about a port, as data."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Dict, Optional, Sequence, Tuple, Union

from porting.diagnostics.codes import CODES, Severity
from porting.diagnostics.places import Place

__all__ = ["Finding"]


@dataclass(frozen=True)
class Finding:
    """What was found, where, and what to do about it.

    `message` states the fault and `label` what is wrong with the very span at `place`; `notes` are facts and `help` the
    actions that put it right; a single one may be given as a string. Message and severity default to the code's.
    An unknown code is a ValueError.

    >>> finding = Finding("L001", help="wrap the model: `to_ipu(model, criterion)`")
    >>> finding.slug, finding.message, finding.help
    ('loss-outside-forward', 'the loss is computed outside `forward`', ('wrap the model: `to_ipu(model, criterion)`',))
    """

    code: str
    message: Optional[str] = None
    place: Optional[Place] = None
    label: str = ""
    notes: Union[str, Sequence[str]] = ()
    help: Union[str, Sequence[str]] = ()
    severity: Optional[Severity] = None

    def __post_init__(self) -> None:
        """Fill what the code's table knows and make the lines tuples."""
        if self.code not in CODES:
            raise ValueError(f"unknown code {self.code!r}; porting.diagnostics.CODES lists the known ones")
        code = CODES[self.code]
        object.__setattr__(self, "message", code.title if self.message is None else self.message)
        object.__setattr__(self, "severity", code.severity if self.severity is None else Severity(self.severity))
        object.__setattr__(self, "notes", _make_lines(self.notes))
        object.__setattr__(self, "help", _make_lines(self.help))

    @property
    def slug(self) -> str:
        """The bad thing's name, as in `loss-outside-forward`."""
        return CODES[self.code].slug

    @property
    def title(self) -> str:
        """The message that findings of this code have unless they say more."""
        return CODES[self.code].title

    def to_dict(self) -> Dict[str, Any]:
        """Make a dictionary of plain values, ready for JSON.

        >>> Finding("D001").to_dict()["severity"]
        'error'
        """
        return {
            "code": self.code,
            "slug": self.slug,
            "severity": Severity(self.severity).value,
            "message": self.message,
            "place": None if self.place is None else asdict(self.place),
            "label": self.label,
            "notes": list(self.notes),
            "help": list(self.help),
        }


def _make_lines(text: Union[str, Sequence[str]]) -> Tuple[str, ...]:
    return (text,) if isinstance(text, str) else tuple(text)
