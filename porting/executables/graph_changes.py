"""Explains how one captured graph differs from another: operators, their arguments, layers and their sizes.

Operators of two graphs are paired by their names and layers. Sizes that follow from those of inputs and parameters,
such as the ones of a `view`, are no changes of their own.
"""

from __future__ import annotations

from collections import Counter
from difflib import SequenceMatcher
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from .changes import Change, list_names, plain_text, words_of

__all__ = ["compare_graphs"]

# Larger blocks are not paired: that takes quadratic time.
_MAX_COMPARED = 4_000_000
_MISSING = object()

# Arguments that hold sizes which follow from those of tensors.
_SIZES = frozenset(
    "size shape sizes repeats split_size split_sizes normalized_shape output_size input_size groups end start".split()
)

_Sizes = Tuple[int, int]


class _Operator(NamedTuple):
    """An operator of one of the graphs, with the parameters that it uses: `[name, shape]` each."""

    name: str
    arguments: Mapping[str, Any]
    place: Optional[Tuple[str, int]]
    module: str
    parameters: Tuple[Tuple[str, Tuple[int, ...]], ...]

    @property
    def short_name(self) -> str:
        """The name without library, overload and the mark of writing in place."""
        name = self.name[len("aten.") :].split(".")[0] if self.name.startswith("aten.") else self.name
        name = name[len("native_") :] if name.startswith("native_") else name
        return name.rstrip("_") or name


class _Pairing(NamedTuple):
    """Which operators of two graphs belong together, which replace others, and which have no counterpart."""

    pairs: List[Tuple[_Operator, _Operator]]
    replaced: List[Tuple[_Operator, _Operator]]
    removed: List[_Operator]
    added: List[_Operator]


def _pair_operators(old: Sequence[_Operator], new: Sequence[_Operator]) -> _Pairing:
    """Pair operators of one name and layer in their order, and those between them where there are as many."""
    found = _Pairing([], [], [], [])
    left, right = ([(item.name, item.module) for item in operators] for operators in (old, new))
    # most changes are few: what two graphs begin and end with costs next to nothing
    most = min(len(left), len(right))
    first = next((index for index in range(most) if left[index] != right[index]), most)
    last = next((index for index in range(most - first) if left[-1 - index] != right[-1 - index]), most - first)
    middle = left[first : len(left) - last], right[first : len(right) - last]
    codes = [("replace", 0, len(middle[0]), 0, len(middle[1]))]
    if len(middle[0]) * len(middle[1]) <= _MAX_COMPARED:
        codes = list(SequenceMatcher(None, *middle, autojunk=False).get_opcodes())
    found.pairs.extend(zip(old[:first], new[:first]))
    for _tag, a, b, c, d in codes:
        before, after = old[first + a : first + b], new[first + c : first + d]
        if len(before) == len(after):
            for pair in zip(before, after):
                (found.pairs if pair[0].name == pair[1].name else found.replaced).append(pair)
        else:
            found.removed.extend(before)
            found.added.extend(after)
    found.pairs.extend(zip(old[len(old) - last :], new[len(new) - last :]))
    return found


def compare_graphs(old: Mapping[str, Any], new: Mapping[str, Any]) -> List[Change]:
    """List how the graph and the layers of the components `new` differ from those of `old`."""
    if old["graph"] == new["graph"] and old["tensors"]["parameters"] == new["tensors"]["parameters"]:
        return []
    pairing = _pair_operators(_list_operators(old), _list_operators(new))
    sizes = list(_list_size_changes(pairing.pairs))
    found = _compare_arguments(old, new, pairing.pairs, {pair for _name, pair, _operator in sizes})
    replaced: Dict[Tuple[str, str], List[_Operator]] = {}
    for left, right in pairing.replaced:
        replaced.setdefault((left.short_name, right.short_name), []).append(right)
    for (before, after), operators in replaced.items():
        found.append(_operator_change("operator", before, after, operators, words=(after,)))
    found += _describe_moved(pairing.removed, "removed", new) + _describe_moved(pairing.added, "added", old)
    found += _group_sizes(sizes)
    return found or _find_other_changes(pairing.pairs, old["graph"], new["graph"])


