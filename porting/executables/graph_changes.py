"""What changed in the graph: operators that appeared or disappeared, other arguments, layers of another size.

Operators of two graphs are paired by their names and the shapes of the parameters that they use. Sizes that follow from
those of inputs and parameters, such as the ones of a `view`, are no changes of their own.
"""

from __future__ import annotations

from collections import Counter
from difflib import SequenceMatcher
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from .differences import Difference, plain_text, words_of

__all__ = ["graph_differences"]

_MAX_COMPARED = 4_000_000
_MAX_NAMED = 3
_MISSING = object()

# Arguments that hold sizes which follow from those of tensors.
_SIZES = frozenset(
    "size shape sizes repeats split_size split_sizes normalized_shape output_size input_size groups end start".split()
)

Pair = Tuple[int, int]


class _Operator(NamedTuple):
    """An operator of one of the graphs, with the parameters that it uses: `[name, shape]` each."""

    name: str
    arguments: Mapping[str, Any]
    place: Optional[Tuple[str, int]]
    module: str
    parameters: Tuple[Tuple[str, Tuple[int, ...]], ...]

    @property
    def short(self) -> str:
        """The name without library, overload and the mark of writing in place."""
        name = self.name[len("aten.") :].split(".")[0] if self.name.startswith("aten.") else self.name
        name = name[len("native_") :] if name.startswith("native_") else name
        return name.rstrip("_") or name

    @property
    def token(self) -> Any:
        """What operators that belong together have in common."""
        return self.name, tuple(shape for _name, shape in self.parameters)


class _Paired(NamedTuple):
    """How two lists of operators correspond."""

    pairs: List[Tuple[_Operator, _Operator]]
    replaced: List[Tuple[_Operator, _Operator]]
    removed: List[_Operator]
    added: List[_Operator]


def graph_differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> List[Difference]:
    """List how the graph and the layers of the components `new` differ from those of `old`."""
    if old["graph"] == new["graph"] and old["tensors"]["parameters"] == new["tensors"]["parameters"]:
        return []
    paired = _paired(_operators(old), _operators(new))
    sizes = list(_size_changes(paired.pairs))
    pairs = _known_pairs(old, new, paired.pairs)
    found = _argument_differences(paired.pairs, pairs, _defaults(old, new))
    found += _replaced(paired.replaced)
    found += _moved(paired.removed, "removed", _modules(new)) + _moved(paired.added, "added", _modules(old))
    found += _grouped_sizes(sizes)
    if not found:
        found = _rewired(paired.pairs, old, new)
    return found


def _operators(components: Mapping[str, Any]) -> List[_Operator]:
    tensors, explained = components["tensors"], components.get("explained", {})
    entering = [(item[0], tuple(item[1])) for item in tensors["parameters"]]
    places, modules = explained.get("places", []), explained.get("modules", [])
    found = []
    for index, (name, arguments) in enumerate(components["graph"]["operators"]):
        if name == "getitem" or name.endswith("_set_grad_enabled"):
            continue
        used = [value["%"] for value in _references(arguments)]
        place = places[index] if index < len(places) else None
        found.append(
            _Operator(
                name=name,
                arguments=arguments,
                place=(str(place[0]), int(place[1])) if place else None,
                module=modules[index] if index < len(modules) else "",
                parameters=tuple(entering[number] for number in used if number < len(entering)),
            )
        )
    return found


def _references(value: Any) -> Iterator[Mapping[str, int]]:
    if isinstance(value, dict):
        if set(value) == {"%"}:
            yield value
        elif "operators" not in value:
            for _name, item in sorted(value.items()):  # in the order of a file
                yield from _references(item)
    elif isinstance(value, list):
        for item in value:
            yield from _references(item)


def _modules(components: Mapping[str, Any]) -> Set[str]:
    return set(components.get("explained", {}).get("modules", ()))


def _defaults(old: Mapping[str, Any], new: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    both = [components.get("explained", {}).get("defaults", {}) for components in (old, new)]
    return {**both[0], **both[1]}


# -- which operators belong together -----------------------------------------------------------------------------------


def _paired(old: Sequence[_Operator], new: Sequence[_Operator]) -> _Paired:
    paired = _Paired([], [], [], [])
    for tag, left, right in _blocks([item.token for item in old], [item.token for item in new]):
        if tag == "equal":
            paired.pairs.extend(zip(old[left], new[right]))
        else:
            _pair_block(old[left], new[right], paired)
    return paired


def _pair_block(old: Sequence[_Operator], new: Sequence[_Operator], paired: _Paired) -> None:
    """Pair operators that use parameters of other shapes by their names alone."""
    for tag, left, right in _blocks([item.name for item in old], [item.name for item in new]):
        before, after = old[left], new[right]
        if tag == "equal":
            paired.pairs.extend(zip(before, after))
        elif len(before) == len(after):
            paired.replaced.extend(zip(before, after))
        else:
            paired.removed.extend(before)
            paired.added.extend(after)


def _blocks(old: Sequence[Any], new: Sequence[Any]) -> Iterator[Tuple[str, slice, slice]]:
    """Yield which parts of two sequences are equal and which are not; what they begin and end with costs little."""
    most = min(len(old), len(new))
    first = next((index for index in range(most) if old[index] != new[index]), most)
    last = next((index for index in range(most - first) if old[-1 - index] != new[-1 - index]), most - first)
    yield "equal", slice(0, first), slice(0, first)
    middle_old, middle_new = old[first : len(old) - last], new[first : len(new) - last]
    if len(middle_old) * len(middle_new) > _MAX_COMPARED:
        yield "other", slice(first, len(old) - last), slice(first, len(new) - last)
    else:
        matcher = SequenceMatcher(a=middle_old, b=middle_new, autojunk=False)
        for tag, a, b, c, d in matcher.get_opcodes():
            yield tag, slice(first + a, first + b), slice(first + c, first + d)
    yield "equal", slice(len(old) - last, len(old)), slice(len(new) - last, len(new))


# -- operators ---------------------------------------------------------------------------------------------------------


def _argument_differences(
    pairs: Sequence[Tuple[_Operator, _Operator]], known: Set[Pair], defaults: Mapping[str, Mapping[str, Any]]
) -> List[Difference]:
    """List arguments that have other values; the same change of several operators is one."""
    grouped: Dict[Tuple[str, str, str, str], List[_Operator]] = {}
    for old, new in pairs:
        own = defaults.get(new.name, {})
        for name in dict.fromkeys([*old.arguments, *new.arguments]):
            before = old.arguments.get(name, own.get(name, _MISSING))
            after = new.arguments.get(name, own.get(name, _MISSING))
            for changed, left, right in _changed_values(f"{new.short} {name}", before, after):
                if not _follows(name, left, right, known):
                    texts = _text_or_default(left), _text_or_default(right)
                    grouped.setdefault((changed, name, *texts), []).append(new)
    return [
        Difference(
            "operator",
            what,
            before,
            after,
            words=words_of(name, *what.split()[:1], *operators[0].module.split(".")),
            place=operators[0].place,
            detail=f"{len(operators)} operators" if len(operators) > 1 else "",
        )
        for (what, name, before, after), operators in grouped.items()
        if before != after
    ]


def _changed_values(what: str, before: Any, after: Any) -> Iterator[Tuple[str, Any, Any]]:
    """Compare two values of an argument without the numbers of other operators; bodies of loops in detail."""
    if _without_references(before) == _without_references(after):
        return
    if _is_body(before) and _is_body(after):
        inner = [[_Operator(name, args, None, "", ()) for name, args in body["operators"]] for body in (before, after)]
        paired = _paired(*inner)
        for old, new in paired.pairs:
            for name in dict.fromkeys([*old.arguments, *new.arguments]):
                values = old.arguments.get(name, _MISSING), new.arguments.get(name, _MISSING)
                yield from _changed_values(f"{new.short} {name}", *values)
        for left, right in paired.replaced:
            yield "operator", left.short, right.short
        if paired.removed or paired.added:
            names = [", ".join(item.short for item in items) or "nothing" for items in (paired.removed, paired.added)]
            yield "operators of a body", names[0], names[1]
        return
    yield what, before, after


def _is_body(value: Any) -> bool:
    return isinstance(value, dict) and "operators" in value


def _without_references(value: Any) -> Any:
    if isinstance(value, dict):
        return "%" if set(value) == {"%"} else {key: _without_references(item) for key, item in value.items()}
    return list(map(_without_references, value)) if isinstance(value, list) else (type(value).__name__, value)


def _text_or_default(value: Any) -> str:
    return "default" if value is _MISSING else plain_text(value)


def _follows(name: str, before: Any, after: Any, known: Set[Pair]) -> bool:
    """Tell whether a change of sizes follows from other sizes: the same, or in the same proportion."""
    left = before if isinstance(before, list) else [before]
    right = after if isinstance(after, list) else [after]
    if len(left) != len(right) or not all(_is_size(value) for value in (*left, *right)):
        return False
    changed = [(a, b) for a, b in zip(left, right) if a != b]
    if name not in _SIZES:
        return False
    return all(pair in known or any(pair[0] * b == pair[1] * a for a, b in known) for pair in changed)


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _replaced(pairs: Sequence[Tuple[_Operator, _Operator]]) -> List[Difference]:
    grouped: Dict[Tuple[str, str], List[_Operator]] = {}
    for old, new in pairs:
        grouped.setdefault((old.short, new.short), []).append(new)
    return [
        Difference(
            "operator",
            "operator",
            before,
            after,
            words=words_of(after, operators[0].module),
            place=operators[0].place,
            detail=f"{len(operators)} operators" if len(operators) > 1 else "",
        )
        for (before, after), operators in grouped.items()
    ]


def _moved(operators: Sequence[_Operator], verb: str, others: Set[str]) -> List[Difference]:
    """Describe operators that are only in one of the graphs, and the layers that are, too."""
    layers = list(dict.fromkeys(item.module for item in operators if item.module and item.module not in others))
    of_layers = [item for item in operators if item.module in layers]
    rest = [item for item in operators if item.module not in layers]
    found = []
    if of_layers:
        more = f" and {len(layers) - _MAX_NAMED} more" if len(layers) > _MAX_NAMED else ""
        names = ", ".join(f"`{layer}`" for layer in layers[:_MAX_NAMED])
        found.append(_moved_operators(of_layers, verb, f"layer{'s' if len(layers) > 1 else ''} {names}{more} {verb}"))
    if rest:
        found.append(_moved_operators(rest, verb, f"operator{'s' if len(rest) > 1 else ''} {verb}"))
    return found


def _moved_operators(operators: Sequence[_Operator], verb: str, what: str) -> Difference:
    counts = Counter(item.short for item in operators)
    names = [name if count == 1 else f"{count} x {name}" for name, count in list(counts.items())[:_MAX_NAMED]]
    more = ", ..." if len(counts) > _MAX_NAMED else ""
    return Difference(
        "layer",
        f"{what}: {', '.join(names)}{more}",
        words=words_of(*(item.module for item in operators[:1]), *list(counts)[:_MAX_NAMED]),
        # what is gone stands nowhere in the source of now
        place=operators[0].place if verb == "added" else None,
    )


def _rewired(
    pairs: Sequence[Tuple[_Operator, _Operator]], old: Mapping[str, Any], new: Mapping[str, Any]
) -> List[Difference]:
    """Say where operators take other values, or name what else is different."""
    if old["graph"] == new["graph"]:
        return []
    for left, right in pairs:
        is_same = _without_references(left.arguments) == _without_references(right.arguments)
        if is_same and left.arguments != right.arguments:
            return [
                Difference(
                    "operator", f"{right.short} takes other values", words=words_of(right.module), place=right.place
                )
            ]
    facts = [name for name, value in new["graph"].items() if old["graph"].get(name) != value and name != "operators"]
    return [Difference("operator", f"other {', '.join(name.replace('_', ' ') for name in facts)}")] if facts else []


# -- sizes -------------------------------------------------------------------------------------------------------------


def _size_changes(pairs: Sequence[Tuple[_Operator, _Operator]]) -> Iterator[Tuple[str, Pair, _Operator]]:
    """Yield the dimensions of parameters that changed, with the parameter's name."""
    for old, new in pairs:
        for (_name, before), (name, after) in zip(old.parameters, new.parameters):
            if len(before) == len(after):
                for pair in zip(before, after):
                    if pair[0] != pair[1]:
                        yield name, pair, new


def _known_pairs(
    old: Mapping[str, Any], new: Mapping[str, Any], pairs: Sequence[Tuple[_Operator, _Operator]]
) -> Set[Pair]:
    """Return the sizes of inputs and parameters that changed, which others follow from."""
    known = {pair for _name, pair, _operator in _size_changes(pairs)}
    for before, after in zip(old["tensors"]["inputs"], new["tensors"]["inputs"]):
        if len(before[1]) == len(after[1]):
            known |= {(a, b) for a, b in zip(before[1], after[1]) if a != b}
    return known


def _grouped_sizes(changes: Sequence[Tuple[str, Pair, _Operator]]) -> List[Difference]:
    grouped: Dict[Pair, Dict[str, _Operator]] = {}
    for name, pair, item in changes:
        grouped.setdefault(pair, {})[name] = item
    found = []
    for (before, after), items in grouped.items():
        names = sorted(items, key=lambda name: name.endswith("bias"))
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        found.append(
            Difference(
                "size",
                "layer size",
                str(before),
                str(after),
                words=words_of(*names[:_MAX_NAMED]),
                place=items[names[0]].place,
                detail=f"{names[0]}{more}",
            )
        )
    return found
