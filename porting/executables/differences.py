"""One difference between what two executables depend on, before anybody knows where it was set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, List, Optional, Tuple

__all__ = ["Difference", "plain_text", "words_of"]

_MAX_TEXT = 60
# Kinds of values that are a name.
_NAMED = frozenset(["dtype", "device", "flag", "float"])


@dataclass(frozen=True)
class Difference:
    """`what` changed from `before` to `after`, or appeared or disappeared, which `what` says then.

    `kind` is the section of the key, or a part of one. `words` are names that a line which sets it may contain;
    `place` is where the operator stands, and `detail` says how many things are concerned.
    """

    kind: str
    what: str
    before: str = ""
    after: str = ""
    words: Tuple[str, ...] = ()
    place: Optional[Tuple[str, int]] = None
    detail: str = ""

    @property
    def text(self) -> str:
        """The difference in a few words.

        >>> Difference("operator", "dropout p", "0.1", "0.2").text
        'dropout p 0.1 -> 0.2'
        """
        return f"{self.what} {self.before} -> {self.after}" if self.before or self.after else self.what


def plain_text(value: Any) -> str:
    """Write a value of the components for people.

    >>> plain_text(0.1), plain_text([3, 3]), plain_text({"dtype": "float16"}), plain_text({"%": 3}), plain_text(None)
    ('0.1', '[3, 3]', 'float16', 'a tensor', 'none')
    """
    if value is None:
        return "none"
    if isinstance(value, dict):
        if set(value) == {"%"}:
            return "a tensor"
        return str(*value.values()) if set(value) < _NAMED and value else "something else"
    if isinstance(value, (list, tuple)):
        text = ", ".join(map(plain_text, value))
        return _shortened(f"[{text}]")
    return _shortened(str(value))


def words_of(*names: str) -> Tuple[str, ...]:
    """Return the words that dotted names are made of, without numbers and the endings that torch gives parameters."""
    found: List[str] = []
    for name in names:
        found += [part for part in name.split(".") if part and not part.isdigit() and part not in ("weight", "bias")]
    return tuple(dict.fromkeys(found))


def _shortened(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else f"{text[: _MAX_TEXT - 3]}..."
