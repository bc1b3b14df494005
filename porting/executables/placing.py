"""Finds where a change was made: the line of the source, the word of the command line or the variable that is another.

The line that contains the new value where the old one stood before wins, then a command line argument with it, then the
only line that changed at all, and last the place of the operator itself.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from difflib import SequenceMatcher
from typing import Any, Dict, FrozenSet, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from .changes import Change

__all__ = ["Placing"]

_TOKEN = re.compile(r"(?:\d[\d_]*\.?[\d_]*|\.\d[\d_]*)(?:[eE][+-]?\d+)?|[^\W\d]\w*")
_SAME = {"half": "float16", "float": "float32", "double": "float64", "long": "int64", "sgd1": "sgd", "sgd2": "sgd"}

_NEW_VALUE, _OLD_VALUE, _WORD = 4, 2, 1
_MAX_WORDS = 2

_Tokens = FrozenSet[str]


class _Setting(NamedTuple):
    """Something that was set otherwise before: what is in it now, and what was there in its place.

    `is_variable` tells a variable of the environment.
    """

    where: str
    tokens: _Tokens
    before: _Tokens = frozenset()
    file: str = ""
    line: int = 0
    is_variable: bool = False


class Placing:
    """Compares two recorded programs, as `record_sources` made them, once for all changes."""

    def __init__(self, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
        """Find what was set otherwise before."""
        self._folder = str(new.get("folder", ""))
        files = [_read_table(sources, "files") for sources in (old, new)]
        words = [_read_words(sources) for sources in (old, new)]
        self._lines = [setting for file in files[1] for setting in self._list_lines(file, *files)]
        self._others = [*_list_arguments(*words), *_list_variables(old, new)]
        # an argument that is gone may be the reason, and cannot be shown
        self._has_fewer_words = len(words[1]) < len(words[0])

    def place_changes(self, changes: Sequence[Change]) -> List[Tuple[bool, Change]]:
        """Return `changes` with where each was made, and whether that is certain.

        What one change shows its new value in explains no other one that it says nothing of.
        """
        sure = [_find_best(self._lines, change) or _find_best(self._others, change) for change in changes]
        claimed = {setting.where for setting in sure if setting is not None}
        found = []
        for setting, change in zip(sure, changes):
            setting = setting or self._find_probable(change, claimed)
            if setting is None and change.operator_place is not None:
                file, line = change.operator_place
                found.append((False, replace(change, where=self._describe_line(file, line), file=file, line=line)))
            elif setting is None:
                found.append((False, change))
            else:
                found.append((True, replace(change, where=setting.where, file=setting.file, line=setting.line)))
        return found

    def _find_probable(self, change: Change, claimed: Set[str]) -> Optional[_Setting]:
        """Return the only setting that names the thing, else the only one that there is."""
        scored = [(_score(setting, change), setting) for setting in (*self._lines, *self._others)]
        free = [(score, setting) for score, setting in scored if setting.where not in claimed]
        named = [setting for score, setting in free if score]
        # a variable explains only what is called like it
        free = [(score, setting) for score, setting in free if score or not setting.is_variable]
        if len(named) == 1:
            return named[0]
        is_only = len(free) == 1 and not claimed and not self._has_fewer_words
        return free[0][1] if is_only else None

    def _list_lines(self, file: str, old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[_Setting]:
        """List the lines of a file that are others than before, without comments."""
        before, after = ([line.partition("#")[0] for line in files.get(file, "").splitlines()] for files in (old, new))
        if not before:
            return  # all of it is new, and explains nothing
        for tag, a, b, c, d in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
            for index in range(c, d) if tag in ("replace", "insert") else ():
                is_paired = b - a == d - c
                tokens = _tokens_of(after[index])
                earlier = [before[a + index - c]] if is_paired else before[a:b]
                former = frozenset(token for line in earlier for token in _tokens_of(line))
                if tokens and not (is_paired and tokens == former):
                    yield _Setting(self._describe_line(file, index + 1), tokens, former, file, index + 1)

    def _describe_line(self, file: str, line: int) -> str:
        is_below = self._folder and os.path.isabs(file) and file.startswith(os.path.join(self._folder, ""))
        return f"at {os.path.relpath(file, self._folder) if is_below else file}:{line}"


def _list_arguments(old: Sequence[str], new: Sequence[str]) -> Iterator[_Setting]:
    """List the arguments of the command line that are others than before, with what they are called."""
    old, new = old[1:], new[1:]
    for tag, _a, _b, first, last in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        for index in range(first, last) if tag in ("replace", "insert") else ():
            word, option = new[index], new[index - 1] if index and new[index - 1].startswith("-") else ""
            # an option without `=` is told together with its value
            is_followed = index + 1 < last and not new[index + 1].startswith("-")
            if not (word.startswith("-") and "=" not in word and is_followed):
                shown = word if word.startswith("-") else f"{option} {word}".strip()
                yield _Setting(f"by `{shown}`", _tokens_of(shown.replace("-", " ")))


def _list_variables(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[_Setting]:
    before = _read_table(old, "environment")
    for name, value in _read_table(new, "environment").items():
        if before.get(name) != value:
            tokens = _tokens_of(f"{name} {value}")
            yield _Setting(f"by {name}={value} in the environment", tokens, is_variable=True)


def _find_best(settings: Sequence[_Setting], change: Change) -> Optional[_Setting]:
    """Return the setting with the new value that explains a change best."""
    scored = [(_score(setting, change), setting) for setting in settings]
    scored = [item for item in scored if item[0] >= _NEW_VALUE]
    return max(scored, key=lambda item: item[0])[1] if scored else None


def _score(setting: _Setting, change: Change) -> int:
    """Tell how well a setting explains a change: by its new value, by the former one, by what it is called."""
    left, right = _tokens_of(change.before), _tokens_of(change.after)
    # of `[16, 3]` and `[32, 3]` it is 16 and 32 that count
    before, after = left - right or left, right - left or right
    words = {_normalise(word) for word in change.words} & setting.tokens
    if setting.is_variable:
        return _NEW_VALUE if words else 0  # numbers such as 1 stand in many
    score = _NEW_VALUE * bool(after & setting.tokens)
    score += _OLD_VALUE * bool(score and before & setting.before)
    return score + _WORD * min(_MAX_WORDS, len(words))


def _tokens_of(text: str) -> _Tokens:
    return frozenset(map(_normalise, _TOKEN.findall(text)))


def _normalise(token: str) -> str:
    """Write numbers of one value alike, and names in whatever spelling: `MaxPool2d` is `max_pool2d`."""
    try:
        return repr(float(token))
    except ValueError:
        name = token.replace("_", "").lower()
        return _SAME.get(name, name)


def _read_table(sources: Mapping[str, Any], name: str) -> Dict[str, str]:
    value = sources.get(name)
    is_table = isinstance(value, dict) and all(isinstance(item, str) for item in value.values())
    return dict(value) if is_table and value else {}


def _read_words(sources: Mapping[str, Any]) -> List[str]:
    value = sources.get("arguments")
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []
