"""Settings of libraries' trainers, in calls and in configurations, that ask for what a loop has lines for."""

from __future__ import annotations

import ast
import itertools
import os
import re
from typing import Iterator, Mapping, NamedTuple, Sequence, Tuple

from porting.diagnostics import Finding, Place
from porting.source.facts import Kind
from porting.source.library import list_result_kinds, list_words
from porting.source.rules.guards import asks_for_cuda
from porting.source.rules.names import name_unsupported_optimizer
from porting.source.rules.reading import Reading
from porting.source.rules.scope import Programs, rule

__all__ = ["iter_configured_settings", "iter_settings_of_trainers"]

_COMPUTED = "?"
_TRAINERS = re.compile(r"(Trainer|Fabric|TrainingArguments|Accelerator)$")


@rule(in_host_loops=False)
def iter_settings_of_trainers(reading: Reading) -> Iterator[Finding]:
    """P013, D012, D013 and O001: a trainer is asked for autocast, a wrapper, CUDA or an optimizer of its own."""
    for call in (call for call in reading.facts.calls if _TRAINERS.search(call.name)):
        words = {word.arg: word.value for word in call.node.keywords if word.arg}
        values = {name: _write_value(node) for name, node in words.items()}
        for code, name in _iter_asked(call.name, values):
            if not (code == "D013" and asks_for_cuda(call.where.guards)):
                place = Place(call.place.file, words[name].lineno, words[name].col_offset + 1)
                yield reading.report(code, place, note=_tell_lacking(values[name]) if code == "O001" else "")


def _iter_asked(maker: str, values: Mapping[str, str]) -> Iterator[Tuple[str, str]]:
    """List the codes of settings that ask for something, with their names."""
    for name, value in values.items() if _TRAINERS.search(maker) else ():
        yield from ((code, name) for code in list_words("settings", f"{maker}({name}={value})"))


def _write_value(node: ast.expr) -> str:
    return str(node.value) if isinstance(node, ast.Constant) else _COMPUTED


def _tell_lacking(name: str) -> str:
    return f"the device has no `{name}`"


# -------------------------------------------------------------------------------- configurations


@rule(Programs.PLAIN)
def iter_configured_settings(reading: Reading) -> Iterator[Finding]:
    """O001, P013, D012 and D013: a configuration names an optimizer, a trainer's settings, or CUDA as the device."""
    folders = [os.path.dirname(file) for file, _text in reading.configurations]
    for file, text in reading.configurations:
        is_chosen = "defaults:" in text or folders.count(os.path.dirname(file)) == 1
        guess = "" if is_chosen else "which of these configurations is chosen is not known"
        entries = list(_iter_entries(text))
        for code, entry, note in itertools.chain.from_iterable(_iter_asked_in(entries, entry) for entry in entries):
            yield reading.report(code, Place(file, entry.line, entry.indent + 1), note=note, guess=guess)


class _Entry(NamedTuple):
    """A key of a configuration in YAML, and its value where it stands in the same line."""

    line: int
    indent: int
    key: str
    value: str


def _iter_entries(text: str) -> Iterator[_Entry]:
    for number, line in enumerate(text.splitlines(), start=1):
        match = _ENTRY.match(line)
        if match:
            value = match["value"].strip("\"' ")
            value = _COMPUTED if value.startswith("${") else value
            yield _Entry(number, len(match["indent"]), match["key"], value.title() if value == "true" else value)


_ENTRY = re.compile(r"(?P<indent>\s*(- )?)(?P<key>\w+):(?P<value>[^#]*)")


def _iter_asked_in(entries: Sequence[_Entry], entry: _Entry) -> Iterator[Tuple[str, _Entry, str]]:
    """Yield what an entry asks for: `device: cuda`, or a `_target_` with what stands beside it."""
    if re.fullmatch(r"(\w+_)?device", entry.key) and re.fullmatch(r"cuda(:\d+)?", entry.value):
        yield "D013", entry, ""
    if entry.key == "_target_":
        name = name_unsupported_optimizer(entry.value)
        if name and Kind.OPTIMIZER in list_result_kinds(entry.value):
            yield "O001", entry, _tell_lacking(name)
        beside = {one.key: one for one in _iter_beside(entries, entry)}
        for code, key in _iter_asked(entry.value, {key: one.value for key, one in beside.items()}):
            yield code, beside[key], ""


def _iter_beside(entries: Sequence[_Entry], entry: _Entry) -> Iterator[_Entry]:
    """List the entries of the mapping that an entry is in."""
    place = entries.index(entry)
    for part in (entries[place:], entries[place::-1]):
        inside = itertools.takewhile(lambda one: one.indent >= entry.indent, part)
        yield from (one for one in inside if one.indent == entry.indent)
