"""One change of what an executable depends on, in plain words and with the place where it was made."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Dict, Iterable, List, Optional, Tuple

from ..diagnostics import Place, list_names

__all__ = ["Change", "format_value", "join_changes", "split_names"]

_MAX_TEXT = 60
_MAX_NAMED = 3

# Kinds of values that are a name; "torch" is what older keys called them all.
_NAMED = frozenset(["dtype", "device", "flag", "float", "torch"])
_ENDINGS = ("weight", "bias")
_SHOWN = ("kind", "what", "before", "after", "detail", "where", "file", "line")


@dataclass(frozen=True)
class Change:
    """`what` changed from `before` to `after`, or appeared or disappeared, which `what` says then.

    `kind` is the section of the key, or a part of one; `detail` says which things are concerned, or how many. `where`
    says where it was set, `file` and `line` too if that is a line. `words` are names that a line which sets it may
    contain, and `operator_place` is where the operator stands.
    """

    kind: str
    what: str
    before: str = ""
    after: str = ""
    words: Tuple[str, ...] = ()
    operator_place: Optional[Tuple[str, int]] = None
    detail: str = ""
    where: str = ""
    file: str = ""
    line: int = 0

    @property
    def text(self) -> str:
        """The change as reports tell it.

        >>> Change("operator", "dropout p", "0.1", "0.2", where="at config.py:14").text
        'dropout p 0.1 -> 0.2 at config.py:14'
        """
        text = f"{self.what} {self.before} -> {self.after}" if self.before or self.after else self.what
        text += f" {self.where}" if self.where else ""
        detail = self.detail if self.kind == "processor" else f"({self.detail})"
        return f"{text} {detail}" if self.detail else text

    @property
    def place(self) -> Optional[Place]:
        """The place as findings have it, or None."""
        return Place(self.file, self.line) if self.file and self.line else None

    def to_dict(self) -> Dict[str, Any]:
        """Return plain values, fit for JSON, the text among them."""
        return {**{name: getattr(self, name) for name in _SHOWN}, "text": self.text}


def join_changes(changes: Iterable[Change]) -> List[Change]:
    """Make one change of those that say the same of several things: its detail names or counts them."""
    alike: Dict[Tuple[str, ...], List[Change]] = {}
    for change in changes:
        alike.setdefault((change.kind, change.what, change.before, change.after), []).append(change)
    found = []
    for group in alike.values():
        names = list(dict.fromkeys(change.detail for change in group if change.detail))
        detail = list_names(names, most=1 if group[0].kind == "size" else _MAX_NAMED, quote="")
        if group[0].kind == "operator" and len(group) > 1:
            detail = f"{len(group)} operators"
        words = dict.fromkeys(word for change in group[:_MAX_NAMED] for word in change.words)
        found.append(replace(group[0], words=tuple(words), detail=detail))
    return found


def format_value(value: Any, *, most: int = _MAX_TEXT) -> str:
    """Write a value of the components for people, in `most` characters.

    >>> [format_value(value) for value in (0.1, [3, 3], {"dtype": "float16"}, {"%": 3}, None)]
    ['0.1', '[3, 3]', 'float16', 'a tensor', 'none']
    """
    if value is None:
        return "none"
    if isinstance(value, dict):
        ((kind, content),) = value.items() if len(value) == 1 else [("", None)]
        return "a tensor" if kind == "%" else str(content) if kind in _NAMED else "something else"
    text = f"[{', '.join(map(format_value, value))}]" if isinstance(value, (list, tuple)) else str(value)
    return text if len(text) <= most else f"{text[: most - 3]}..."


def split_names(*names: str) -> Tuple[str, ...]:
    """Return the words that dotted names are made of, without numbers and the endings that torch gives parameters."""
    parts = [part for name in names for part in name.split(".")]
    return tuple(dict.fromkeys(part for part in parts if part and not part.isdigit() and part not in _ENDINGS))
