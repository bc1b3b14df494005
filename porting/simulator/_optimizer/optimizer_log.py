"""The lines that say what optimizer settings the device got."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Sequence, Tuple

from ...engines.update.updates import OptimizerKind

__all__ = ["optimizer_log_lines"]

_SETTING_TYPES = ("accumType", "firstOrderMomentumAccumType", "secondOrderMomentumAccumType")


def optimizer_log_lines(settings: Mapping[str, Any], tensors: Sequence[Sequence[str]]) -> List[str]:
    """Return one line for the graph and one for each group, for the log at debug level.

    ``settings`` is what `convertOptimizerToDict` returned, ``tensors`` the names of each group's parameters.
    """
    kind = settings["optimizer_type"]
    name = kind.name.replace("_NO_BIAS", "").replace("_CENTERED", "")
    defaults = _as_printed(kind, settings["defaults"], settings)
    graph = {_graph_key(key): pair for key, pair in defaults.items()}
    lines = [f"Updating graph optimizer with {name}, {_pairs(graph)}, {_for_all_groups(settings)}"]
    for number, (group, names) in enumerate(zip(settings["groups"], tensors)):
        pairs = _pairs(_as_printed(kind, group, settings))
        lines.append(f"Updating group {number} optimizer with {name}, {pairs} for (tensors affected {list(names)})")
    return lines


def _as_printed(
    kind: OptimizerKind, group: Mapping[str, Tuple[float, bool]], settings: Mapping[str, Any]
) -> Dict[str, Tuple[float, bool]]:
    # SGD2 has no velocity scaling of its own: the back-end passes the loss scaling.
    overwritten = {"velocityScaling": settings["defaults"]["lossScaling"]} if kind == OptimizerKind.SGD2 else {}
    return {**group, **overwritten}


def _graph_key(key: str) -> str:
    return key if key in ("lossScaling", "nesterov") else f"default{key[0].upper()}{key[1:]}"


def _pairs(pairs: Mapping[str, Tuple[float, bool]]) -> str:
    return ", ".join(
        f"{key}={value:g}{' (const)' if constant else ''}" for key, (value, constant) in sorted(pairs.items())
    )


def _for_all_groups(settings: Mapping[str, Any]) -> str:
    is_half = {**settings, "firstOrderMomentumAccumType": _first_order_is_half(settings)}
    types = [f"{name}={'float16' if is_half.get(name, False) else 'float32'}" for name in _SETTING_TYPES]
    use_tf_variant = int(settings.get("useTfVariant", False))
    return ", ".join(
        [*types, f"useTfVariant={use_tf_variant}", f"maxGradNorm={settings.get('maxGradNorm', float('inf')):g}"]
    )


def _first_order_is_half(settings: Mapping[str, Any]) -> bool:
    return bool(settings.get("velocityAccumType", settings.get("firstOrderMomentumAccumType", False)))