def _list_operators(components: Mapping[str, Any]) -> List[_Operator]:
    """List the operators of a graph, those of the bodies of loops and branches after the operator that runs them."""
    entering = [(item[0], tuple(item[1])) for item in components["tensors"]["parameters"]]
    explained = components.get("explained", {})
    places, modules = explained.get("places", []), explained.get("modules", [])
    found: List[_Operator] = []
    for index, (name, arguments) in enumerate(components["graph"]["operators"]):
        place = places[index] if index < len(places) else None
        where = (str(place[0]), int(place[1])) if place else None, modules[index] if index < len(modules) else ""
        used = [number for number in _list_references(arguments) if number < len(entering)]
        inner = [item for value in arguments.values() if _is_body(value) for item in value["operators"]]
        if name != "getitem" and not name.endswith("_set_grad_enabled"):
            own = {key: value for key, value in arguments.items() if not _is_body(value)}
            found.append(_Operator(name, own, *where, tuple(entering[number] for number in used)))
        found += [_Operator(name, arguments, *where, ()) for name, arguments in inner]
    return found


def _list_references(value: Any) -> Iterator[int]:
    """List the values of the graph that an argument names; those of the body of a loop are numbered for themselves."""
    if isinstance(value, dict) and set(value) == {"%"}:
        yield value["%"]
    elif isinstance(value, (dict, list)) and not _is_body(value):
        # in the order that they have in a file
        for item in (value[key] for key in sorted(value)) if isinstance(value, dict) else value:
            yield from _list_references(item)


def _is_body(value: Any) -> bool:
    return isinstance(value, dict) and "operators" in value


# -- operators ---------------------------------------------------------------------------------------------------------


def _compare_arguments(
    old: Mapping[str, Any],
    new: Mapping[str, Any],
    pairs: Sequence[Tuple[_Operator, _Operator]],
    known: Set[_Sizes],
) -> List[Change]:
    """List arguments that have other values; the same change of several operators is one.

    Sizes of arguments that follow from `known` ones and from those of inputs are left out.
    """
    for before, after in zip(old["tensors"]["inputs"], new["tensors"]["inputs"]):
        if len(before[1]) == len(after[1]):
            known = known | {(a, b) for a, b in zip(before[1], after[1]) if a != b}
    defaults: Dict[str, Any] = {}
    for components in (old, new):
        defaults.update(components.get("explained", {}).get("defaults", {}))
    grouped: Dict[Tuple[str, str, str, str], List[_Operator]] = {}
    for left, right in pairs:
        own = defaults.get(right.name, {})
        for name in dict.fromkeys([*left.arguments, *right.arguments]):
            values = [operator.arguments.get(name, own.get(name, _MISSING)) for operator in (left, right)]
            if _without_references(values[0]) != _without_references(values[1]) and not _follows(name, values, known):
                texts = ["default" if value is _MISSING else plain_text(value) for value in values]
                if texts[0] != texts[1]:
                    grouped.setdefault((f"{right.short_name} {name}", texts[0], texts[1], name), []).append(right)
    return [
        _operator_change(what, before, after, operators, words=(name, what.split()[0]))
        for (what, before, after, name), operators in grouped.items()
    ]


def _operator_change(
    what: str, before: str, after: str, operators: Sequence[_Operator], *, words: Tuple[str, ...]
) -> Change:
    return Change(
        "operator",
        what,
        before,
        after,
        words=words_of(*words, operators[0].module),
        operator_place=operators[0].place,
        detail=f"{len(operators)} operators" if len(operators) > 1 else "",
    )


