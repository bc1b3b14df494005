"""Where a change was made: the line of the source, the word of the command line or the variable that is another now.

The line that contains the new value where the old one stood before wins, then a command line argument with it, then the
only line that changed at all, and last the place of the operator itself.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cached_property
from typing import AbstractSet, Any, Dict, FrozenSet, Iterator, List, Mapping, Optional, Sequence, Set, Tuple

from .differences import Difference

__all__ = ["Placing", "Setting"]

_TOKEN = re.compile(r"(?:\d[\d_]*\.?[\d_]*|\.\d[\d_]*)(?:[eE][+-]?\d+)?|[^\W\d]\w*")
_SAME = {"half": "float16", "float": "float32", "double": "float64", "long": "int64", "sgd1": "sgd", "sgd2": "sgd"}

# Arguments of operators that programs call otherwise.
_SYNONYMS: Mapping[str, Tuple[str, ...]] = {"p": ("dropout", "drop", "p_drop", "drop_rate")}

_NEW_VALUE, _OLD_VALUE, _WORD = 4, 2, 1
_MAX_WORDS = 2


@dataclass(frozen=True)
class Setting:
    """Where something is set: `where` in words such as "at config.py:14"; `is_certain` if it was changed there."""

    where: str
    file: str = ""
    line: int = 0
    is_certain: bool = True


@dataclass(frozen=True)
class _Line:
    """A line that changed: what is in it now and what was there before."""

    file: str
    number: int
    tokens: FrozenSet[str]
    tokens_before: FrozenSet[str]


class Placing:
    """Compares two recorded programs, as `record_sources` made them, once for all their differences."""

    def __init__(self, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
        """Compare nothing yet."""
        self._old, self._new = old, new

    def settings_of(self, differences: Sequence[Difference]) -> List[Optional[Setting]]:
        """Find where each of `differences` was made; None where nothing is known.

        What one difference shows its new value in explains no other one that it says nothing of.
        """
        sure = [self._line_with_value(difference) or self._word_with_value(difference) for difference in differences]
        claimed = {setting.where for setting in sure if setting is not None}
        return [setting or self._probable(difference, claimed) for setting, difference in zip(sure, differences)]

    def _line_with_value(self, difference: Difference) -> Optional[Setting]:
        """Return the changed line with the new value that explains a difference best."""
        scored = [item for item in self._scored_lines(difference) if item[0] >= _NEW_VALUE]
        return self._at_line(max(scored, key=lambda item: item[0])[1]) if scored else None

    def _word_with_value(self, difference: Difference) -> Optional[Setting]:
        scored = [item for item in self._scored_words(difference) if item[0] >= _NEW_VALUE]
        return Setting(max(scored, key=lambda item: item[0])[1]) if scored else None

    def _probable(self, difference: Difference, claimed: AbstractSet[str]) -> Optional[Setting]:
        """Return the only change that names the thing, else the only change that there is, else the operator's line."""
        lines = [(score, self._at_line(line)) for score, line in self._scored_lines(difference)]
        words = [(score, Setting(shown)) for score, shown in self._scored_words(difference)]
        found = [item for item in (*lines, *words) if item[1].where not in claimed]
        named = [setting for score, setting in found if score > 0]
        if len(named) == 1:
            return named[0]
        if len(found) == 1 and not claimed and not self._has_fewer_words:
            return found[0][1]
        return self._at(*difference.place, is_certain=False) if difference.place is not None else None

    def _at_line(self, line: _Line) -> Setting:
        return self._at(line.file, line.number)

    def _at(self, file: str, number: int, *, is_certain: bool = True) -> Setting:
        return Setting(f"at {self._shown(file)}:{number}", file, number, is_certain)

    def _shown(self, file: str) -> str:
        folder = str(self._new.get("folder", ""))
        is_below = folder and os.path.isabs(file) and file.startswith(os.path.join(folder, ""))
        return os.path.relpath(file, folder) if is_below else file

    def _scored_lines(self, difference: Difference) -> List[Tuple[int, _Line]]:
        """Return the changed lines, each with how well it explains a difference."""
        after, before = _value_tokens(difference.after, difference.before)
        words = _normalised(difference.words)
        return [(_score(line, after, before, words), line) for line in self._lines]

    @cached_property
    def _lines(self) -> List[_Line]:
        """The lines that are others than before, without comments."""
        old, new = _dictionary(self._old.get("files")), _dictionary(self._new.get("files"))
        found: List[_Line] = []
        for file, text in new.items():
            before = old.get(file) or _moved_file(file, old, new)
            if before is not None and before != text:
                found += _changed_lines(file, before, text)
        return found

    # -- the command line and the environment ------------------------------------------------------------------------

    def _scored_words(self, difference: Difference) -> List[Tuple[int, str]]:
        """Return the changed arguments and variables, each with how well it explains a difference."""
        after, _before = _value_tokens(difference.after, difference.before)
        words = _normalised(difference.words)
        found = [
            (_NEW_VALUE * bool(after & tokens) + _WORD * min(_MAX_WORDS, len(words & tokens)), shown)
            for shown, tokens in self._words
        ]
        # a variable explains only what is called like it: numbers such as 1 stand in many
        return found + [(_NEW_VALUE, shown) for shown, tokens in self._variables if words & tokens]

    @property
    def _has_fewer_words(self) -> bool:
        old, new = (_texts(sources.get("arguments")) for sources in (self._old, self._new))
        return len(new) < len(old)

    @cached_property
    def _words(self) -> List[Tuple[str, FrozenSet[str]]]:
        """The arguments of the command line that are others than before, with what they are called."""
        old, new = (_texts(sources.get("arguments"))[1:] for sources in (self._old, self._new))
        found = []
        for tag, _a, _b, first, last in SequenceMatcher(a=old, b=new, autojunk=False).get_opcodes():
            if tag in ("replace", "insert"):
                for index in range(first, last):
                    option = new[index - 1] if index and new[index - 1].startswith("-") else ""
                    is_option = new[index].startswith("-") and "=" not in new[index]
                    is_followed = index + 1 < last and not new[index + 1].startswith("-")
                    if not (is_option and is_followed):
                        shown = new[index] if new[index].startswith("-") else f"{option} {new[index]}".strip()
                        found.append((f"by `{shown}`", _tokens(shown.replace("-", " "))))
        return found

    @cached_property
    def _variables(self) -> List[Tuple[str, FrozenSet[str]]]:
        old, new = (_dictionary(sources.get("environment")) for sources in (self._old, self._new))
        return [
            (f"by {name}={value} in the environment", _tokens(f"{name} {value}"))
            for name, value in new.items()
            if old.get(name) != value
        ]


