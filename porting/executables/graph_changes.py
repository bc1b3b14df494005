"""Explains how one captured graph differs from another: operators, their arguments, layers and their sizes.

Operators of two graphs are paired by their names and layers. Sizes that follow from those of inputs and parameters,
such as the ones of a `view`, are no changes of their own.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from difflib import SequenceMatcher
from itertools import chain, repeat
from typing import Any, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from ..diagnostics import join_names
from .changes import Change, format_value, split_names

__all__ = ["list_graph_changes"]

# Larger blocks are not paired: that takes quadratic time.
_MAX_COMPARED = 4_000_000

# Arguments that hold sizes which follow from those of tensors.
_SIZES = frozenset(
    "size shape sizes repeats split_size split_sizes normalized_shape output_size input_size groups end start".split()
)


class _Operator(NamedTuple):
    """An operator of one of the graphs, with the parameters that it uses, as the key describes them."""

    name: str
    arguments: Mapping[str, Any]
    place: Optional[Tuple[str, int]]
    module: str
    parameters: Sequence[Any] = ()

    @property
    def short_name(self) -> str:
        """The name without library, overload and the mark of writing in place."""
        name = re.sub(r"^aten\.([^.]*).*", r"\1", self.name)
        return re.sub(r"^native_|_+$", "", name)

    def make_change(self, kind: str, what: str, *values: str, names: Sequence[str] = (), detail: str = "") -> Change:
        """Tell a change at the place of this operator; `names` and its module are what a line that sets it may name."""
        before, after = values or ("", "")
        return Change(kind, what, before, after, split_names(*names, self.module), self.place, detail)


_Pairs = List[Tuple[_Operator, _Operator]]


def list_graph_changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> List[Change]:
    """List how the graph and the layers of the components `new` differ from those of `old`, each operator by itself."""
    if old["graph"] == new["graph"] and old["tensors"]["parameters"] == new["tensors"]["parameters"]:
        return []
    paired, removed, added = _pair_operators(_list_operators(old), _list_operators(new))
    pairs = [(left, right) for left, right in paired if left.name == right.name]
    sizes = list(_iter_sizes(pairs))
    found = list(_compare_arguments(old, new, pairs, {(int(size.before), int(size.after)) for size in sizes}))
    for left, right in paired:
        if left.name != right.name:
            names = left.short_name, right.short_name
            found.append(right.make_change("operator", "operator", *names, names=names[1:]))
    found += _describe_moved(removed, "removed", new)
    found += _describe_moved(added, "added", old)
    # a layer is known by its weights
    found += sorted(sizes, key=lambda size: size.detail.endswith("bias"))
    return found or list(_iter_other_changes(pairs, old["graph"], new["graph"]))


def _list_operators(components: Mapping[str, Any]) -> List[_Operator]:
    """List the operators of a graph, those of the bodies of loops and branches after the operator that runs them."""
    parameters, explained = components["tensors"]["parameters"], components.get("explained", {})
    places, modules = chain(explained.get("places", []), repeat(None)), chain(explained.get("modules", []), repeat(""))
    found: List[_Operator] = []
    for (name, arguments), place, module in zip(components["graph"]["operators"], places, modules):
        where = (str(place[0]), int(place[1])) if place else None, module
        bodies = {key: value for key, value in arguments.items() if isinstance(value, dict) and "operators" in value}
        if name != "getitem" and not name.endswith("_set_grad_enabled"):
            own = {key: value for key, value in arguments.items() if key not in bodies}
            used = [parameters[number] for number in _iter_references(own) if number < len(parameters)]
            found.append(_Operator(name, own, *where, used))
        found += [_Operator(name, own, *where) for body in bodies.values() for name, own in body["operators"]]
    return found


def _iter_references(value: Any) -> Iterator[int]:
    """List the values of the graph that an argument names, in the order that they have in a file."""
    if isinstance(value, dict) and set(value) == {"%"}:
        yield value["%"]
    elif isinstance(value, (dict, list)):
        for item in [value[key] for key in sorted(value)] if isinstance(value, dict) else value:
            yield from _iter_references(item)


def _pair_operators(
    old: Sequence[_Operator], new: Sequence[_Operator]
) -> Tuple[_Pairs, List[_Operator], List[_Operator]]:
    """Pair operators of one name and layer in their order, and those between them where there are as many."""
    left, right = ([(item.name, item.module) for item in operators] for operators in (old, new))
    # most changes are few: what two graphs begin and end with costs next to nothing
    first = len(os.path.commonprefix([left, right]))
    last = len(os.path.commonprefix([left[first:][::-1], right[first:][::-1]]))
    middle = left[first : len(old) - last], right[first : len(new) - last]
    codes = [("replace", 0, len(middle[0]), 0, len(middle[1]))]
    if len(middle[0]) * len(middle[1]) <= _MAX_COMPARED:
        codes = list(SequenceMatcher(None, *middle, autojunk=False).get_opcodes())
    pairs = list(zip(old[:first], new[:first]))
    removed: List[_Operator] = []
    added: List[_Operator] = []
    for _tag, a, b, c, d in codes:
        before, after = old[first + a : first + b], new[first + c : first + d]
        if len(before) == len(after):
            pairs.extend(zip(before, after))
        else:
            removed.extend(before)
            added.extend(after)
    return [*pairs, *zip(old[len(old) - last :], new[len(new) - last :])], removed, added


def _iter_sizes(pairs: _Pairs) -> Iterator[Change]:
    """List the dimensions of parameters that changed."""
    for old, new in pairs:
        for (_name, before, *_), (name, after, *_) in zip(old.parameters, new.parameters):
            for left, right in zip(before, after) if len(before) == len(after) else ():
                if left != right:
                    yield new.make_change("size", "layer size", str(left), str(right), names=[name], detail=name)


def _compare_arguments(
    old: Mapping[str, Any], new: Mapping[str, Any], pairs: _Pairs, known: Set[Tuple[int, int]]
) -> Iterator[Change]:
    """List arguments that have other values; sizes that follow from `known` ones and those of inputs are left out."""
    for (_name, before, *_), (_name, after, *_) in zip(old["tensors"]["inputs"], new["tensors"]["inputs"]):
        known.update((a, b) for a, b in zip(before, after) if a != b and len(before) == len(after))
    defaults = {**old.get("explained", {}).get("defaults", {}), **new.get("explained", {}).get("defaults", {})}
    for left, right in pairs:
        usual = defaults.get(right.name, {})
        for name in dict.fromkeys([*left.arguments, *right.arguments]):
            values = [{**usual, **item.arguments}.get(name, "default") for item in (left, right)]
            before, after = map(format_value, values)
            if before != after and not (name in _SIZES and _follow_from(values, known)):
                names = [name, right.short_name]
                yield right.make_change("operator", f"{right.short_name} {name}", before, after, names=names)


def _follow_from(values: Sequence[Any], known: Set[Tuple[int, int]]) -> bool:
    """Tell whether a change of sizes follows from other sizes: the same, or in the same proportion."""
    left, right = (value if isinstance(value, list) else [value] for value in values)
    if len(left) != len(right) or not all(type(value) is int for value in (*left, *right)):
        return False
    changed = [(a, b) for a, b in zip(left, right) if a != b]
    return all(any(pair == other or pair[0] * other[1] == pair[1] * other[0] for other in known) for pair in changed)


def _describe_moved(operators: Sequence[_Operator], verb: str, other: Mapping[str, Any]) -> Iterator[Change]:
    """Describe operators that are only in one of the graphs, and the layers that are, too."""
    others = {"", *other.get("explained", {}).get("modules", ())}
    layers = list(dict.fromkeys(item.module for item in operators if item.module not in others))
    for is_layer in (True, False):
        own = [item for item in operators if (item.module in layers) is is_layer]
        if own:
            counts = Counter(item.short_name for item in own)
            names = [name if count == 1 else f"{count} x {name}" for name, count in list(counts.items())[:3]]
            kind, several = ("layer", len(layers) > 1) if is_layer else ("operator", len(own) > 1)
            shown = f" {join_names(layers, most=3)}" if is_layer else ""
            what = f"{kind}{'s' * several}{shown} {verb}: {', '.join(names)}{', ...' if len(counts) > 3 else ''}"
            # what is gone stands nowhere in the source of now
            first = own[0] if verb == "added" else own[0]._replace(place=None)
            yield first.make_change("layer", what, names=list(counts)[:3])


def _iter_other_changes(pairs: _Pairs, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Change]:
    """Say where operators take other values, or name what else is different."""
    for left, right in pairs:
        # all tensors are written alike
        both = left.arguments, right.arguments
        texts = [{name: format_value(value, most=1 << 20) for name, value in values.items()} for values in both]
        if texts[0] == texts[1] and both[0] != both[1]:
            yield right.make_change("operator", f"{right.short_name} takes other values")
            return
    facts = [name.replace("_", " ") for name, value in new.items() if old.get(name) != value and name != "operators"]
    if facts:
        yield Change("operator", f"other {', '.join(facts)}")