def _without_references(value: Any) -> Any:
    """Leave the numbers of other operators out of a value, which change with every operator before."""
    if isinstance(value, dict):
        return "%" if set(value) == {"%"} else {key: _without_references(item) for key, item in value.items()}
    return list(map(_without_references, value)) if isinstance(value, list) else (type(value).__name__, value)


def _follows(name: str, values: Sequence[Any], known: Set[_Sizes]) -> bool:
    """Tell whether a change of sizes follows from other sizes: the same, or in the same proportion."""
    left, right = (value if isinstance(value, list) else [value] for value in values)
    if name not in _SIZES or len(left) != len(right) or not all(type(value) is int for value in (*left, *right)):
        return False
    changed = [(a, b) for a, b in zip(left, right) if a != b]
    return all(pair in known or any(pair[0] * b == pair[1] * a for a, b in known) for pair in changed)


def _describe_moved(operators: Sequence[_Operator], verb: str, other: Mapping[str, Any]) -> List[Change]:
    """Describe operators that are only in one of the graphs, and the layers that are, too."""
    others = set(other.get("explained", {}).get("modules", ()))
    layers = list(dict.fromkeys(item.module for item in operators if item.module and item.module not in others))
    found = []
    for is_layer in (True, False):
        own = [item for item in operators if (item.module in layers) is is_layer]
        if own:
            counts = Counter(item.short_name for item in own)
            names = [name if count == 1 else f"{count} x {name}" for name, count in list(counts.items())[:3]]
            kind, several = ("layer", len(layers) > 1) if is_layer else ("operator", len(own) > 1)
            shown = f" {list_names([f'`{layer}`' for layer in layers])}" if is_layer else ""
            what = f"{kind}{'s' * several}{shown} {verb}: {', '.join(names)}{', ...' if len(counts) > 3 else ''}"
            # what is gone stands nowhere in the source of now
            place = own[0].place if verb == "added" else None
            words = words_of(own[0].module, *list(counts)[:3])
            found.append(Change("layer", what, words=words, operator_place=place))
    return found


def _find_other_changes(
    pairs: Sequence[Tuple[_Operator, _Operator]], old: Mapping[str, Any], new: Mapping[str, Any]
) -> List[Change]:
    """Say where operators take other values, or name what else is different."""
    for left, right in pairs:
        is_same = _without_references(left.arguments) == _without_references(right.arguments)
        if is_same and left.arguments != right.arguments:
            what = f"{right.short_name} takes other values"
            return [Change("operator", what, words=words_of(right.module), operator_place=right.place)]
    facts = [name.replace("_", " ") for name, value in new.items() if old.get(name) != value and name != "operators"]
    return [Change("operator", f"other {', '.join(facts)}")] if facts else []


# -- sizes -------------------------------------------------------------------------------------------------------------


def _list_size_changes(pairs: Sequence[Tuple[_Operator, _Operator]]) -> Iterator[Tuple[str, _Sizes, _Operator]]:
    """Yield the dimensions of parameters that changed, with the parameter's name."""
    for old, new in pairs:
        for (_name, before), (name, after) in zip(old.parameters, new.parameters):
            if len(before) == len(after):
                yield from ((name, pair, new) for pair in zip(before, after) if pair[0] != pair[1])


def _group_sizes(changes: Sequence[Tuple[str, _Sizes, _Operator]]) -> List[Change]:
    grouped: Dict[_Sizes, Dict[str, _Operator]] = {}
    for name, pair, item in changes:
        grouped.setdefault(pair, {})[name] = item
    found = []
    for (before, after), items in grouped.items():
        names = sorted(items, key=lambda name: name.endswith("bias"))
        detail = f"{names[0]} and {len(names) - 1} more" if len(names) > 1 else names[0]
        words, place = words_of(*names[:3]), items[names[0]].place
        found.append(Change("size", "layer size", str(before), str(after), words, place, detail))
    return found
