"""Makes the key of an executable: all that it depends on, as plain values that are the same in every process.

Sections of the components: `graph` (operators with all arguments, bodies of loops, results), `tensors` (what enters and
leaves it), `constants` (their values, hashed), `plan`, `optimizer` (its structure; numbers such as the learning rate
are arguments of the programs), `engine`, `versions`, `processor`, `precision`, `threads`, `extra`. Section `explained`
is no part of the identity: places and module paths of the operators, values that their arguments have by default, the
optimizer's numbers, the values of small constants.
"""

from __future__ import annotations

import hashlib
import os
import sys
from dataclasses import asdict, fields
from itertools import zip_longest
from typing import Any, Dict, List

import torch

from ..capture import StepGraph
from ..capture.graph_identity import identify_graph
from ..engines.calls.call_plan import ReplicaGroups
from ..engines.calls.executable import BuildRequest
from ..engines.update.traced_updates import describe_update
from .identity import EXPLAINED, ExecutableKey
from .machine import collect_compiler_settings, collect_versions, describe_processor, find_compiler
from .sources import list_user_files

__all__ = ["ExecutableKey", "make_executable_key"]


# So many elements of a constant are shown when it changes.
_MAX_SHOWN = 4


def make_executable_key(graph: StepGraph, request: BuildRequest, *, engine: str, model: str = "") -> ExecutableKey:
    """Return the key of the executable of `graph` for `request`, as `engine` was asked for by name.

    `model` is the name of the model's class, which explains and is no part of the identity; nor are the places of
    operators, so that moving a line finds the same executable.
    """
    # what cannot be written down is known to this process only: a mark of its own makes it equal to nothing
    identity = identify_graph(graph, opaque_mark=os.urandom(8).hex())
    try:
        matmul = torch.get_float32_matmul_precision()
    except RuntimeError:  # so torch answers where it was set by `torch.backends`' newer attributes
        matmul = str(torch.backends.mkldnn.matmul.fp32_precision)  # type: ignore[attr-defined]
    plan = {item.name: getattr(request.plan, item.name) for item in fields(request.plan)}
    for name, value in plan.items():
        if not isinstance(value, (bool, int, float, str, type(None))):
            # what adds up gradients over processes runs between programs: that it is there is what matters
            plan[name] = asdict(value) if isinstance(value, ReplicaGroups) else True
    replica_groups = {name: [group.size, group.strided] for name, group in request.replica_groups.items()}
    groups = zip_longest(map(describe_update, request.groups), map(list, request.group_names))
    components: Dict[str, Any] = {
        "graph": identity.graph,
        "tensors": identity.tensors,
        "constants": identity.constants,
        "plan": plan,
        "optimizer": [{**structure, "parameters": names or []} for structure, names in groups if structure is not None],
        "engine": {
            "name": engine,
            "variant": asdict(request.choice),
            "settings": collect_compiler_settings(),
            "observer": request.observer is not None,
        },
        "versions": collect_versions(),
        "processor": {**describe_processor(), "capability": torch.backends.cpu.get_cpu_capability()},
        "precision": {"matmul": matmul, "deterministic": torch.are_deterministic_algorithms_enabled()},
        "threads": request.choice.num_threads or torch.get_num_threads(),
        "extra": {"replica_groups": replica_groups} if replica_groups else {},
    }
    if identity.has_foreign:
        # the libraries and programs that operators of the user's own may come from
        paths = sorted({*map(str, torch.ops.loaded_libraries), *list_user_files(sys.modules)})
        components["libraries"] = [[path, *_hash_file(path)] for path in paths]
    components[EXPLAINED] = {
        "model": model,
        "places": identity.places,
        "modules": identity.modules,
        "defaults": identity.defaults,
        "shown_constants": [_show_value(value) for value in graph.constant_values],
        "numbers": [_read_numbers(settings) for settings in request.groups],
        "compiler": find_compiler(),
    }
    return ExecutableKey(components, identity.opaque)


def _show_value(value: torch.Tensor) -> Any:
    if value.numel() > _MAX_SHOWN or value.is_complex():
        return None
    numbers = value.flatten().tolist()
    if value.dtype.is_floating_point and value.dtype != torch.float64:
        numbers = [float(f"{number:.6g}") for number in numbers]  # as it was written: 0.1, not 0.10000000149
    return numbers if value.dim() else numbers[0]


def _read_numbers(settings: Any) -> Dict[str, Any]:
    """Return the settings of a parameter group as they are now, for people to compare."""
    values = {name: value for name, value in sorted(vars(settings).items()) if isinstance(value, (bool, int, float))}
    kind = getattr(settings, "kind", None)
    return {**values, "kind": str(getattr(kind, "name", kind))}


def _hash_file(path: str) -> List[Any]:
    try:
        with open(path, "rb") as file:
            return [hashlib.sha256(file.read()).hexdigest()[:32]]
    except OSError:
        return []
