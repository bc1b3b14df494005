"""Changes of what an executable depends on, in plain words, and where each was made.

That is the line of the source, the word of the command line or the variable that is another. The line that contains the
new value where the old one stood before wins, then a command line argument with it, then the only line that changed at
all, and last the place of the operator itself.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import Any, Dict, FrozenSet, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from ..diagnostics import Place, join_names

__all__ = ["Change", "format_value", "join_changes", "place_changes", "split_names"]

_MAX_TEXT = 60
_MAX_NAMED = 3

# Kinds of values that are a name; "torch" is what older keys called them all.
_NAMED = frozenset(["dtype", "device", "flag", "float", "torch"])
_ENDINGS = ("weight", "bias")
_SHOWN = ("kind", "what", "before", "after", "detail", "where", "file", "line")

_TOKEN = re.compile(r"(?:\d[\d_]*\.?[\d_]*|\.\d[\d_]*)(?:[eE][+-]?\d+)?|[^\W\d]\w*")
_SAME = {"half": "float16", "float": "float32", "double": "float64", "long": "int64", "sgd1": "sgd", "sgd2": "sgd"}

_NEW_VALUE, _OLD_VALUE, _WORD = 4, 2, 1
_MAX_WORDS = 2

_Tokens = FrozenSet[str]


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
        detail = join_names(names, most=1 if group[0].kind == "size" else _MAX_NAMED, quote="")
        if group[0].kind == "operator" and len(group) > 1:
            detail = f"{len(group)} operators"
        words = dict.fromkeys(word for change in group[:_MAX_NAMED] for word in change.words)
        found.append(replace(group[0], words=tuple(words), detail=detail))
    return found


def format_value(value: object, *, most: int = _MAX_TEXT) -> str:
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


# -- where changes were made -------------------------------------------------------------------------------------------


class _Setting(NamedTuple):
    """Something that was set otherwise before: what is in it now, and what was there in its place.

    `is_variable` tells a variable of the environment.
    """

    where: str
    tokens: _Tokens = frozenset()
    before: _Tokens = frozenset()
    file: str = ""
    line: int = 0
    is_variable: bool = False


_Scored = Tuple[int, _Setting]


def place_changes(
    changes: Sequence[Change], old: Mapping[str, Any], new: Mapping[str, Any]
) -> List[Tuple[bool, Change]]:
    """Return `changes` with where each was made, and whether that is certain.

    `old` and `new` are the programs of two runs, as `record_sources` made them. What one change shows its new value in
    explains no other one that it says nothing of.
    """
    folder, words = str(new.get("folder", "")), [sources.get("arguments", []) for sources in (old, new)]
    settings = [*_iter_lines(old.get("files", {}), new.get("files", {}), folder), *_iter_arguments(*words)]
    for name, value in new.get("environment", {}).items():
        if old.get("environment", {}).get(name) != value:
            where, tokens = f"by {name}={value} in the environment", _find_tokens(f"{name} {value}")
            settings.append(_Setting(where, tokens, is_variable=True))
    scored = [[(_score_setting(setting, change), setting) for setting in settings] for change in changes]
    sure = list(map(_find_best, scored))
    claimed = {setting.where for setting in sure if setting is not None}
    # an argument that is gone may be the reason, and cannot be shown
    is_free = not claimed and len(words[1]) >= len(words[0])
    found = []
    for setting, change, pairs in zip(sure, changes, scored):
        setting = setting or _find_probable([pair for pair in pairs if pair[1].where not in claimed], is_free=is_free)
        is_certain = setting is not None
        if setting is None and change.operator_place is not None:
            file, line = change.operator_place
            setting = _Setting(_describe_line(file, line, folder), file=file, line=line)
        if setting is not None:
            change = replace(change, where=setting.where, file=setting.file, line=setting.line)
        found.append((is_certain, change))
    return found


# -- what was set otherwise --------------------------------------------------------------------------------------------


def _iter_lines(old: Mapping[str, str], new: Mapping[str, str], folder: str) -> Iterator[_Setting]:
    """List the lines of files that are others than before, without comments."""
    for file in new:
        before, after = ([line.partition("#")[0] for line in of.get(file, "").splitlines()] for of in (old, new))
        # where all of a file is new, it explains nothing
        for index, earlier in _iter_new(before, after) if before else ():
            tokens, former = _find_tokens(after[index]), _find_tokens(" ".join(earlier))
            if tokens and tokens != former:
                yield _Setting(_describe_line(file, index + 1, folder), tokens, former, file, index + 1)


def _iter_new(before: Sequence[str], after: Sequence[str]) -> Iterator[Tuple[int, Sequence[str]]]:
    """List the places in `after` of what is new there, with what was in its place."""
    for tag, a, b, c, d in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        for index in range(c, d) if tag in ("replace", "insert") else ():
            yield index, [before[a + index - c]] if b - a == d - c else before[a:b]


def _describe_line(file: str, line: int, folder: str) -> str:
    is_below = folder and os.path.isabs(file) and file.startswith(os.path.join(folder, ""))
    return f"at {os.path.relpath(file, folder) if is_below else file}:{line}"


def _iter_arguments(old: Sequence[str], new: Sequence[str]) -> Iterator[_Setting]:
    """List the arguments of the command line that are others than before, with what they are called."""
    places = [index for index, _earlier in _iter_new(old[1:], new[1:])]
    for index in places:
        word, option = new[1 + index], new[index] if index and new[index].startswith("-") else ""
        # an option without `=` is told together with its value
        is_followed = index + 1 in places and not new[2 + index].startswith("-")
        if not (word.startswith("-") and "=" not in word and is_followed):
            shown = word if word.startswith("-") else f"{option} {word}".strip()
            yield _Setting(f"by `{shown}`", _find_tokens(shown.replace("-", " ")))


# -- which of them explains a change -----------------------------------------------------------------------------------


def _find_best(scored: Sequence[_Scored]) -> Optional[_Setting]:
    """Return the setting with the new value that explains a change best; a line before all others."""
    sure = [pair for pair in scored if pair[0] >= _NEW_VALUE]
    return max(sure, key=lambda pair: (pair[1].line > 0, pair[0]))[1] if sure else None


def _find_probable(scored: Sequence[_Scored], *, is_free: bool) -> Optional[_Setting]:
    """Return the only setting that names the thing, else, if `is_free`, the only one that there is."""
    named = [setting for score, setting in scored if score]
    # a variable explains only what is called like it
    others = [setting for score, setting in scored if is_free and (score or not setting.is_variable)]
    return next((found[0] for found in (named, others) if len(found) == 1), None)


def _score_setting(setting: _Setting, change: Change) -> int:
    """Tell how well a setting explains a change: by its new value, by the former one, by what it is called."""
    left, right = _find_tokens(change.before), _find_tokens(change.after)
    # of `[16, 3]` and `[32, 3]` it is 16 and 32 that count
    before, after = left - right or left, right - left or right
    words = {_normalise_word(word) for word in change.words} & setting.tokens
    if setting.is_variable:
        return _NEW_VALUE if words else 0  # numbers such as 1 stand in many
    score = _NEW_VALUE * bool(after & setting.tokens)
    score += _OLD_VALUE * bool(score and before & setting.before)
    return score + _WORD * min(_MAX_WORDS, len(words))


def _find_tokens(text: str) -> _Tokens:
    return frozenset(map(_normalise_word, _TOKEN.findall(text)))


def _normalise_word(token: str) -> str:
    """Write numbers of one value alike, and names in whatever spelling: `MaxPool2d` is `max_pool2d`."""
    try:
        return repr(float(token))
    except ValueError:
        name = token.replace("_", "").lower()
        return _SAME.get(name, name)
