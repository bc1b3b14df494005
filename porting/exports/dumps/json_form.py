"""The graph as JSON, in a form of its own that says its version."""

from __future__ import annotations

import dataclasses
import json
from typing import Any, Dict

from ..exported_step import ExportedStep
from .facts import OperatorFacts, TensorFacts, facts_of

__all__ = ["SCHEMA", "as_json"]

SCHEMA = "porting.graph/1"
"""What the key `schema` says."""


def as_json(step: ExportedStep) -> bytes:
    """Describe the graph of `step`.

    Keys: `schema`, `title`, `mode`, `batch`, `precision`, `computation_order`, `entering` (tensors with a `kind`),
    `operators` (in the order they run; `inputs` and `outputs` name values, `bodies` are lists of operators),
    `returned`, `sums`.
    """
    facts = facts_of(step)
    content = {
        "schema": SCHEMA,
        "title": facts.title,
        "mode": step.graph.mode,
        "batch": dataclasses.asdict(step.batch),
        "precision": step.precision,
        "computation_order": step.computation_order,
        "entering": [{**_tensor_to_data(tensor), "kind": tensor.kind} for tensor in facts.entering],
        "operators": [_operator_to_data(item) for item in facts.operators],
        "returned": list(facts.returned),
        "sums": {
            "forward_flops": facts.forward_flops,
            "forward_peak_bytes": facts.forward_peak_bytes,
            "kept_bytes": facts.kept_bytes,
            "recomputed_flops": facts.recomputed_flops,
            "state_bytes": facts.state_bytes,
        },
    }
    return (json.dumps(content, indent=1) + "\n").encode()


def _tensor_to_data(tensor: TensorFacts) -> Dict[str, Any]:
    return {"name": tensor.name, "shape": list(tensor.shape), "dtype": tensor.dtype, "bytes": tensor.num_bytes}


def _operator_to_data(item: OperatorFacts) -> Dict[str, Any]:
    return {
        "name": item.name,
        "operator": item.operator,
        "inputs": list(item.inputs),
        "outputs": [_tensor_to_data(tensor) for tensor in item.outputs],
        "new_bytes": item.new_bytes,
        "flops": item.flops,
        "module": item.module,
        "place": None if item.place is None else dataclasses.asdict(item.place),
        "bodies": [[_operator_to_data(inner) for inner in body] for body in item.bodies],
    }
