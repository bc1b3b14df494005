"""Explains why an executable was not found: the nearest earlier one, what is different, and where that was set.

The components of two keys are arranged by names and compared in one walk. A table says what the paths of changes mean.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import chain, repeat
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Tuple

from ..diagnostics import Finding
from .changes import Change, format_value, join_changes, place_changes, split_names
from .entry import DamagedEntryError, Manifest, read_explanation
from .graph_changes import list_graph_changes
from .identity import EXPLAINED, ExecutableKey, to_canonical_json
from .store import ExecutableStore

__all__ = ["MissReport", "explain", "explain_miss"]

# So many earlier executables are looked at in detail, of all that there are.
_MAX_COMPARED = 6
# So much of two graphs must be the same for one to explain the other.
_LEAST_LIKENESS, _LEAST_OF_CLASS = 0.5, 0.25
_MAX_NOTES = 12

# What is told first among changes of which no line is known, and among those of which one is.
_ORDER = (
    "versions processor operator layer size constant dtype frozen input plan optimizer trained precision engine "
    "threads extra tensor"
).split()
# Machines and installations set these; a program sets the rest.
_SET_OUTSIDE = ("versions", "processor")

# Names that a line may have for what is compared, besides its own.
_WORDS: Mapping[str, Tuple[str, ...]] = {
    "batch": ("batch_size", "micro_batch", "bs"),
    "iterations": ("device_iterations", "deviceIterations"),
    "accumulation": ("gradientAccumulation", "gradient_accumulation"),
    "replicas": ("replicationFactor",),
    "output_mode": ("outputMode",),
    "output_period": ("output_every", "outputMode"),
    "dtype": ("precision", "half", "bfloat16", "float16"),
    "precision": ("set_float32_matmul_precision", "use_deterministic_algorithms"),
    "engine": ("PORTING_ENGINE",),
    "threads": ("set_num_threads", "OMP_NUM_THREADS", "num_threads"),
}


class _Phrase(NamedTuple):
    """What is said of a change: `pattern` is that of its path, in which `{0}`, `{1}`, ... are the parts.

    In `what`, the text before `|` is that of something new or true, the text behind it that of something gone or
    false; no values are shown then. `words` are names that a line may have for it, `detail` is what it happened to.
    """

    pattern: str
    kind: str
    what: str
    words: str = ""
    detail: str = ""


# The first that fits counts; what has no kind is told by something else. Of all other paths the parts themselves are
# said, without the section where it says nothing.
_PHRASES = (
    _Phrase("constants/number", "constant", "constants"),
    _Phrase("constants/*/*", "constant", "constant {1}"),
    _Phrase("inputs/batch", "input", "batch", "batch"),
    _Phrase("inputs/number", "input", "number of inputs"),
    _Phrase("inputs/*/name", "input", "name of an input"),
    _Phrase("inputs/*/shape", "input", "input `{name}` shape", "shape {name}"),
    _Phrase("inputs/*/layout", "input", "memory layout of input `{name}`"),
    _Phrase("inputs/*/dtype", "dtype", "input `{name}` dtype"),
    _Phrase("*/*/dtype", "dtype", "dtype of {0}", detail="{1}"),
    _Phrase("*/*/trained", "frozen", "{0} now trained|{0} now frozen", "requires_grad freeze {1}", "{1}"),
    _Phrase("*/*/layout", "tensor", "other memory layout of {0}|", "channels_last memory_format", "{1}"),
    _Phrase("order of*", "tensor", "{0}|"),
    _Phrase("*/*/shape", "", ""),
    _Phrase("parameters/*", "tensor", "{0} added|{0} removed", "{1}", "{1}"),
    _Phrase("buffers/*", "tensor", "{0} added|{0} removed", "{1}", "{1}"),
    _Phrase("optimizer/number", "optimizer", "parameter groups", "param_groups"),
    _Phrase("optimizer/*/family", "optimizer", "optimizer", "optimizer {after}"),
    _Phrase(
        "optimizer/*/parameters/*",
        "trained",
        "the optimizer trains more parameters{group}|the optimizer trains fewer parameters{group}",
        detail="{3}",
    ),
    _Phrase("optimizer/*/*", "optimizer", "optimizer {2}{group}", "{2} optimizer"),
    _Phrase("processor/instructions/*", "processor", "the processor has|the processor lacks", detail="{2}"),
    _Phrase("plan/iterations", "plan", "device iterations", "iterations"),
)

_SILENT = ("plan", "versions", "extra")

# Sections that have a form of their own, and the facts of a tensor.
_ARRANGED = (EXPLAINED, "graph", "tensors", "constants", "optimizer")
_FIELDS = ("shape", "layout", "dtype", "trained")
_NO_SETTINGS = ("family", "slots", "parameters")

Components = Mapping[str, Any]
_Path = Tuple[str, ...]
_Values = Tuple[Any, Any]


@dataclass(frozen=True)
class _Shown:
    """A value that is compared, with another that people want to see in its place; None where that is not known."""

    value: Any
    shown: Any = field(compare=False)

    def __str__(self) -> str:
        return format_value(self.shown)


@dataclass(frozen=True)
class MissReport:
    """What changed since the executable `digest` was kept at the time `created`, most telling first."""

    digest: str
    created: float
    changes: Tuple[Change, ...]

    @property
    def message(self) -> str:
        """The finding's message, as in "recompiled: dropout p 0.1 -> 0.2 at config.py:14"."""
        more = len(self.changes) - 1
        others = f" and {more} more change{'s' if more > 1 else ''}" if more else ""
        return f"recompiled: {self.changes[0].text}{others}"

    def to_dicts(self) -> List[Dict[str, Any]]:
        """Return the changes as plain values: what a manifest keeps as `because`."""
        return [change.to_dict() for change in self.changes]

    def to_finding(self) -> Finding:
        """Return finding E006, at the line that made the first change where that is known."""
        notes = [f"also: {change.text}" for change in self.changes[1:_MAX_NOTES]]
        hidden = len(self.changes) - _MAX_NOTES
        notes += [f"and {hidden} more; `porting cache why --last` lists all"] if hidden > 0 else []
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(self.created))
        first = self.changes[0]
        place = first.place if first.file and os.path.isfile(first.file) else None
        return Finding(
            "E006",
            message=self.message,
            place=place,
            notes=(*notes, f"compared with the executable {self.digest[:8]} of {when}"),
            help="nothing need be done; with the earlier settings the earlier executable is found again",
        )


