"""Explains why an executable was not found: lists what is different from an earlier one, and where that was set."""

from __future__ import annotations

from collections import Counter
from typing import Any, Dict, Iterator, List, Mapping, Tuple

from .changes import Change, list_names, plain_text, words_of
from .graph_changes import compare_graphs
from .placing import Placing

__all__ = ["compare_components", "explain"]

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

Components = Mapping[str, Any]


def explain(old: Mapping[str, Any], new: Mapping[str, Any]) -> List[Change]:
    """List what changed between two explanations (`components` and `sources` each), most telling first.

    Changes of which the line is known that made them come first, then those of versions and the processor.
    """
    changes = compare_components(old["components"], new["components"])
    placing = Placing(old.get("sources", {}), new.get("sources", {}))
    found = placing.place_changes([change for change in changes if change.kind not in _SET_OUTSIDE])
    found += [(False, change) for change in changes if change.kind in _SET_OUTSIDE]
    return [change for _is_certain, change in sorted(found, key=lambda item: (not item[0], _rank(item[1])))]


def _rank(change: Change) -> int:
    return _ORDER.index(change.kind) if change.kind in _ORDER else len(_ORDER)


def compare_components(old: Components, new: Components) -> List[Change]:
    """List how the components of a key differ from those of another one."""
    found = compare_graphs(old, new)
    for compare in (_compare_constants, _compare_inputs, _compare_state, _compare_optimizers, _compare_processors):
        found += compare(old, new)
    if any(change.kind == "layer" for change in found):
        # its parameters come and go with a layer, and those behind it may have another number in their name
        found = [change for change in found if change.kind not in ("tensor", "trained")]
    for kind in ("plan", "precision", "threads", "versions"):
        name = "" if kind in ("plan", "versions") else kind
        found += _compare_plain(kind, name, old.get(kind), new.get(kind))
    engines = [_leave_out(of["engine"], "name") for of in (old, new)]
    found += _compare_plain("engine", "engine", old["engine"].get("name"), new["engine"].get("name"))
    found += _compare_plain("engine", "engine", *engines)
    for name in sorted({*old, *new} - _COMPARED):
        found += _compare_plain("extra", "" if name == "extra" else name, old.get(name), new.get(name))
    if not found:
        # nothing above knows what to say of it, and something is different all the same
        names = [name for name in sorted({*old, *new} - {"explained"}) if old.get(name) != new.get(name)]
        found = [Change("extra", f"something in the {name} section") for name in names]
    return found


_COMPARED = frozenset(
    "explained graph tensors constants plan optimizer engine versions processor precision threads".split()
)


def _compare_plain(kind: str, name: str, before: Any, after: Any, *, words: Tuple[str, ...] = ()) -> Iterator[Change]:
    """Compare plain values, dictionaries entry by entry."""
    if before == after:
        return
    words = (*words, *_WORDS.get(kind, ()))
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted({*before, *after}):
            own = (key, *_WORDS.get(key, ()), *words)
            yield from _compare_plain(kind, f"{name} {key}".strip(), before.get(key), after.get(key), words=own)
        return
    title = {"iterations": "device iterations"}.get(name, name.replace("_", " "))
    words = (kind, *words) if kind in _WORDS else words
    yield Change(kind, title or kind, plain_text(before), plain_text(after), words=words)


def _leave_out(values: Mapping[str, Any], name: str) -> Dict[str, Any]:
    return {key: value for key, value in values.items() if key != name}


def _read_explained(components: Components, name: str) -> List[Any]:
    found: List[Any] = components.get("explained", {}).get(name, [])
    return found


# -- constants, inputs, parameters -------------------------------------------------------------------------------------


def _compare_constants(old: Components, new: Components) -> Iterator[Change]:
    shown = [_read_explained(components, "shown_constants") for components in (old, new)]
    for index, (before, after) in enumerate(zip(old["constants"], new["constants"])):
        if before == after:
            continue
        layouts = [f"{dtype} {plain_text(shape)}" for _hash, shape, dtype in (before, after)]
        values = [plain_text(of[index]) if index < len(of) and of[index] is not None else "" for of in shown]
        if layouts[0] != layouts[1]:
            values = layouts
        if all(values) and values[0] != values[1]:
            yield Change("constant", f"constant {index}", values[0], values[1])
        else:
            yield Change("constant", f"constant {index} has other values, {layouts[1]}")
    yield from _compare_plain("constant", "constants", len(old["constants"]), len(new["constants"]))


def _compare_inputs(old: Components, new: Components) -> Iterator[Change]:
    """Compare inputs; where all of them have another first dimension and nothing else changed, it is the batch."""
    before, after = old["tensors"]["inputs"], new["tensors"]["inputs"]
    pairs = [(a, b) for a, b in zip(before, after) if a != b]
    batches = {(a[1][0], b[1][0]) for a, b in pairs if a[1][:1] != b[1][:1] and a[1] and b[1]}
    is_batch = len(batches) == 1 and all(a[1][1:] == b[1][1:] for a, b in pairs)
    if is_batch:
        ((left, right),) = batches
        yield from _compare_plain("input", "batch", left, right, words=("batch", *_WORDS["batch"]))
    for (old_name, old_shape, old_strides, old_dtype, *_), (name, shape, strides, dtype, *_) in pairs:
        if not is_batch:
            yield from _compare_plain("input", f"input `{name}` shape", old_shape, shape, words=("shape", name))
        if old_shape == shape:
            yield from _compare_plain("input", f"memory layout of input `{name}`", old_strides, strides)
        yield from _compare_plain("dtype", f"input `{name}` dtype", old_dtype, dtype)
        yield from _compare_plain("input", "name of an input", old_name, name)
    yield from _compare_plain("input", "number of inputs", len(before), len(after))


def _compare_state(old: Components, new: Components) -> Iterator[Change]:
    """Compare types, trainability, memory layouts and names of parameters and buffers."""
    for kind in ("parameters", "buffers"):
        before, after = ({item[0]: item for item in components["tensors"][kind]} for components in (old, new))
        both = [(before[name], after[name]) for name in after if name in before]
        for (left, right), names in _group_names(both, 3).items():
            yield Change("dtype", f"dtype of {kind}", left, right, words=_WORDS["dtype"], detail=list_names(names))
        for (_left, right), names in _group_names(both, 4).items():
            verb, words = "trained" if right == "True" else "frozen", words_of("requires_grad", "freeze", *names[:3])
            yield Change("frozen", f"{kind} now {verb}", words=words, detail=list_names(names))
        for names in _group_names([(a, b) for a, b in both if a[1] == b[1]], 2).values():
            words = ("channels_last", "memory_format")
            yield Change("tensor", f"other memory layout of {kind}", words=words, detail=list_names(names))
        if sorted(before) == sorted(after) and list(before) != list(after):
            yield Change("tensor", f"order of {kind}")
        for verb, these, others in (("added", after, before), ("removed", before, after)):
            names = [name for name in these if name not in others]
            if names:
                yield Change("tensor", f"{kind} {verb}", words=words_of(*names[:1]), detail=list_names(names))


def _group_names(pairs: List[Tuple[Any, Any]], index: int) -> Dict[Tuple[str, str], List[str]]:
    """Group the names of tensors by the change of one of their facts."""
    grouped: Dict[Tuple[str, str], List[str]] = {}
    for before, after in pairs:
        if before[index] != after[index]:
            grouped.setdefault((str(before[index]), str(after[index])), []).append(str(after[0]))
    return grouped


# -- optimizer and processor -------------------------------------------------------------------------------------------


def _compare_optimizers(old: Components, new: Components) -> Iterator[Change]:
    before, after = old["optimizer"], new["optimizer"]
    yield from _compare_plain("optimizer", "parameter groups", len(before), len(after), words=("param_groups",))
    # the settings of two kinds of optimizers have nothing to do with each other: the kind is all that is told
    families = Counter((a["family"], b["family"]) for a, b in zip(before, after) if a["family"] != b["family"])
    for left, right in families:
        yield Change("optimizer", "optimizer", left, right, words=("optimizer", right.lower()))
    numbers = [_read_explained(components, "numbers") for components in (old, new)]
    for index, (a, b) in enumerate(zip(before, after)):
        if a["family"] != b["family"]:
            continue
        group = f" of parameter group {index}" if len(after) > 1 else ""
        for name in (name for name in b if name not in ("slots", "parameters") and a.get(name) != b[name]):
            setting = {"clips": "max_grad_norm"}.get(name, name)
            # whether there is momentum is part of the program, how much of it is not: people want to see the number
            values = [
                of[index].get(setting, g.get(name)) if index < len(of) else g.get(name)
                for of, g in zip(numbers, (a, b))
            ]
            yield from _compare_plain("optimizer", f"optimizer {setting}{group}", *values, words=(setting, "optimizer"))
        trained = [of.get("parameters") or [] for of in (a, b)]
        for verb, names, others in (("more", trained[1], trained[0]), ("fewer", trained[0], trained[1])):
            found = [name for name in names if name not in others]
            if found:
                yield Change("trained", f"the optimizer trains {verb} parameters{group}", detail=list_names(found))


def _compare_processors(old: Components, new: Components) -> Iterator[Change]:
    before, after = old["processor"], new["processor"]
    yield from _compare_plain("processor", "processor", before.get("name"), after.get("name"))
    yield from _compare_plain("processor", "processor capability", before.get("capability"), after.get("capability"))
    had, has = (set(map(str, facts.get("instructions", ()))) for facts in (before, after))
    for verb, names in (("lacks", had - has), ("has", has - had)):
        if names:
            yield Change("processor", f"the processor {verb} {list_names(sorted(names))}")
