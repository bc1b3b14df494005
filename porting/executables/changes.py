"""Why an executable was not found: what is different from an earlier one, and where that was set."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from ..diagnostics import Place
from .differences import Difference, plain_text, words_of
from .graph_changes import graph_differences
from .placing import Placing, Setting

__all__ = ["Change", "compare", "explain"]

_MAX_NAMED = 3

# What is told first among changes of which no line is known, and among those of which one is.
_ORDER = (
    "versions",
    "processor",
    "operator",
    "layer",
    "size",
    "constant",
    "dtype",
    "frozen",
    "input",
    "plan",
    "optimizer",
    "trained",
    "precision",
    "engine",
    "threads",
    "extra",
    "tensor",
)

# What a program sets; the rest is set by machines and installations.
_SET_BY_PROGRAMS = frozenset(_ORDER) - {"versions", "processor"}


@dataclass(frozen=True)
class Change:
    """One change in plain words, with the place where it was made: a `file` and `line`, or other words for it.

    `kind` is the section of the key.
    """

    kind: str
    what: str
    before: str
    after: str
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
        text = Difference(self.kind, self.what, self.before, self.after).text
        text += f" {self.where}" if self.where else ""
        return f"{text} ({self.detail})" if self.detail else text

    @property
    def place(self) -> Any:
        """The place as findings have it, or None."""
        return Place(self.file, self.line) if self.file and self.line else None

    def to_dict(self) -> Dict[str, Any]:
        """Return plain values, fit for JSON, the text among them."""
        return {**vars(self), "text": self.text}


def explain(old: Mapping[str, Any], new: Mapping[str, Any]) -> List[Change]:
    """List what changed between two explanations (`components` and `sources` each), most telling first.

    Changes of which the line is known that made them come first, then those of versions and the processor.
    """
    differences = compare(old["components"], new["components"])
    placing = Placing(old.get("sources", {}), new.get("sources", {}))
    set_by_programs = [difference for difference in differences if difference.kind in _SET_BY_PROGRAMS]
    others = [difference for difference in differences if difference.kind not in _SET_BY_PROGRAMS]
    settings = [*placing.settings_of(set_by_programs), *(None for _ in others)]
    changes = [
        (setting is None or not setting.is_certain, _rank(difference), _change(difference, setting))
        for difference, setting in zip([*set_by_programs, *others], settings)
    ]
    return [change for _is_unsure, _rank_of, change in sorted(changes, key=lambda item: item[:2])]


def compare(old: Mapping[str, Any], new: Mapping[str, Any]) -> List[Difference]:
    """List how the components of a key differ from those of another one."""
    found = [difference for section in _SECTIONS for difference in section(old, new)]
    if any(difference.kind == "layer" for difference in found):
        # its parameters come and go with a layer, and those behind it may have another number in their name
        found = [difference for difference in found if difference.kind not in ("tensor", "trained")]
    known = {"graph", "tensors", "explained", *_COMPARED}
    for name in sorted({*old, *new} - known):
        found += _plain_differences("extra", name, old.get(name), new.get(name))
    if not found:
        # nothing above knows what to say of it, and something is different all the same
        names = [name for name in sorted({*old, *new} - {"explained"}) if old.get(name) != new.get(name)]
        found = [Difference("extra", f"something in the {name} section") for name in names]
    return found


def _rank(difference: Difference) -> int:
    return _ORDER.index(difference.kind) if difference.kind in _ORDER else len(_ORDER)


def _change(difference: Difference, setting: Optional[Setting]) -> Change:
    found = setting or Setting("")
    return Change(
        kind=difference.kind,
        what=difference.what,
        before=difference.before,
        after=difference.after,
        detail=difference.detail,
        where=found.where,
        file=found.file,
        line=found.line,
    )


# -- sections --------------------------------------------------------------------------------------------------------

Components = Mapping[str, Any]


def _constants(old: Components, new: Components) -> Iterator[Difference]:
    shown = [components.get("explained", {}).get("shown_constants", []) for components in (old, new)]
    for index, (before, after) in enumerate(zip(old["constants"], new["constants"])):
        if before == after:
            continue
        if before[1:] != after[1:]:
            yield Difference("constant", f"constant {index}", _described(before[1:]), _described(after[1:]))
            continue
        values = [plain_text(of[index]) if index < len(of) and of[index] is not None else "" for of in shown]
        if all(values) and values[0] != values[1]:
            yield Difference("constant", f"constant {index}", values[0], values[1])
        else:
            yield Difference("constant", f"constant {index} has other values, {_described(after[1:])}")
    if len(old["constants"]) != len(new["constants"]):
        yield Difference("constant", "constants", str(len(old["constants"])), str(len(new["constants"])))


def _described(layout: Sequence[Any]) -> str:
    shape, dtype = layout
    return f"{dtype} {plain_text(shape)}"


def _inputs(old: Components, new: Components) -> Iterator[Difference]:
    before, after = old["tensors"]["inputs"], new["tensors"]["inputs"]
    pairs = list(zip(before, after))
    batches = {(a[1][0], b[1][0]) for a, b in pairs if a[1][:1] and b[1][:1]}
    batches = {pair for pair in batches if pair[0] != pair[1]}
    is_batch = len(batches) == 1 and all(a[1][1:] == b[1][1:] for a, b in pairs)
    if is_batch:
        ((left, right),) = batches
        words = ("batch", "batch_size", "micro_batch", "bs")
        yield Difference("input", "batch", str(left), str(right), words=words)
    for a, b in pairs:
        if a[1] != b[1] and not is_batch:
            yield Difference(
                "input", f"input `{b[0]}` shape", plain_text(a[1]), plain_text(b[1]), words=("shape", b[0])
            )
        elif a[1] == b[1] and a[2] != b[2]:
            yield Difference("input", f"memory layout of input `{b[0]}`", plain_text(a[2]), plain_text(b[2]))
        if a[3] != b[3]:
            yield Difference("dtype", f"input `{b[0]}` dtype", str(a[3]), str(b[3]), words=("dtype", "precision"))
        if a[0] != b[0]:
            yield Difference("input", "name of an input", str(a[0]), str(b[0]))
    if len(before) != len(after):
        yield Difference("input", "number of inputs", str(len(before)), str(len(after)))


_TYPE_WORDS = ("precision", "dtype", "half", "bfloat16", "float16")


def _state(old: Components, new: Components) -> Iterator[Difference]:
    """Compare types, trainability, memory layouts and names of parameters and buffers."""
    for kind in ("parameters", "buffers"):
        before, after = ({item[0]: item for item in components["tensors"][kind]} for components in (old, new))
        both = [(before[name], after[name]) for name in after if name in before]
        for (left, right), names in _grouped(both, lambda item: item[3]).items():
            yield Difference("dtype", f"dtype of {kind}", left, right, words=_TYPE_WORDS, detail=_named(names))
        for (_left, right), names in _grouped(both, lambda item: item[4]).items():
            verb = "trained" if right == "True" else "frozen"
            words = words_of("requires_grad", "requires_grad_", "freeze", *names[:_MAX_NAMED])
            yield Difference("frozen", f"{kind} now {verb}", words=words, detail=_named(names))
        same_shape = [(a, b) for a, b in both if a[1] == b[1]]
        for names in _grouped(same_shape, lambda item: item[2]).values():
            words = words_of("channels_last", "memory_format")
            yield Difference("tensor", f"other memory layout of {kind}", words=words, detail=_named(names))
        yield from _renamed(kind, list(before), list(after))


def _grouped(pairs: Sequence[Tuple[Any, Any]], value_of: Callable[[Any], Any]) -> Dict[Tuple[str, str], List[str]]:
    grouped: Dict[Tuple[str, str], List[str]] = {}
    for before, after in pairs:
        if value_of(before) != value_of(after):
            grouped.setdefault((str(value_of(before)), str(value_of(after))), []).append(str(after[0]))
    return grouped


def _renamed(kind: str, before: List[str], after: List[str]) -> Iterator[Difference]:
    if len(before) == len(after):
        if sorted(before) == sorted(after) and before != after:
            yield Difference("tensor", f"order of {kind}")
            return
        for left, right in [(a, b) for a, b in zip(before, after) if a != b][:1]:
            yield Difference("tensor", f"name of {kind}", left, right, words=words_of(right))
    else:
        appeared = [name for name in after if name not in before]
        gone = [name for name in before if name not in after]
        for verb, names in (("added", appeared), ("removed", gone)):
            if names:
                yield Difference("tensor", f"{kind} {verb}", words=words_of(*names[:1]), detail=_named(names))


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    return ", ".join(names[:_MAX_NAMED]) + more


_PLAN_WORDS: Mapping[str, Tuple[str, ...]] = {
    "iterations": ("device_iterations", "deviceIterations"),
    "accumulation": ("accumulation", "gradientAccumulation", "gradient_accumulation"),
    "replicas": ("replicas", "replicationFactor"),
    "output_mode": ("output_mode", "outputMode"),
    "output_period": ("output_every", "outputMode"),
}


def _plan(old: Components, new: Components) -> Iterator[Difference]:
    for name, after in new["plan"].items():
        before = old["plan"].get(name)
        if before != after:
            words = (name, *_PLAN_WORDS.get(name, ()))
            title = "device iterations" if name == "iterations" else name.replace("_", " ")
            yield Difference("plan", title, plain_text(before), plain_text(after), words=words)


def _optimizer(old: Components, new: Components) -> Iterator[Difference]:
    before, after = old["optimizer"], new["optimizer"]
    numbers = [components.get("explained", {}).get("numbers", []) for components in (old, new)]
    if len(before) != len(after):
        yield Difference("optimizer", "parameter groups", str(len(before)), str(len(after)), words=("param_groups",))
    families = Counter((a["family"], b["family"]) for a, b in zip(before, after) if a["family"] != b["family"])
    for left, right in families:
        yield Difference("optimizer", "optimizer", left, right, words=("optimizer", right.lower()))
    for index, (a, b) in enumerate(zip(before, after)):
        if a["family"] == b["family"]:
            own = [of[index] if index < len(of) else {} for of in numbers]
            group = f" of parameter group {index}" if len(after) > 1 else ""
            yield from _group_differences(a, b, own, group)


def _group_differences(
    old: Mapping[str, Any], new: Mapping[str, Any], numbers: Sequence[Mapping[str, Any]], group: str
) -> Iterator[Difference]:
    for name, after in new.items():
        before = old.get(name)
        if before == after or name == "slots":
            continue
        if name == "parameters":
            yield from _trained_differences(before or [], after, group)
            continue
        setting = {"clips": "max_grad_norm"}.get(name, name)
        values = [of.get(setting, value) for of, value in zip(numbers, (before, after))]
        what = f"optimizer {setting}{group}"
        yield Difference("optimizer", what, plain_text(values[0]), plain_text(values[1]), words=(setting, "optimizer"))


def _trained_differences(before: Sequence[str], after: Sequence[str], group: str) -> Iterator[Difference]:
    for verb, names, others in (("more", after, before), ("fewer", before, after)):
        found = [name for name in names if name not in others]
        if found:
            yield Difference("trained", f"the optimizer trains {verb} parameters{group}", detail=_named(found))


def _versions(old: Components, new: Components) -> Iterator[Difference]:
    return _plain_differences("versions", "", old["versions"], new["versions"])


def _processor(old: Components, new: Components) -> Iterator[Difference]:
    before, after = old["processor"], new["processor"]
    yield from _plain_differences("processor", "processor", before.get("name"), after.get("name"))
    yield from _plain_differences(
        "processor", "processor capability", before.get("capability"), after.get("capability")
    )
    lists = [set(map(str, facts.get("instructions", ()))) for facts in (before, after)]
    for verb, names in (("lacks", lists[0] - lists[1]), ("has", lists[1] - lists[0])):
        if names:
            yield Difference("processor", f"the processor {verb} {_named(sorted(names))}")


def _engine(old: Components, new: Components) -> Iterator[Difference]:
    before, after = old["engine"], new["engine"]
    words = ("engine", "PORTING_ENGINE")
    yield from _plain_differences("engine", "engine", before.get("name"), after.get("name"), words=words)
    rest = [{name: value for name, value in engine.items() if name != "name"} for engine in (before, after)]
    yield from _plain_differences("engine", "engine", *rest)


def _precision(old: Components, new: Components) -> Iterator[Difference]:
    words = ("set_float32_matmul_precision", "use_deterministic_algorithms")
    return _plain_differences("precision", "precision", old.get("precision"), new.get("precision"), words=words)


def _threads(old: Components, new: Components) -> Iterator[Difference]:
    words = ("set_num_threads", "OMP_NUM_THREADS", "threads", "num_threads")
    return _plain_differences("threads", "threads", old["threads"], new["threads"], words=words)


def _extra(old: Components, new: Components) -> Iterator[Difference]:
    return _plain_differences("extra", "", old.get("extra"), new.get("extra"))


def _plain_differences(
    kind: str, name: str, before: Any, after: Any, *, words: Tuple[str, ...] = ()
) -> Iterator[Difference]:
    """Compare plain values, dictionaries entry by entry."""
    if before == after:
        return
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted({*before, *after}):
            own = f"{name} {key}".strip()
            yield from _plain_differences(kind, own, before.get(key), after.get(key), words=(key, *words))
        return
    yield Difference(kind, name.replace("_", " ") or kind, plain_text(before), plain_text(after), words=words)


_SECTIONS: Tuple[Callable[[Components, Components], Any], ...] = (
    graph_differences,
    _constants,
    _inputs,
    _state,
    _plan,
    _optimizer,
    _precision,
    _engine,
    _threads,
    _versions,
    _processor,
    _extra,
)
_COMPARED = ("constants", "plan", "optimizer", "precision", "engine", "threads", "versions", "processor", "extra")