def explain_miss(store: ExecutableStore, key: ExecutableKey, *, sources: Mapping[str, Any]) -> Optional[MissReport]:
    """Compare `key` with the executable in the store that least has changed since; None if none is of the same model.

    `sources` is what `record_sources` returned. Damaged entries are passed over.
    """
    found: List[MissReport] = []
    for manifest in _list_candidates(store, key, sources):
        try:
            explanation = read_explanation(store.programs / manifest.digest, manifest)
            has_name = bool(key.model) and manifest.model.get("name") == key.model
            least = _LEAST_OF_CLASS if has_name else _LEAST_LIKENESS
            if _measure_likeness(explanation["components"], key.components) >= least:
                changes = explain(explanation, {"components": key.components, "sources": sources})
                found += [MissReport(manifest.digest, manifest.created, tuple(changes))] if changes else []
        except (DamagedEntryError, AttributeError, IndexError, KeyError, TypeError, ValueError, RecursionError):
            continue  # what somebody else wrote explains nothing
    return min(found, key=lambda report: len(report.changes), default=None)


def _list_candidates(store: ExecutableStore, key: ExecutableKey, sources: Mapping[str, Any]) -> List[Manifest]:
    """Return the earlier executables that are probably of the same model, the likeliest first."""
    ranked = []
    for entry in store.list_entries():
        manifest, mode = entry.manifest, key.components["graph"]["mode"]
        if manifest is not None and entry.digest != key.digest and manifest.model.get("mode") == mode:
            num_same = sum(manifest.sections.get(name) == value for name, value in key.sections.items())
            is_other_model = bool(key.model) and manifest.model.get("name") != key.model
            is_other_program = manifest.model.get("program") != sources.get("program")
            ranked.append(((is_other_model, is_other_program, -num_same, -entry.last_used), manifest))
    return [manifest for _rank, manifest in sorted(ranked, key=lambda item: item[0])[:_MAX_COMPARED]]