def _score(line: _Line, after: Set[str], before: Set[str], words: Set[str]) -> int:
    score = _NEW_VALUE * bool(after & line.tokens)
    score += _OLD_VALUE * bool(score and before & line.tokens_before)
    return score + _WORD * min(_MAX_WORDS, len(words & line.tokens))


def _value_tokens(after: str, before: str) -> Tuple[Set[str], Set[str]]:
    """Return the tokens of two values that are not in both, so that `[16, 3]` and `[32, 3]` are 16 and 32."""
    left, right = _tokens(before), _tokens(after)
    return set(right - left) or set(right), set(left - right) or set(left)


def _normalised(words: Sequence[str]) -> Set[str]:
    every = [*words, *(synonym for word in words for synonym in _SYNONYMS.get(word, ()))]
    return {_normal(word) for word in every}


def _tokens(text: str) -> FrozenSet[str]:
    return frozenset(_normal(token) for token in _TOKEN.findall(text))


def _normal(token: str) -> str:
    """Write numbers of one value alike, and names in whatever spelling: `MaxPool2d` is `max_pool2d`."""
    try:
        return repr(float(token))
    except ValueError:
        name = token.replace("_", "").lower()
        return _SAME.get(name, name)


def _changed_lines(file: str, before: str, after: str) -> Iterator[_Line]:
    old, new = before.splitlines(), after.splitlines()
    for tag, a, b, c, d in SequenceMatcher(a=old, b=new, autojunk=False).get_opcodes():
        if tag not in ("replace", "insert"):
            continue
        for index in range(c, d):
            tokens = _tokens(_without_comment(new[index]))
            counterparts = [old[a + index - c]] if b - a == d - c else old[a:b]
            earlier = frozenset(token for line in counterparts for token in _tokens(_without_comment(line)))
            if tokens and not (b - a == d - c and tokens == earlier):
                yield _Line(file, index + 1, tokens, earlier)


def _without_comment(line: str) -> str:
    """Return a line up to a `#` that does not stand in a string."""
    match = re.match(r"""(?:[^#"']|"(?:\\.|[^"\\])*"?|'(?:\\.|[^'\\])*'?)*""", line)
    return match[0] if match else line


def _moved_file(file: str, old: Mapping[str, str], new: Mapping[str, str]) -> Optional[str]:
    """Return the text of the only earlier file of the same name that is no longer there."""
    name = os.path.basename(file)
    found = [text for path, text in old.items() if os.path.basename(path) == name and path not in new]
    return found[0] if len(found) == 1 else None


def _dictionary(value: Any) -> Dict[str, str]:
    is_right = isinstance(value, dict) and all(isinstance(item, str) for item in value.values())
    return value if is_right else {}


def _texts(value: Any) -> List[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []
