"""The lines that say what optimizer settings the device got."""

from __future__ import annotations

from typing import Any, List, Mapping, Sequence, Tuple

from ...engines.update.updates import OptimizerKind

__all__ = ["optimizer_log_lines"]

_SETTING_TYPES = ("accumType", "firstOrderMomentumAccumType", "secondOrderMomentumAccumType")


def optimizer_log_lines(settings: Mapping[str, Any], tensors: Sequence[Sequence[str]]) -> List[str]:
    """Return one line for the graph and one for each group, for the log at debug level.

    ``settings`` is what `convertOptimizerToDict` returned, ``tensors`` the names of each group's parameters.
    """
    kind = settings["optimizer_type"]
    name = kind.name.replace("_NO_BIAS", "").replace("_CENTERED", "")
    # SGD2 has no velocity scaling of its own: the back-end passes the loss scaling.
    others = {"velocityScaling": settings["defaults"]["lossScaling"]} if kind == OptimizerKind.SGD2 else {}
    graph = {
        key if key in ("lossScaling", "nesterov") else f"default{key[0].upper()}{key[1:]}": pair
        for key, pair in {**settings["defaults"], **others}.items()
    }
    # the log has one name for the first moment; SGD's settings call it velocity
    first_moment = settings.get("velocityAccumType", settings.get("firstOrderMomentumAccumType", False))
    is_half = {**settings, "firstOrderMomentumAccumType": first_moment}
    types = ", ".join(f"{key}={'float16' if is_half.get(key, False) else 'float32'}" for key in _SETTING_TYPES)
    use_tf_variant, max_norm = int(settings.get("useTfVariant", False)), settings.get("maxGradNorm", float("inf"))
    for_all = f"{types}, useTfVariant={use_tf_variant}, maxGradNorm={max_norm:g}"
    lines = [f"Updating graph optimizer with {name}, {_join_pairs(graph)}, {for_all}"]
    for number, (group, names) in enumerate(zip(settings["groups"], tensors)):
        pairs = _join_pairs({**group, **others})
        lines.append(f"Updating group {number} optimizer with {name}, {pairs} for (tensors affected {list(names)})")
    return lines


def _join_pairs(pairs: Mapping[str, Tuple[float, bool]]) -> str:
    return ", ".join(
        f"{key}={value:g}{' (const)' if constant else ''}" for key, (value, constant) in sorted(pairs.items())
    )