def _measure_likeness(*both: Mapping[str, Any]) -> float:
    """Return how much of two steps is the same, as far as their operators and parameters tell."""
    traits = [Counter(name for name, _arguments in components["graph"]["operators"]) for components in both]
    for found, components in zip(traits, both):
        for name, shape, *_ in components["tensors"]["parameters"]:
            found.update([name, (name, tuple(shape))])
    left, right = traits
    return sum((left & right).values()) / max(sum(left.values()), sum(right.values()), 1)


# -- two executables ---------------------------------------------------------------------------------------------------


def explain(old: Mapping[str, Any], new: Mapping[str, Any]) -> List[Change]:
    """List what changed between two explanations (`components` and `sources` each), most telling first.

    Changes of which the line is known that made them come first, then those of versions and the processor.
    """
    changes = _compare_components(old["components"], new["components"])
    set_here = [change for change in changes if change.kind not in _SET_OUTSIDE]
    found = place_changes(set_here, old.get("sources", {}), new.get("sources", {}))
    found += [(False, change) for change in changes if change.kind in _SET_OUTSIDE]
    return [change for _is_certain, change in sorted(found, key=lambda item: (not item[0], _ORDER.index(item[1].kind)))]


def _compare_components(old: Components, new: Components) -> List[Change]:
    """List how the components of a key differ from those of another one."""
    leaves = dict(_walk_differences(_arrange_components(old), _arrange_components(new)))
    _find_batch(leaves)
    found = list_graph_changes(old, new)
    found += [_describe_change(path, values, new) for path, values in leaves.items() if not _is_told(path, leaves)]
    # a layer's parameters come and go with it, and those behind it may have another number in their name
    unsaid = ("", "tensor", "trained") if any(change.kind == "layer" for change in found) else ("",)
    # where nothing above knows what to say of it, something is different all the same
    names = [name for name in sorted({*old, *new} - {EXPLAINED}) if old.get(name) != new.get(name)]
    return join_changes(change for change in found if change.kind not in unsaid) or [
        Change("extra", f"something in the {name} section") for name in names
    ]


def _arrange_components(components: Components) -> Dict[str, Any]:
    """Arrange what is not in the graph so that paths say what values are; what is in a tuple is told by its place."""
    tensors, explained = components["tensors"], components.get(EXPLAINED, {})
    constants, groups = components["constants"], components["optimizer"]
    # canonical, because what was read from a file has that order
    plain = {name: value for name, value in components.items() if name not in _ARRANGED}
    found: Dict[str, Any] = json.loads(to_canonical_json(plain))
    # behind its name, which says more
    found["processor"]["instructions"] = {str(name): True for name in found["processor"].pop("instructions", ())}
    found["inputs"] = tuple(dict(zip(("name", *_FIELDS[:3]), item)) for item in tensors["inputs"])
    for kind in ("parameters", "buffers"):
        found[kind] = {item[0]: dict(zip(_FIELDS, item[1:])) for item in tensors[kind]}
        found[f"order of {kind}"] = list(found[kind])
    shown = chain(explained.get("shown_constants", ()), repeat(None))
    found["constants"] = tuple(
        {"shape": f"{dtype} {format_value(shape)}", "values": _Shown(content, value)}
        for (content, shape, dtype), value in zip(constants, shown)
    )
    numbers = chain(explained.get("numbers", ()), repeat({}))
    found["optimizer"] = tuple(_arrange_group(*pair) for pair in zip(groups, numbers))
    return found


def _arrange_group(group: Mapping[str, Any], numbers: Mapping[str, Any]) -> Dict[str, Any]:
    """Arrange a parameter group: whether there is momentum is part of the program, how much of it is not."""
    parameters = dict.fromkeys(group.get("parameters") or (), True)
    names = {name: {"clips": "max_grad_norm"}.get(name, name) for name in group if name not in _NO_SETTINGS}
    settings = {shown: _Shown(group[name], numbers.get(shown, group[name])) for name, shown in names.items()}
    return {"family": group["family"], **settings, "parameters": parameters}


def _walk_differences(before: Any, after: Any, path: _Path = ()) -> Iterator[Tuple[_Path, _Values]]:
    """Yield the path and the values of each difference; of tuples the items, as far as both go, and their number."""
    if before == after:
        return
    if isinstance(before, dict) and isinstance(after, dict):
        for key in dict.fromkeys([*after, *before]):
            yield from _walk_differences(before.get(key), after.get(key), (*path, key))
    elif isinstance(before, tuple) and isinstance(after, tuple):
        for index, pair in enumerate(zip(before, after)):
            yield from _walk_differences(*pair, (*path, str(index)))
        yield from _walk_differences(len(before), len(after), (*path, "number"))
    else:
        yield path, (before, after)


def _find_batch(leaves: Dict[_Path, _Values]) -> None:
    """Put one change in the place of those of inputs, where all of them differ in their first dimension alone."""
    shapes = {path: pair for path, pair in leaves.items() if path[0] == "inputs" and path[-1] == "shape"}
    batches = {(before[0], after[0]) for before, after in shapes.values() if before and after and before[0] != after[0]}
    if len(batches) == 1 and all(before[1:] == after[1:] for before, after in shapes.values()):
        leaves["inputs", "batch"] = batches.pop()
        for path in shapes:
            leaves[path] = None, None


def _is_told(path: _Path, leaves: Mapping[_Path, _Values]) -> bool:
    """Tell whether a change follows from another one that is told."""
    if path[0] == "optimizer" and (*path[:2], "family") in leaves:
        return path[-1] != "family"  # the settings of two kinds of optimizers have nothing to do with each other
    if path[0].startswith("order of"):
        return sorted(leaves[path][0]) != sorted(leaves[path][1])
    return path[-1] in ("layout", "values") and (*path[:-1], "shape") in leaves


def _describe_change(path: _Path, values: _Values, new: Components) -> Change:
    """Say what the table says of a path; a change without a kind is not worth telling."""
    told = " ".join(part for part in path[path[0] in _SILENT :] if part != "name")
    plain = _Phrase("", path[0] if path[0] in _ORDER else "extra", told, " ".join(path[1:]))
    phrase = next((row for row in _PHRASES if fnmatchcase("/".join(path), row.pattern)), plain)
    before, after = map(format_value, values)
    name = new["tensors"]["inputs"][int(path[1])][0] if path[0] == "inputs" and path[1].isdigit() else ""
    group = f" of parameter group {path[1]}" if path[0] == "optimizer" and len(new["optimizer"]) > 1 else ""
    facts = {"after": after.lower(), "group": group, "name": name}
    new_or_true, bar, gone_or_false = phrase.what.partition("|")
    what = (new_or_true if values[1] or not bar else gone_or_false).format(*path, **facts).replace("_", " ")
    named = [*phrase.words.format(*path, **facts).split(), *([phrase.kind] if phrase.kind in _WORDS else [])]
    words = split_names(*named, *(other for name in named for other in _WORDS.get(name, ())))
    if path[0] == "constants" and path[-1] == "values" and (before == after or "none" in (before, after)):
        _content, shape, dtype = new["constants"][int(path[1])]
        what, bar = f"{what} has other values, {dtype} {format_value(shape)}", "|"
    kind = "" if before == after and not bar else phrase.kind
    shown = ("", "") if bar else (before, after)
    return Change(kind, what or phrase.kind, *shown, words, detail=phrase.detail.format(*path))
